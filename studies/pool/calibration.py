"""How sure `calibrated` is of what it proposes, against how often it is right.

Its latency profile is wrong by a hidden factor for each type; truth is a lookup.
Such a search goes on until it settles: to stop with the optimum would leave out what is stated
of pools after it, and keep the statement that was right.

Its constants were chosen on some drawn problems (`run`), and docs/studies/pool.md holds it to what
it stated on others:

    from circinus.studies.pool.calibration import run
    run(range(200, 280), Path("out"))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path

import numpy as np

from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.pool.calibrated import Advice, Calibrated
from circinus.scheduler.pool.search import Pool, PoolGoal, PoolSpace, Trials, best, search
from circinus.scheduler.simulation.draws import IN_TIME
from circinus.scheduler.simulation.loads import bursty_gaps, poisson_gaps, ribbon_batches
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.trying import (
    FirstComeTrials,
    TrialDraws,
    TrialLoad,
    trial_draws,
)
from circinus.studies.pool.lookups import PoolLookup
from circinus.studies.report.tables import grouped, written

FEASIBLE, CHEAPEST = "feasible", "cheapest"
"""What is stated: the proposed pool is feasible; the pool settled on is the cheapest that is."""

ERROR = 0.15
"""Deviation of the logarithms of the hidden factors."""

_BINS = 5
_Z = 1.96  # of the intervals: 95 %
_STREAM = 2021  # of what is hidden; strategies have their seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRow:
    """A line of `statements.csv`: a statement with its probability."""

    model: str  # name of the problem
    seed: int  # of its hidden factors and of the strategy
    trial: int  # that it was stated before, from 1
    about: str  # `feasible` or `cheapest`
    pool: str  # counts of each type, joined by spaces; empty: it has none to settle on
    stated: float  # probability
    true: bool  # whether it was so
    optimal: bool  # whether the pool costs as little as any that is feasible


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityRow:
    """A line of `reliability.csv`: the statements of a model whose probabilities are in a bin."""

    model: str
    about: str
    low: float  # the bin
    high: float
    count: int
    stated: float  # mean probability
    true: float  # share that was so
    true_low: float  # Wilson interval of the share, 95 %
    true_high: float


@dataclass(slots=True, kw_only=True)
class Stating:
    """A `PoolStrategy`: `calibrated`, which records its advice."""

    strategy: Calibrated
    said: list[Advice] = field(default_factory=list, init=False)

    def propose(self, goal: PoolGoal, trials: Trials) -> Pool | None:
        """See `PoolStrategy.propose`."""
        self.said.append(self.strategy.advice(goal, trials))
        return self.said[-1].pool


def misled(lookup: PoolLookup, seed: int) -> Stating:
    """Return `calibrated` with the latencies of a lookup times hidden factors of the seed.

    InvalidInput if they are not known.
    """
    profile, rng = lookup.profiled(), hidden(seed, 0)
    wrong = scaled(profile.table, factors(rng, len(lookup.space.types)))
    simulator = FirstComeTrials(draws=trial_draws(wrong, profile.load, rng))
    return Stating(strategy=Calibrated(simulator=simulator, seed=seed))


def statements(
    lookup: PoolLookup, seed: int, trials: Trials, all_advice: Sequence[Advice]
) -> Iterator[StatementRow]:
    """Yield all that was stated in a search; each piece of advice is of the trials before it."""
    goal = lookup.goal()
    for count, advice in enumerate(all_advice):
        chosen = best(goal, trials[:count])
        pool = advice.pool or (chosen.pool if chosen else None)
        optimal = pool is not None and lookup.is_optimum(pool)
        settles = advice.pool is None
        yield StatementRow(
            model=lookup.model,
            seed=seed,
            trial=count + 1,
            about=CHEAPEST if settles else FEASIBLE,
            pool=" ".join(map(str, pool or ())),
            stated=advice.settled if settles else advice.feasible,
            true=optimal if settles or pool is None else lookup.is_feasible(pool),
            optimal=optimal,
        )


def reliability(rows: Iterable[StatementRow], bins: int = _BINS) -> list[ReliabilityRow]:
    """Return how often statements were true, in so many bins; empty ones are left out."""
    lines = []
    for (model, about), group in sorted(grouped(list(rows), "model", "about").items()):
        place = np.minimum([int(bins * row.stated) for row in group], bins - 1)
        stated, true = (np.array([getattr(r, n) for r in group]) for n in ("stated", "true"))
        for b in np.unique(place).tolist():
            inside = place == b
            count, share = int(inside.sum()), float(true[inside].mean())
            low, high = wilson(share, count)
            lines.append(
                ReliabilityRow(
                    model=model,
                    about=about,
                    low=b / bins,
                    high=(b + 1) / bins,
                    count=count,
                    stated=float(stated[inside].mean()),
                    true=share,
                    true_low=low,
                    true_high=high,
                )
            )
    return lines


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of so many (Wilson, 1927)."""
    centre = share + _Z**2 / (2 * count)
    half = _Z * sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return (centre - half) / (1 + _Z**2 / count), (centre + half) / (1 + _Z**2 / count)


def scaled(table: LatencyTable, factor: FloatArray) -> LatencyTable:
    """Return the table with latencies times factors, which broadcast to (B, K)."""
    return replace(table, mean_s=table.mean_s * factor, std_s=table.std_s * factor)


def factors(rng: np.random.Generator, count: int) -> FloatArray:  # (count,)
    """Draw hidden factors, log-normal."""
    return np.exp(ERROR * rng.standard_normal(count))


def hidden(seed: int, purpose: int) -> np.random.Generator:
    """Return the generator of what is hidden of a seed."""
    return np.random.default_rng([_STREAM, seed, purpose])


_MOST = 60  # trials of a search
_CELL_ERROR = 0.03  # of single entries of a drawn profile: no factor for a type explains them


def run(seeds: Sequence[int], out: Path) -> tuple[list[StatementRow], list[ReliabilityRow]]:
    """Return what is stated on the problems of seeds, and how reliable it is; write both."""
    stated = written(_stated(seeds), StatementRow, out / "statements.csv")
    return stated, written(reliability(stated), ReliabilityRow, out / "reliability.csv")


def _stated(seeds: Sequence[int]) -> Iterator[StatementRow]:
    for seed in seeds:
        drawn = drawn_problem(seed)
        if drawn is None:
            continue
        lookup, simulator = drawn
        stating = Stating(strategy=Calibrated(simulator=simulator, seed=seed))
        trials = search(lookup.goal(), stating, lookup.measure, _MOST)
        yield from statements(lookup, seed, trials, stating.said)


def drawn_problem(seed: int) -> tuple[PoolLookup, FirstComeTrials] | None:
    """Return a table, and who simulates it; None: no pool is in time.

    More is wrong than particles can model. Seconds grow with the size, at a speed and with a rest
    of its own for each of three types. The profile is wrong by a factor for each type and by more
    in every entry; gaps between arrivals are Poisson, bursty, or whole milliseconds.
    """
    rng = hidden(seed, 2)
    speed = np.sort(rng.lognormal(0.0, 0.5, 3))[::-1]
    prices = 0.5 * speed * rng.lognormal(0.0, 0.25, 3)
    batches = np.arange(10, 501, 10)
    mean_s = 0.01 * (rng.uniform(0.1, 0.6, 3) + batches[:, None] / 170.0) / speed
    true = LatencyTable(
        model="drawn",
        kinds=("a", "b", "c"),
        batches=batches,
        mean_s=mean_s,
        std_s=mean_s * rng.uniform(0.01, 0.1, 3),
    )
    space = PoolSpace(types=true.kinds, prices=tuple(prices.tolist()), most=(5, 6, 7))
    qos_s = float(mean_s[-1, 0] * rng.uniform(1.1, 2.0))
    typical = mean_s[16]
    rate = float(rng.uniform(2.5, 4.0) / typical[0])
    load = TrialLoad(mix=ribbon_batches, qos_s=qos_s, rate_rps=rate, requests=5000)
    cells = np.exp(_CELL_ERROR * rng.standard_normal(mean_s.shape))
    wrong = scaled(true, factors(rng, 3) * cells)
    drawn = trial_draws(wrong, load, rng)
    truth = _simulated(space, _other_arrivals(trial_draws(true, load, rng, streams=32), rate, rng))
    if truth.max() < IN_TIME:
        return None
    shares = dict(zip(map(tuple, space.pools.tolist()), truth.tolist(), strict=True))
    return PoolLookup(model="drawn", space=space, shares=shares), FirstComeTrials(draws=drawn)


def _other_arrivals(drawn: TrialDraws, rate: float, rng: np.random.Generator) -> TrialDraws:
    """Return draws whose gaps are no gamma distribution's, whatever the variability."""
    shape, kind = drawn.rows.shape, rng.integers(3)
    if kind == 0:
        gaps = np.array([poisson_gaps(shape[1], rng) for _ in range(shape[0])]) / rate
    elif kind == 1:
        gaps = np.array(
            [bursty_gaps(shape[1], rng, burstiness=2.0, mean_run=20.0) for _ in range(shape[0])]
        )
        gaps /= rate
    else:
        gaps = rng.poisson(1e3 / rate, shape) / 1e3
    return replace(drawn, gaps_s=np.repeat(gaps[:, None], drawn.gaps_s.shape[1], axis=1))


def _simulated(space: PoolSpace, drawn: TrialDraws) -> FloatArray:  # (P,)
    count = len(space.pools)
    poisson = np.full(count, 0.5)
    stream = np.arange(count) % drawn.streams
    scale = np.ones(space.pools.shape)
    return FirstComeTrials(draws=drawn).in_time(space.pools, scale, poisson, stream)
