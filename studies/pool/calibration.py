"""How sure `calibrated` is of what it proposes, against how often it is right.

A problem is a space of pools, what each is in truth, and a simulator with a profile that is wrong
by a hidden factor for each type. Truth is a published table, or a simulation of its own: with the
true factors and nothing else wrong, or of a drawn problem, in which more is wrong than particles
can say. Constants of the strategy were chosen on drawn problems alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.profile import BoolArray, FloatArray
from circinus.scheduler.pool.calibrated import Calibrated
from circinus.scheduler.pool.pools import Pool, PoolSpace, PoolTrial
from circinus.scheduler.pool.search import CheapestInTime, best
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.trying import (
    FirstComeTrials,
    TrialDraws,
    TrialLoad,
    trial_draws,
)
from circinus.scheduler.simulation.workload import (
    bursty_gaps,
    poisson_gaps,
    ribbon_batches,
)
from circinus.studies.report.tables import grouped, written

FEASIBLE, CHEAPEST = "feasible", "cheapest"
"""What is stated: the proposed pool is feasible; the pool settled on is the cheapest that is."""

_MOST = 60  # trials of a search
_BINS = 5
_Z = 1.96  # of the intervals: 95 %
_CELL_ERROR = 0.03  # of single entries of a drawn profile: no factor for a type explains them
_STREAM = 2021  # of problems; strategies have their seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRow:
    """A line of `statements.csv`: something that was said with a probability."""

    model: str  # name of the problem
    seed: int  # of its hidden factors and of the strategy
    trial: int  # that it was said before, from 1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolProblem:
    """A search and its truth."""

    model: str
    goal: CheapestInTime
    truth: FloatArray  # (P,); share in time that a trial of each pool measures
    simulator: FirstComeTrials  # with a wrong profile

    @property
    def good(self) -> BoolArray:  # (P,)
        """Give which pools are feasible."""
        return np.asarray(self.truth >= self.goal.in_time)

    def measure(self, pool: Pool) -> PoolTrial:
        """Try a pool."""
        return PoolTrial(pool, float(self.truth[self.goal.space.place(pool)]))


def run(
    problems: Callable[[int], PoolProblem], seeds: Sequence[int], out: Path
) -> tuple[list[StatementRow], list[ReliabilityRow]]:
    """Give what is stated in a search for each seed, and how reliable it is; write both."""
    found = (row for seed in seeds for row in statements(problems(seed), seed))
    said = written(found, StatementRow, out / "statements.csv")
    return said, written(reliability(said), ReliabilityRow, out / "reliability.csv")


def statements(
    problem: PoolProblem, seed: int, strategy: Calibrated | None = None
) -> Iterator[StatementRow]:
    """Give all that is stated in a search; the strategy is `calibrated` as it comes."""
    asked = strategy or Calibrated(simulator=problem.simulator, seed=seed)
    goal, trials = problem.goal, list[PoolTrial]()
    cheapest = goal.space.costs[problem.good].min(initial=np.inf)
    while len(trials) < _MOST:
        advice = asked.advice(goal, trials)
        chosen = best(goal, trials)
        pool = advice.pool or (chosen.pool if chosen else None)
        cost = np.inf if pool is None else goal.space.cost(pool)
        optimal = bool(cost <= cheapest + 1e-9)
        settles = advice.pool is None
        yield StatementRow(
            model=problem.model,
            seed=seed,
            trial=len(trials) + 1,
            about=CHEAPEST if settles else FEASIBLE,
            pool=" ".join(map(str, pool or ())),
            stated=advice.settled if settles else advice.feasible,
            true=optimal if settles or pool is None else _feasible(problem, pool),
            optimal=optimal and (pool is None or _feasible(problem, pool)),
        )
        if advice.pool is None:
            return
        trials.append(problem.measure(advice.pool))


def _feasible(problem: PoolProblem, pool: Pool) -> bool:
    return bool(problem.good[problem.goal.space.place(pool)])


def reliability(rows: Iterable[StatementRow], bins: int = _BINS) -> list[ReliabilityRow]:
    """Give how often statements were true, in so many bins; empty ones are left out."""
    found = []
    for (model, about), group in sorted(grouped(list(rows), "model", "about").items()):
        place = np.minimum([int(bins * row.stated) for row in group], bins - 1)
        stated, true = (np.array([getattr(r, n) for r in group]) for n in ("stated", "true"))
        for b in np.unique(place).tolist():
            inside = place == b
            count, share = int(inside.sum()), float(true[inside].mean())
            low, high = wilson(share, count)
            found.append(
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
    return found


def wilson(share: float, count: int) -> tuple[float, float]:
    """Give the 95 % interval of a share of so many (Wilson, 1927)."""
    centre = share + _Z**2 / (2 * count)
    half = _Z * sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return (centre - half) / (1 + _Z**2 / count), (centre + half) / (1 + _Z**2 / count)


def tabled_problem(
    space: PoolSpace,
    shares: Mapping[Pool, float],  # in time, of every pool
    table: LatencyTable,
    load: TrialLoad,
    seed: int,
    *,
    error: float = 0.15,
) -> PoolProblem:
    """Give a problem whose truth is a published table.

    The strategy is given the latencies times a hidden factor for each type, log-normal with that
    deviation; InvalidInput if a pool or a type is missing.
    """
    pools = [tuple(pool) for pool in space.pools.tolist()]
    missing = [pool for pool in pools if pool not in shares]
    checks.require(not missing, "table", "must have every pool of the space", missing[:3])
    truth = np.array([shares[pool] for pool in pools])
    rng = _rng(seed, 0)
    wrong = scaled(table.of_kinds(space.types), _factors(rng, len(space.types), error))
    return _problem(table.model, space, truth, trial_draws(wrong, load, rng))


def simulated_problem(
    space: PoolSpace,
    table: LatencyTable,
    load: TrialLoad,
    seed: int,
    *,
    error: float = 0.15,
) -> PoolProblem:
    """Give the same problem where nothing but those factors is wrong; arrivals are Poisson.

    Each pool is tried with one of eight streams, none of which the strategy knows.
    """
    rng, known = _rng(seed, 0), table.of_kinds(space.types)
    wrong = scaled(known, _factors(rng, len(space.types), error))
    drawn = trial_draws(wrong, load, rng)
    truth = _simulated(space, trial_draws(known, load, _rng(seed, 1), streams=8))
    return _problem(f"{table.model} simulated", space, truth, drawn)


def drawn_problem(seed: int, *, error: float = 0.15) -> PoolProblem:
    """Give a problem of three drawn types, in which more is wrong than particles can say.

    Seconds grow with the size, at a speed and with a rest of its own for each type. The profile
    is wrong by a factor for each type and by more in every entry; arrivals are Poisson, bursty
    or whole milliseconds, and clocks may tick in them.
    """
    rng = _rng(seed, 2)
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
    wrong = scaled(true, _factors(rng, 3, error) * cells)
    drawn = trial_draws(wrong, load, rng)
    truth = _simulated(space, _other_arrivals(trial_draws(true, load, rng, streams=32), rate, rng))
    return _problem("drawn", space, truth, drawn)


def scaled(table: LatencyTable, factor: FloatArray) -> LatencyTable:
    """Give the table with latencies times factors, which broadcast to (B, K)."""
    return replace(table, mean_s=table.mean_s * factor, std_s=table.std_s * factor)


def _factors(rng: np.random.Generator, count: int, error: float) -> FloatArray:
    return np.exp(error * rng.standard_normal(count))


def _rng(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng([_STREAM, seed, purpose])


def _other_arrivals(drawn: TrialDraws, rate: float, rng: np.random.Generator) -> TrialDraws:
    """Give draws whose gaps are no gamma distribution's, whatever the variability."""
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


def _problem(model: str, space: PoolSpace, truth: FloatArray, drawn: TrialDraws) -> PoolProblem:
    goal = CheapestInTime(space=space)
    return PoolProblem(model=model, goal=goal, truth=truth, simulator=FirstComeTrials(draws=drawn))
