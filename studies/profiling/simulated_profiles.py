"""Thousands of profiles of populations whose true means are known, with the production rules.

Rules are those of the product's names, or changed ones of them; so are random orders. A stratified
order is `round_robin` over strata, which is all that the product does, too; but the strata of a
trace are made once here, not for each of thousands of queries.

The one rule: a profile draws its configuration and its order at random, independently of all
others of its cell, and its bound lies at the cell's distance from the true mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from circinus.deploy.planning import sampling_of, stopping_rule
from circinus.pipelines import checks
from circinus.pipelines.execution.features import recorded_features
from circinus.pipelines.io.replay import TraceEvaluator
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.profiler.drawing import (
    DEFAULT_STRATA,
    Drawing,
    equal_strata,
    no_strata,
    round_robin,
)
from circinus.profiler.stopping import Betting, Signs, TTest, certain_path

SYNTHETIC_INPUTS = 1_000
_SYNTHETIC_CONFIGURATIONS = 200
_HORIZONS = (64, 256)  # most profiles end early: the long way is gone by those that do not


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """C configurations on N inputs."""

    name: str  # of the trace
    scores: FloatArray  # without failures, shape (C, N)
    seconds: FloatArray  # of all operators together, shape (C, N)
    groups: IntArray | None  # stratum of every input, shape (N,); None: nothing is known
    strata: str  # what the groups are made of, or why there are none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatedProfiles:
    """B profiles of one cell."""

    scores: FloatArray  # in the order drawn, shape (B, N)
    seconds: FloatArray  # shape (B, N)
    bounds: FloatArray  # shape (B,)
    groups: IntArray | None  # shape (B, N); None when the population has none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ended:
    """How B profiles ended."""

    inputs: IntArray  # number used, shape (B,)
    seconds: FloatArray  # operator seconds used, shape (B,)
    signs: Signs  # 1 above, -1 below, 0 undecided, shape (B,)


def of_trace(name: str, trace: Trace, rng: np.random.Generator) -> Population:
    """Return the configurations that never failed; InvalidInput if each failed somewhere."""
    first = len(trace.input_bytes)  # measurements: those of first draws
    whole = ~np.isnan(trace.score).any(axis=1)
    rule = "must have a configuration that never failed"
    checks.require(bool(whole.any()), f"trace {name}", rule, int(whole.sum()))
    recorded = recorded_features(trace)
    features = recorded.values
    reason = no_strata(features, len(features))
    reason = reason or ("" if np.isfinite(features).all() else "some features are not finite")
    return Population(
        name=name,
        scores=trace.score[whole, :first].astype(np.float64),
        seconds=trace.latency_s[whole, :, :first].sum(axis=1, dtype=np.float64),
        groups=None if reason else equal_strata(features, rng, strata=DEFAULT_STRATA),
        strata=f"none, as {reason}" if reason else f"by {recorded.source}",
    )


def synthetic(rng: np.random.Generator) -> tuple[Population, ...]:
    """Return populations of 1,000 bounded scores, 200 of each kind; an input takes a second."""
    n, count = SYNTHETIC_INPUTS, _SYNTHETIC_CONFIGURATIONS
    means = rng.uniform(0.05, 0.95, (count, 1))
    stratum = np.repeat(np.arange(DEFAULT_STRATA), n // DEFAULT_STRATA)
    # Each configuration finds other strata hard.
    hard = rng.normal(0.0, 0.3, (count, DEFAULT_STRATA))[:, stratum]
    kinds = {
        "synthetic-yes-no": rng.random((count, n)) < means,
        "synthetic-thirds": rng.binomial(3, means, (count, n)) / 3,
        "synthetic-smooth": rng.beta(5 * means, 5 * (1 - means), (count, n)),
        "synthetic-rare-failures": np.where(
            rng.random((count, n)) < 0.1 * means, 0.0, 0.45 + means / 2
        ),
        "synthetic-strata": np.clip(means + hard + rng.normal(0.0, 0.2, (count, n)), 0, 1),
    }
    seconds, groups = np.ones((count, n)), stratum.astype(np.int64)
    return tuple(
        Population(
            name=name,
            scores=scores.astype(np.float64),
            seconds=seconds,
            groups=groups,
            strata="by the strata that scores were drawn of",
        )
        for name, scores in kinds.items()
    )


def prefix_cache_ratio(trace: Trace) -> float:
    """Return operator seconds with a prefix cache over those without, of the full grid.

    Every configuration on every input; NaN when nothing takes time.
    """
    order = np.arange(len(trace.input_bytes))
    space = ConfigurationSpace(trace.graph)
    spent = []
    for cached in (True, False):
        evaluator = TraceEvaluator(trace, order, cached=cached)
        for number in space.numbers(trace.configurations.astype(np.int64)).tolist():
            evaluator.measure(space.configuration(number), len(order))
        spent.append(evaluator.spent_s)
    return spent[0] / spent[1] if spent[1] > 0 else float("nan")


def orders(
    population: Population, sampling: str, count: int, rng: np.random.Generator
) -> IntArray:
    """Return `count` orders of the inputs, shape (count, N), drawn as production draws them.

    Without groups all are random, whatever the sampling, of `SAMPLING`.
    """
    n = population.scores.shape[1]
    if sampling == "random" or population.groups is None:
        drawn = sampling_of("random")
        return np.stack([drawn(None, n, rng).order for _ in range(count)])
    return np.stack([round_robin(population.groups, rng) for _ in range(count)])


def draw(
    population: Population, order: IntArray, distance: float, rng: np.random.Generator
) -> SimulatedProfiles | None:
    """Return a profile per order with the bound at true mean + distance.

    Only configurations whose bound is in [0, 1] are drawn; None when there is none.
    """
    bounds = population.scores.mean(axis=1) + distance
    possible = np.flatnonzero((bounds >= 0) & (bounds <= 1))
    if not possible.size:
        return None
    chosen = rng.choice(possible, len(order))
    return SimulatedProfiles(
        scores=population.scores[chosen[:, None], order],
        seconds=population.seconds[chosen[:, None], order],
        bounds=bounds[chosen],
        groups=None if population.groups is None else population.groups[order],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A production rule over many profiles at once."""

    rule: TTest | Betting  # the production rule, without groups
    grouped: bool = False  # whether it uses the groups
    stopping: str | None = None  # its name in the product; None: the product has it not so

    def signs(
        self, scores: FloatArray, drawn: SimulatedProfiles, among: npt.NDArray[np.intp]
    ) -> Signs:
        """Return the verdicts after each input, of the profiles `among` those drawn."""
        bounds, population = drawn.bounds[among], drawn.scores.shape[1]
        if isinstance(self.rule, TTest):
            signs = self.rule.path(scores, bounds, population)
            minimum = min(self.rule.minimum, population)
        else:
            all_groups = drawn.groups if self.grouped else None
            groups = None if all_groups is None else all_groups[among]
            signs = self.rule.path(scores, bounds, population, groups)
            minimum = 1
        sure = certain_path(scores, bounds, population)
        sure[:, : minimum - 1] = 0
        return np.where(signs == 0, sure, signs).astype(np.int8)


def _rules() -> Mapping[str, Rule]:
    two = np.arange(2)
    drawing = Drawing(order=two, groups=two)  # of inputs in groups
    t_test, betting = stopping_rule("t_test", drawing), stopping_rule("betting", drawing)
    if not (isinstance(t_test, TTest) and isinstance(betting, Betting)):
        raise TypeError(f"rules must judge many profiles at once, got {t_test}, {betting}.")
    grouped = betting.groups is not None
    ungrouped = replace(betting, groups=None)  # each profile has groups of its own
    return {
        "t-test": Rule(rule=t_test, stopping="t_test"),
        "t-test-from-2": Rule(rule=replace(t_test, minimum=2)),
        "betting": Rule(rule=ungrouped),
        "betting-groups": Rule(rule=ungrouped, grouped=grouped, stopping="betting"),
    }


RULES = _rules()
"""The paper's and ours as in the product; then one with fewer inputs, the other without groups."""


def end(rule: Rule, drawn: SimulatedProfiles) -> Ended:
    """Return where each profile stops, and with which verdict."""
    count, n = drawn.scores.shape
    used = np.full(count, n)
    verdicts = np.zeros(count, dtype=np.int8)
    open_ = np.arange(count)
    for horizon in (*(h for h in _HORIZONS if h < n), n):
        signs = rule.signs(drawn.scores[open_, :horizon], drawn, open_)
        first = np.argmax(signs != 0, axis=1)
        first_signs = signs[np.arange(len(open_)), first]
        verdicts[open_] = first_signs
        used[open_[first_signs != 0]] = first[first_signs != 0] + 1
        open_ = open_[first_signs == 0]
        if not open_.size:
            break
    spent = np.cumsum(drawn.seconds, axis=1)[np.arange(count), used - 1]
    return Ended(inputs=used, seconds=spent, signs=verdicts)
