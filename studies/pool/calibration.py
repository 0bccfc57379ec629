"""How sure `calibrated` is of what it proposes, against how often it is right.

It is told a latency profile that is wrong by a hidden factor for each type; truth is a lookup.
Such a search goes on until it settles: to stop with the optimum would leave out what is stated
of pools after it, and keep the statement that was right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np

from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.pool.calibrated import Advice, Calibrated
from circinus.scheduler.pool.pools import Pool
from circinus.scheduler.pool.search import PoolGoal, Trials, best
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.trying import FirstComeTrials, trial_draws
from circinus.studies.pool.lookups import PoolLookup
from circinus.studies.report.tables import grouped

FEASIBLE, CHEAPEST = "feasible", "cheapest"
"""What is stated: the proposed pool is feasible; the pool settled on is the cheapest that is."""

ERROR = 0.15
"""Deviation of the logarithms of the hidden factors."""

_BINS = 5
_Z = 1.96  # of the intervals: 95 %
_STREAM = 2021  # of what is hidden; strategies have their seeds


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


@dataclass(slots=True, kw_only=True)
class Stating:
    """A `PoolStrategy`: `calibrated`, which keeps what it said."""

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
    lookup: PoolLookup, seed: int, trials: Trials, said: Sequence[Advice]
) -> Iterator[StatementRow]:
    """Yield all that was stated in a search; each piece of advice is of the trials before it."""
    goal = lookup.goal()
    for count, advice in enumerate(said):
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
