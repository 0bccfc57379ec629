"""Who takes part in the planning study, by name.

`default` and `published` are the product's methods, taken as users get them. Competitors come
twice: as published (a fixed number of inputs, the P99 count of the t-test as in Circinus A.4; no
cache) and `_tuned` (few inputs, our cache, the order of strata); `vulcan_tuned@30` is the tuned
one with 30 inputs. `without_*` are `default` without a part; `published_*` are `published` without
one, as Circinus 6.3 removes them (figure 14a), or with knobs as numbers (figure 18).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from circinus.deploy.methods import METHODS
from circinus.deploy.planning import PATIENCE, PUBLISHED_MARGIN_CONFIDENCE, Planner, planner_of
from circinus.pipelines import checks
from circinus.pipelines.execution.needs import package, require
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.profile import FloatArray, Verdict
from circinus.planner.search.loop import SearchSettings
from circinus.planner.search.measuring import LatencyLooks
from circinus.planner.strategy.acquisition import MultiFidelitySettings
from circinus.planner.strategy.cmbo import Cmbo, CmboSettings
from circinus.planner.strategy.in_order import exhaustive_search, random_search
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import StrategyFactory
from circinus.profiler.drawing import random_drawing, stratified_drawing
from circinus.profiler.stopping import TTest
from circinus.studies.planning.competitors import VideoStorm, Vulcan, adapter

TUNED_INPUTS = 20

ADAPTERS = {"optuna_tpe": "optuna", "optuna_gp": "optuna", "botorch": "botorch"}
"""Names, and the package of the extra `studies` that each needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSamples:
    """A stopping rule: the sign of the sample mean at a fixed number of inputs."""

    count: int

    def judge(self, scores: FloatArray, *, bound: float, population: int) -> Verdict:
        """Return the side the mean is on once there are enough scores."""
        if len(scores) < min(self.count, population):
            return Verdict.UNDECIDED
        return Verdict.ABOVE if scores.mean() >= bound else Verdict.BELOW


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyMethod:
    """A way to plan."""

    name: str  # as requested
    planner: Planner  # of the product's parts, but for what only studies have
    cached: bool = True  # whether operators' outputs are reused between configurations


def names() -> tuple[str, ...]:
    """Return the names of all methods that need no extra."""
    peers = (f"{name}{end}" for name in _PEERS for end in ("", "_tuned"))
    return (
        *METHODS,
        *_OURS,
        *_PUBLISHED,
        *(name for name in peers if name != "cmbo"),
    )  # that is `published`


def study_method(name: str, *, published_inputs: int) -> StudyMethod:
    """Return the method of that name, of `names` or `ADAPTERS`.

    A tuned one and an adapter may end with `@N`: N inputs instead of 20. Competitors as published
    measure on `published_inputs`. InvalidInput if there is none, it takes no such number, or the
    extra is not installed.
    """
    named, (name, at, count) = name, name.partition("@")
    known = (*names(), *ADAPTERS)
    checks.require(name in known, "method", f"must be among {', '.join(known)}", named)
    tuned = name.endswith("_tuned") or name in ADAPTERS
    fits = not at or (tuned and count.isdecimal() and int(count) >= 2)
    rule = "may end with @ and a number of inputs, >= 2, where it is tuned or an adapter"
    checks.require(fits, "method", rule, named)
    inputs = int(count) if at else TUNED_INPUTS
    if name in METHODS:
        return StudyMethod(name=named, planner=planner_of(METHODS[name].planning))
    if name in _OURS:
        ours = planner_of(METHODS["default"].planning)
        settings = replace(ours.settings, strategy=partial(MultiFidelity, settings=_OURS[name]))
        return StudyMethod(name=named, planner=replace(ours, settings=settings))
    if name in _PUBLISHED:
        return _PUBLISHED[name](planner_of(METHODS["published"].planning), published_inputs)
    samples = inputs if tuned else published_inputs
    if name in ADAPTERS:
        require("method", name, [package(ADAPTERS[name], extra="studies")])
        made = adapter(name, samples)
    else:
        made = _PEERS[name.removesuffix("_tuned")](samples)
    # deviates: placements-for-competitors
    fixed = Planner(
        settings=SearchSettings(
            strategy=made,
            patience=PATIENCE,
            margin_confidence=PUBLISHED_MARGIN_CONFIDENCE,
            looks=LatencyLooks(accepted=1),  # on how few inputs to announce is their own choice
        ),
        stopping=lambda drawing: FixedSamples(count=samples),
        sampling=stratified_drawing if tuned else random_drawing,
    )
    return StudyMethod(name=named, planner=fixed, cached=tuned)


# deviates: p99-of-this-trace
def published_count(trace: Trace, accuracy_slo: float) -> int:
    """Return the P99 over configurations of the inputs that the t-test takes (appendix A.4)."""
    rule, population, rng = TTest(), len(trace.input_bytes), np.random.default_rng(0)
    order = rng.permutation(population)
    counts = []
    for row in rng.permutation(len(trace.score))[:100]:
        scores = trace.score[row, order].astype(float)
        if np.isnan(scores).any():
            continue
        ends = (
            n
            for n in range(rule.minimum, population + 1, 5)
            if rule.judge(scores[:n], bound=accuracy_slo, population=population)
            is not Verdict.UNDECIDED
        )
        counts.append(next(ends, population))
    return int(np.quantile(counts, 0.99)) if counts else population


_OURS: Mapping[str, MultiFidelitySettings] = {
    "without_fidelities": MultiFidelitySettings(fidelities=False),
    "without_structure": MultiFidelitySettings(structured=False),
    "without_unpaid": MultiFidelitySettings(unpaid=False),
    "without_order": MultiFidelitySettings(ordered=False),
    "without_pairing": MultiFidelitySettings(paired=False),
}


def _without_profiler(published: Planner, count: int) -> StudyMethod:
    """Return `published` with a fixed number of inputs, drawn at random, and without the cache."""
    planner = replace(
        published, stopping=lambda drawing: FixedSamples(count=count), sampling=random_drawing
    )
    return StudyMethod(name="published_without_profiler", planner=planner, cached=False)


def _without_search(published: Planner, count: int) -> StudyMethod:
    """Return `published` with Bayesian optimisation of one utility, without earlier queries."""
    settings = replace(published.settings, strategy=Vulcan)
    return StudyMethod(
        name="published_without_search", planner=replace(published, settings=settings)
    )


def _continuous(published: Planner, count: int) -> StudyMethod:
    strategy = partial(Cmbo, settings=CmboSettings(continuous=True))
    settings = replace(published.settings, strategy=strategy)
    return StudyMethod(name="published_continuous", planner=replace(published, settings=settings))


_PUBLISHED: Mapping[str, Callable[[Planner, int], StudyMethod]] = {
    "published_without_profiler": _without_profiler,
    "published_without_search": _without_search,
    "published_continuous": _continuous,
}

_PEERS: Mapping[str, Callable[[int], StrategyFactory]] = {
    "cmbo": lambda count: partial(Cmbo, settings=CmboSettings(inputs=count)),
    "vulcan": lambda count: partial(Vulcan, inputs=count),
    "videostorm": lambda count: partial(VideoStorm, inputs=count),
    "random": lambda count: partial(random_search, inputs=count),
    "exhaustive": lambda count: partial(exhaustive_search, inputs=count),
}
