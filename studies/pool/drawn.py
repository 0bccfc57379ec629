"""Problems that are drawn: what `calibrated` says is tried on many tables, not on a few.

Its constants were chosen on some of them, and all that docs/studies/pool.md holds it to was stated
on others:

    from circinus.studies.pool.drawn import run
    run(range(200, 280), Path("out"))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.pool.calibrated import Calibrated
from circinus.scheduler.pool.pools import PoolSpace
from circinus.scheduler.pool.search import search
from circinus.scheduler.simulation.draws import IN_TIME
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.trying import (
    FirstComeTrials,
    TrialDraws,
    TrialLoad,
    trial_draws,
)
from circinus.scheduler.simulation.workload import bursty_gaps, poisson_gaps, ribbon_batches
from circinus.studies.pool.calibration import (
    ReliabilityRow,
    StatementRow,
    Stating,
    factors,
    hidden,
    reliability,
    scaled,
    statements,
)
from circinus.studies.pool.lookups import PoolLookup
from circinus.studies.report.tables import written

_MOST = 60  # trials of a search
_CELL_ERROR = 0.03  # of single entries of a drawn profile: no factor for a type explains them


def run(seeds: Sequence[int], out: Path) -> tuple[list[StatementRow], list[ReliabilityRow]]:
    """Return what is stated on the problems of seeds, and how reliable it is; write both."""
    said = written(_stated(seeds), StatementRow, out / "statements.csv")
    return said, written(reliability(said), ReliabilityRow, out / "reliability.csv")


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

    More is wrong than particles can say. Seconds grow with the size, at a speed and with a rest
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
