"""Who takes part in the planning study, by name.

`default` and `published` are the product's methods, taken as users get them. Competitors come
twice: as published (a fixed number of inputs, the P99 count of the t-test as in Circinus A.4; no
cache) and `_tuned` (few inputs, our cache, the order of strata); `vulcan_tuned@30` is the tuned
one with 30 inputs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from deploy.methods import METHODS
from deploy.planning import PUBLISHED_CAUTION, Planner, planner_of
from pipelines import checks
from pipelines.evaluation import Verdict
from pipelines.profile import FloatArray
from pipelines.trace import Trace
from planner.baselines.exhaustive import ExhaustiveFactory
from planner.baselines.random import RandomFactory
from planner.baselines.videostorm import VideoStormFactory
from planner.baselines.vulcan import VulcanFactory
from planner.cmbo import CmboFactory, CmboSettings
from planner.measuring import LatencyLooks
from planner.multi_fidelity import MultiFidelityFactory
from planner.multi_fidelity_settings import MultiFidelitySettings
from planner.strategy import StrategyFactory
from profiler.drawing import random_drawing, stratified_drawing
from profiler.stopping import TTest

TUNED_INPUTS = 20

ADAPTERS = {"optuna_tpe": "optuna", "optuna_gp": "optuna", "botorch": "botorch"}
"""Names, and the package of the extra `studies` that each needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSamples:
    """A stopping rule: the sign of the sample mean at a fixed number of inputs."""

    count: int

    def judge(self, scores: FloatArray, *, bound: float, population: int) -> Verdict:
        """Give the side the mean is on once there are enough scores."""
        if len(scores) < min(self.count, population):
            return Verdict.UNDECIDED
        return Verdict.ABOVE if scores.mean() >= bound else Verdict.BELOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A way to plan.

    Attributes:
        planner: Of the product's parts, but for what only studies have.
        cached: Whether operators' outputs are reused between configurations.
    """

    planner: Planner
    cached: bool = True


def names() -> tuple[str, ...]:
    """Give the names of all contestants that need no extra."""
    peers = (f"{name}{end}" for name in _PEERS for end in ("", "_tuned"))
    return (*METHODS, *_OURS, *(name for name in peers if name != "cmbo"))  # that is `published`


def contestant(name: str, *, published_inputs: int) -> Contestant:
    """Give the contestant of that name.

    Args:
        name: See `names`; also `optuna_tpe`, `optuna_gp`, `botorch` where the extra `studies` is
            installed. A tuned one and an adapter may end with `@N`: N inputs instead of 20.
        published_inputs: How many inputs the competitors as published measure on.

    Raises:
        InvalidInput: If there is none, it takes no such number, or the extra is not installed.
    """
    known = (*names(), *ADAPTERS)
    named, (name, at, count) = name, name.partition("@")
    checks.require(name in known, "method", f"must be among {', '.join(known)}", named)
    tuned = name.endswith("_tuned") or name in ADAPTERS
    fits = not at or (tuned and count.isdecimal() and int(count) >= 2)
    rule = "may end with @ and a number of inputs, >= 2, where it is tuned or an adapter"
    checks.require(fits, "method", rule, named)
    inputs = int(count) if at else TUNED_INPUTS
    if name in METHODS:
        return Contestant(planner=planner_of(METHODS[name].planning))
    if name in _OURS:
        ours = planner_of(METHODS["default"].planning)
        return Contestant(planner=replace(ours, strategy=MultiFidelityFactory(_OURS[name])))
    base = name.removesuffix("_tuned")
    samples = inputs if tuned else published_inputs
    made = _PEERS[base](samples) if base in _PEERS else _adapter(base, samples)
    fixed = Planner(
        strategy=made,
        stopping=lambda drawing: FixedSamples(count=samples),
        sampling=stratified_drawing if tuned else random_drawing,
        caution=PUBLISHED_CAUTION,
        looks=LatencyLooks(accepted=1),  # on how few inputs to announce is their own choice
    )
    return Contestant(planner=fixed, cached=tuned)


def published_count(trace: Trace, accuracy_slo: float, rng: np.random.Generator) -> int:
    """Give the P99 over configurations of the inputs that the t-test takes (appendix A.4)."""
    rule, population = TTest(), len(trace.input_bytes)
    order = rng.permutation(population)
    counts = []
    for row in rng.permutation(len(trace.score))[:100]:
        scores = trace.score[row, order].astype(float)
        if np.isnan(scores).any():
            continue
        n = next(
            (
                n
                for n in range(rule.minimum, population + 1, 5)
                if rule.judge(scores[:n], bound=accuracy_slo, population=population)
                is not Verdict.UNDECIDED
            ),
            population,
        )
        counts.append(n)
    return int(np.quantile(counts, 0.99)) if counts else population


def _adapter(name: str, count: int) -> StrategyFactory:
    from studies.adapters import adapter

    there = importlib.util.find_spec(ADAPTERS[name]) is not None
    rule = f"needs {ADAPTERS[name]}, of the extra studies: pip install 'circinus[studies]'"
    checks.require(there, "method", rule, name)
    return adapter(name, count)


_OURS: Mapping[str, MultiFidelitySettings] = {
    "without_fidelities": MultiFidelitySettings(fidelities=False),
    "without_structure": MultiFidelitySettings(structured=False),
    "without_unpaid": MultiFidelitySettings(unpaid=False),
    "without_order": MultiFidelitySettings(ordered=False),
    "without_pairing": MultiFidelitySettings(paired=False),
}

_PEERS: Mapping[str, Callable[[int], StrategyFactory]] = {
    "cmbo": lambda count: CmboFactory(CmboSettings(inputs=count)),
    "vulcan": lambda count: VulcanFactory(inputs=count),
    "videostorm": lambda count: VideoStormFactory(inputs=count),
    "random": lambda count: RandomFactory(inputs=count),
    "exhaustive": lambda count: ExhaustiveFactory(inputs=count),
}
