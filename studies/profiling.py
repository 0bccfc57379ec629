"""Which stopping rule and which order of inputs decide cheapest, and how often they are wrong.

Every cell is a rule, an order and a distance of the accuracy SLO from the true mean; a profile
is wrong when it says above of a mean below the bound, or below of one above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from deploy.methods import method_where
from pipelines import checks
from pipelines.method import SAMPLING
from pipelines.trace import Trace, load_trace
from studies import profiling_report
from studies.simulated_profiles import (
    RULES,
    Population,
    Rule,
    draw,
    end,
    of_trace,
    orders,
    prefix_cache_ratio,
    synthetic,
)
from studies.tables import written

PROFILES_PER_SEED = 2_000

DISTANCES = tuple(
    sign * size for size in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4) for sign in (-1.0, 1.0)
)
"""SLO minus true mean: negative ones should end above."""

SAMPLINGS = SAMPLING

_ESTIMATE_INPUTS = 50
"""The variance of the estimate is compared after as many inputs: the paper's fewest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of `profiling.csv`. Figures are NaN in a cell without profiles.

    Attributes:
        trace: Name of the population.
        rule: See `RULES`.
        sampling: Order of the inputs.
        method: Which stops measuring by this rule in this order; empty: none does. `default` does
            not: its strategy decides by itself.
        slo_distance: SLO minus true mean.
        profiles: Simulated; 0 when no configuration has its bound in [0, 1].
        inputs_mean: Inputs used.
        seconds_mean: Operator seconds used, nothing reused.
        wrong_rate: Part of the profiles with the wrong verdict.
        undecided_rate: Part of the profiles without a verdict.
        variance_ratio: Variance of the mean of the first 50 inputs (or a third, if there are
            fewer than 150), in this order over that in a random order.
    """

    trace: str
    rule: str
    sampling: str
    method: str | None
    slo_distance: float
    profiles: int
    inputs_mean: float
    seconds_mean: float
    wrong_rate: float
    undecided_rate: float
    variance_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow:
    """A line of `prefix_cache.csv`.

    Attributes:
        trace: Its name.
        seconds_ratio: Operator seconds of its full grid with a prefix cache over those without.
    """

    trace: str
    seconds_ratio: float


Observer = Callable[[Row], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the study found.

    Attributes:
        rows: Every cell.
        cache_ratios: Trace -> operator seconds with a prefix cache over those without, full grid.
    """

    rows: tuple[Row, ...]
    cache_ratios: Mapping[str, float]


def run(
    traces: Sequence[Path], seeds: int, out: Path, *, observer: Observer | None = None
) -> Comparison:
    """Simulate profiles; write `profiling.csv`, `profiling.svg` and `profiling.html` into `out`.

    And `prefix_cache.csv`, what the prefix cache leaves of the seconds of the full grid.

    Args:
        traces: Folders with a trace each.
        seeds: Each adds 2,000 profiles to every cell, `>= 1`.
        out: The folder, made when it is missing.
        observer: Told every row when it is known.

    Raises:
        InvalidInput: If a trace cannot be read or `seeds` is less than 1.
    """
    checks.require(seeds >= 1, "seeds", "must be >= 1", seeds)
    loaded = {name: load_trace(folder) for name, folder in _named(traces).items()}
    ratios = {name: prefix_cache_ratio(trace) for name, trace in loaded.items()}

    def found() -> Iterator[Row]:
        for population in _populations(loaded):
            for row in study(population, seeds * PROFILES_PER_SEED):
                if observer is not None:
                    observer(row)
                yield row

    rows = written(found(), Row, out / "profiling.csv", digits=None)
    caches = [CacheRow(trace=name, seconds_ratio=ratio) for name, ratio in ratios.items()]
    written(caches, CacheRow, out / "prefix_cache.csv", digits=None)
    profiling_report.write(rows, out)
    return Comparison(rows=tuple(rows), cache_ratios=ratios)


def study(
    population: Population, profiles: int, distances: Sequence[float] = DISTANCES
) -> Iterable[Row]:
    """Give the rows of one population."""
    ratios = {sampling: variance_ratio(population, sampling) for sampling in SAMPLINGS}
    for sampling in SAMPLINGS:
        order = orders(population, sampling, profiles, np.random.default_rng(2))
        for distance in distances:
            cell = partial(
                Row,
                trace=population.name,
                sampling=sampling,
                slo_distance=distance,
                variance_ratio=ratios[sampling],
            )
            # The same seed for every order: differences are those of the order alone.
            drawn = draw(population, order, distance, np.random.default_rng(3))
            for name, rule in RULES.items():
                if drawn is None:
                    nan = float("nan")
                    yield cell(
                        rule=name,
                        method=_method(rule, sampling),
                        profiles=0,
                        inputs_mean=nan,
                        seconds_mean=nan,
                        wrong_rate=nan,
                        undecided_rate=nan,
                    )
                    continue
                ended = end(rule, drawn)
                yield cell(
                    rule=name,
                    method=_method(rule, sampling),
                    profiles=profiles,
                    inputs_mean=float(ended.inputs.mean()),
                    seconds_mean=float(ended.seconds.mean()),
                    wrong_rate=float((ended.signs == np.sign(distance)).mean()),
                    undecided_rate=float((ended.signs == 0).mean()),
                )


def _method(rule: Rule, sampling: str) -> str | None:
    if rule.stopping is None:  # also what the strategy that decides by itself has
        return None
    parts = (rule.stopping, sampling)
    return method_where(lambda m: (m.planning.stopping, m.planning.sampling) == parts)


def variance_ratio(population: Population, sampling: str, count: int = 2_000) -> float:
    """Give the variance of a short profile's mean in an order, over that in a random order.

    Averaged over at most 200 configurations; both from `count` orders.
    """
    scores = population.scores[:: max(1, len(population.scores) // 200)]
    inputs = min(_ESTIMATE_INPUTS, max(1, scores.shape[1] // 3))
    total = []
    for kind in (sampling, "random"):
        order = orders(population, kind, count, np.random.default_rng(4))[:, :inputs]
        taken = np.zeros((count, scores.shape[1]))
        np.put_along_axis(taken, order, 1.0 / inputs, axis=1)
        total.append(float((scores @ taken.T).var(axis=1, ddof=1).mean()))
    return total[0] / total[1] if total[1] > 0 else 1.0


def as_document(row: Row) -> dict[str, object]:
    """Give a row as JSON has it: None for what is not known."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(row).items()
    }


def _named(folders: Sequence[Path]) -> Mapping[str, Path]:
    """Give every folder under its name, and as much of its path as tells it from the others."""
    whole = list(dict.fromkeys(folder.resolve() for folder in folders))
    parts = 1
    while len(named := {"/".join(each.parts[-parts:]): each for each in whole}) < len(whole):
        parts += 1
    return named


def _populations(traces: Mapping[str, Trace]) -> Iterable[Population]:
    for name, trace in traces.items():
        yield of_trace(name, trace, np.random.default_rng(0))
    yield from synthetic(np.random.default_rng(1))
