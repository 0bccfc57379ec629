"""Who takes part in the planning study, by name.

Competitors come twice: as published (a fixed number of inputs, the P99 count of the
t-test as in Circinus A.4; no cache) and `_tuned` (few inputs, our cache and our order);
`vulcan_tuned@30` is the tuned one with 30 inputs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pipelines import checks
from pipelines.evaluation import StoppingRule, Verdict
from pipelines.profile import FloatArray
from pipelines.trace import Trace
from planner.baselines.exhaustive import ExhaustiveFactory
from planner.baselines.random import RandomFactory
from planner.baselines.videostorm import VideoStormFactory
from planner.baselines.vulcan import VulcanFactory
from planner.cmbo import CmboFactory, CmboSettings
from planner.multi_fidelity import MultiFidelityFactory
from planner.multi_fidelity_settings import MultiFidelitySettings
from planner.strategy import StrategyFactory
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


@dataclass(frozen=True, slots=True)
class Never:
    """A stopping rule that leaves every decision to the strategy."""

    def judge(self, scores: FloatArray, *, bound: float, population: int) -> Verdict:
        """Give UNDECIDED."""
        _ = (scores, bound, population)
        return Verdict.UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A way to plan.

    Attributes:
        strategy: Proposes.
        rule: Decides on accuracy.
        cached: Whether operators' outputs are reused between configurations.
        stratified: Whether inputs come in the order of strata, or at random.
        caution: See `planner.search.SearchSettings`.
    """

    strategy: StrategyFactory
    rule: StoppingRule
    cached: bool = True
    stratified: bool = True
    caution: float | None = 0.9


def names() -> tuple[str, ...]:
    """Give the names of all contestants that need no extra."""
    return (*_PLAIN, *_OURS, *(f"{name}{end}" for name in _PEERS for end in ("", "_tuned")))


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
    checks.require(name in known, "strategy", f"must be among {', '.join(known)}", named)
    tuned = name.endswith("_tuned") or name in ADAPTERS
    fits = not at or (tuned and count.isdecimal() and int(count) >= 2)
    rule = "may end with @ and a number of inputs, >= 2, where it is tuned or an adapter"
    checks.require(fits, "strategy", rule, named)
    inputs = int(count) if at else TUNED_INPUTS
    if name == "cmbo":
        return Contestant(strategy=CmboFactory(), rule=TTest())
    if name == "cmbo_tuned":
        return Contestant(
            strategy=CmboFactory(CmboSettings(inputs=inputs)), rule=FixedSamples(count=inputs)
        )
    if name in _OURS:
        return Contestant(strategy=MultiFidelityFactory(_OURS[name]), rule=Never(), caution=0.96)
    base = name.removesuffix("_tuned")
    samples = inputs if tuned else published_inputs
    made = _PEERS[base](samples) if base in _PEERS else _adapter(base, samples)
    fixed = Contestant(
        strategy=made, rule=FixedSamples(count=samples), cached=False, stratified=False
    )
    return replace(fixed, cached=True, stratified=True) if tuned else fixed


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
    checks.require(there, "strategy", rule, name)
    return adapter(name, count)


_PLAIN = ("cmbo", "cmbo_tuned")

_OURS: Mapping[str, MultiFidelitySettings] = {
    "multi_fidelity": MultiFidelitySettings(),
    "without_fidelities": MultiFidelitySettings(fidelities=False),
    "without_structure": MultiFidelitySettings(structured=False),
    "without_unpaid": MultiFidelitySettings(unpaid=False),
    "without_order": MultiFidelitySettings(ordered=False),
    "without_stages": MultiFidelitySettings(staged=False),
    "without_scout": MultiFidelitySettings(scouted=1),
    "without_pairing": MultiFidelitySettings(paired=False),
    "without_hearings": MultiFidelitySettings(hearings=0.0),
    "without_easiness": MultiFidelitySettings(easiness=False),
    "without_heaviness": MultiFidelitySettings(heaviness=False),
}

_PEERS: Mapping[str, Callable[[int], StrategyFactory]] = {
    "vulcan": lambda count: VulcanFactory(inputs=count),
    "videostorm": lambda count: VideoStormFactory(inputs=count),
    "random": lambda count: RandomFactory(inputs=count),
    "exhaustive": lambda count: ExhaustiveFactory(inputs=count),
}
