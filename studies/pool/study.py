"""How many pools does a strategy try before it tries the cheapest that is in time?

Every pool of a lookup was measured, so that the optimum is known: a run ends when it is tried.
Rows also count the violating ones among the tried, which would have harmed requests, and the cost
of the trials as a share of trying every pool; a trial that does not end early takes equally long
whatever is tried.

`LoadChange` asks whether trials at an earlier load help at a new one (Ribbon, section 5.5, figure
16). Both loads are simulated on one stream of requests, first come, first served, the types in
order: the published tables are of one load each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from matplotlib.figure import Figure

from circinus.pipelines import checks
from circinus.scheduler.pool.ribbon import Ribbon, carried_over
from circinus.scheduler.pool.search import PoolTrial, Trials, search, tried
from circinus.studies.pool.calibration import (
    ReliabilityRow,
    StatementRow,
    Stating,
    reliability,
    statements,
)
from circinus.studies.pool.lookups import PoolLookup
from circinus.studies.pool.methods import CALIBRATED, POOL_METHODS, WITHOUT_LATENCIES
from circinus.studies.report import pages
from circinus.studies.report.charts import COLOURS, Bar, bars, svg
from circinus.studies.report.tables import (
    deviation,
    grouped,
    mean,
    median,
    of_column,
    summarised,
    written,
)

Stated = Callable[[Sequence[StatementRow]], None]
"""Receives the statements of a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """A line of `pool.csv`: a search."""

    model: str  # name of the lookup
    strategy: str  # its name
    seed: int  # of the strategy
    evaluations_to_optimum: int | None  # pools tried up to the optimum; empty: it was not tried
    violating_evaluations: int  # those of them with too few in time
    # their prices over those of all pools; of a trial that ended early the part
    exploration_cost: float
    found: bool  # whether the optimum was tried


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCell:
    """The searches of a model by a strategy: means, with deviations over seeds where stated."""

    model: str
    strategy: str
    runs: Annotated[int, len]
    not_found: Annotated[float, lambda rows: 1.0 - sum(row.found for row in rows) / len(rows)]
    # of the runs that found it, as the two below
    evaluations: Annotated[float | None, of_column(mean, "evaluations_to_optimum")]
    deviation: Annotated[float | None, of_column(deviation, "evaluations_to_optimum")]
    median: Annotated[float | None, of_column(median, "evaluations_to_optimum")]
    # evaluations, of all runs, as the one below
    violating: Annotated[float, of_column(mean, "violating_evaluations")]
    cost: Annotated[float, of_column(mean, "exploration_cost")]  # of exploration, of exhaustive


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStudy:
    """What to compare."""

    lookups: tuple[PoolLookup, ...]
    strategies: tuple[str, ...] = WITHOUT_LATENCIES  # names
    seeds: int = 40  # how many, `>= 1`
    first_seed: int = 0  # the others follow, `>= 0`
    most: int | None = None  # evaluations of a search, `>= 1`; None: as many as there are pools
    # of all goals, `>= 0`, see `CheapestInTime`; None: as each method prunes
    prunes_below: float | None = None

    def __post_init__(self) -> None:
        checks.require(len(self.lookups) > 0, "lookups", "must not be empty", self.lookups)
        checks.unique("lookups", [lookup.model for lookup in self.lookups])
        checks.require(len(self.strategies) > 0, "strategies", "must not be empty", ())
        checks.unique("strategies", self.strategies)
        for name in self.strategies:
            checks.among("strategies", name, POOL_METHODS)
        if CALIBRATED in self.strategies:
            for lookup in self.lookups:
                lookup.profiled()
        checks.at_least("seeds", self.seeds, 1)
        checks.at_least("first_seed", self.first_seed, 0)
        checks.at_least("most", self.most, 1)
        checks.non_negative("prunes_below", self.prunes_below)


def run(
    study: PoolStudy, out: Path, observer: Callable[[PoolRow], None] = lambda row: None
) -> list[PoolRow]:
    """Return all rows; write `pool.csv`, as they come, and `pool.html`.

    Of what `calibrated` stated, if it took part, `statements.csv` and `reliability.csv`.
    """
    stated: list[StatementRow] = []
    rows = written(results(study, stated.extend), PoolRow, out / "pool.csv", observer=observer)
    if stated:
        written(stated, StatementRow, out / "statements.csv")
        written(reliability(stated), ReliabilityRow, out / "reliability.csv")
    (out / "pool.html").write_text(page(study, rows), encoding="utf-8")
    return rows


def results(study: PoolStudy, stated: Stated = lambda rows: None) -> Iterator[PoolRow]:
    """Yield a row for each model, strategy and seed; report the statements."""
    for lookup in study.lookups:
        for name in study.strategies:
            for seed in range(study.first_seed, study.first_seed + study.seeds):
                yield searched(study, lookup, name, seed, stated)


def searched(
    study: PoolStudy,
    lookup: PoolLookup,
    name: str,
    seed: int,
    stated: Stated = lambda rows: None,
) -> PoolRow:
    """Return how a strategy fares up to the optimum; report its statements until it settles."""
    method, threshold = POOL_METHODS[name], study.prunes_below
    goal = method.goal(lookup) if threshold is None else lookup.goal(threshold)
    strategy = method.made(lookup, seed)
    going = tried(goal, strategy, lookup.measure, study.most or len(lookup.space.pools))
    trials: list[PoolTrial] = []
    reached = False
    for trial in going:
        trials.append(trial)
        if reached := lookup.is_optimum(trial.pool):
            break
    if isinstance(strategy, Stating):
        stated(list(statements(lookup, seed, [*trials, *going], strategy.said)))
    paid = sum(lookup.paid(trial.pool) for trial in trials)
    return PoolRow(
        model=lookup.model,
        strategy=name,
        seed=seed,
        evaluations_to_optimum=len(trials) if reached else None,
        violating_evaluations=sum(not goal.feasible(trial) for trial in trials),
        exploration_cost=paid / float(lookup.space.costs.sum()),
        found=reached,
    )


def summary(rows: Sequence[PoolRow]) -> list[PoolCell]:
    """Return a cell per model and strategy, in order."""
    return summarised(rows, PoolCell, "model", "strategy")


def optimum_line(lookup: PoolLookup) -> str:
    """Return the optimum of a lookup and what it saves, in words."""
    space, alone = lookup.space, lookup.homogeneous
    pool = f"{lookup.optimum} of {', '.join(space.types)}"
    sentence = f"{lookup.model}: of {len(space.pools)} pools {pool} is the cheapest in time"
    sentence += f", {space.cost(lookup.optimum):.4g} USD/h"
    if alone is None or lookup.saving is None:
        return f"{sentence}; no pool of one type is in time."
    return (
        f"{sentence}; the best of one type, {alone}, costs {space.cost(alone):.4g} USD/h: "
        f"{lookup.saving:.1%} saved."
    )


def page(study: PoolStudy, rows: Sequence[PoolRow]) -> str:
    """Return the report as one HTML document with its pictures inside."""
    about = (
        f"{study.seeds} seeds from {study.first_seed}. Evaluations: pools tried up to the "
        "optimum, mean and standard deviation over the runs that tried it. Not found: runs that "
        "pruned the optimum, or ended before. Cost: prices of the pools tried, of those of all."
    )
    lines = {lookup.model: optimum_line(lookup) for lookup in study.lookups}
    sections = [
        pages.heading(model) + pages.paragraph(lines[model]) + svg(picture(cells)) + _table(cells)
        for (model,), cells in grouped(summary(rows), "model").items()
    ]
    return pages.page("Choosing pools", pages.paragraph(about), *sections)


def picture(cells: Sequence[PoolCell]) -> Figure:
    """Draw a model: a bar per strategy, a whisker of one deviation to either side."""
    drawn = [
        Bar(
            name=cell.strategy,
            value=cell.evaluations or 0.0,
            error=cell.deviation or 0.0,
            note="-" if cell.evaluations is None else f"{cell.evaluations:.1f}",
            colour=COLOURS[0] if cell.strategy.startswith("ribbon") else COLOURS[-1],
        )
        for cell in cells
    ]
    return bars(f"{cells[0].model}: evaluations to the optimum", drawn)


def _table(cells: Sequence[PoolCell]) -> str:
    head = ("strategy", "evaluations", "sd", "median", "violating", "cost", "not found")
    return pages.grid(head, [_figures(cell) for cell in cells])


def _figures(cell: PoolCell) -> tuple[str, ...]:
    counts = (cell.evaluations, cell.deviation, cell.median)
    cells = ("-" if value is None else f"{value:.1f}" for value in counts)
    violating, cost = f"{cell.violating:.1f}", f"{cell.cost:.1%}"
    return (cell.strategy, *cells, violating, cost, f"{cell.not_found:.0%}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChangeRow:
    """A line of `load-change.csv`: Ribbon's evaluations to the optimum; None: it was pruned."""

    seed: int
    earlier: int | None  # at the earlier load
    scratch: int | None  # at the new one, without what is known; with the settled pool again
    reused: int | None  # with it, the settled pool's new trial among them
    violating_scratch: int  # of the evaluations up to there
    violating_reused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChange:
    """Two loads on the pools of one space."""

    earlier: PoolLookup
    new: PoolLookup  # with another optimum, which is not that of the earlier one
    prunes_below: float | None = 0.01

    def rows(self, seeds: Sequence[int]) -> Iterator[LoadChangeRow]:
        """Yield a row for each seed."""
        for seed in seeds:
            goal = self.earlier.goal(self.prunes_below)
            known = self._until_optimum(self.earlier, seed, ())
            settled = self.earlier.optimum
            again = self.new.measure(settled)
            reused = self._until_optimum(
                self.new, seed + 1, carried_over(self.new.goal(self.prunes_below), known, again)
            )
            scratch = self._until_optimum(self.new, seed + 1, (again,))
            yield LoadChangeRow(
                seed=seed,
                earlier=_count(self.earlier, known),
                scratch=_count(self.new, [again, *scratch]),
                reused=_count(self.new, [again, *reused]),
                violating_scratch=1 + sum(not goal.feasible(trial) for trial in scratch),
                violating_reused=1 + sum(not goal.feasible(trial) for trial in reused),
            )

    def _until_optimum(self, lookup: PoolLookup, seed: int, known: Trials) -> Trials:
        most = len(lookup.space.pools)
        trials = search(
            lookup.goal(self.prunes_below), Ribbon(seed=seed), lookup.measure, most, known
        )
        count = _count(lookup, trials)
        return trials if count is None else trials[:count]


def _count(lookup: PoolLookup, trials: Trials) -> int | None:
    pools = [trial.pool for trial in trials]
    return pools.index(lookup.optimum) + 1 if lookup.optimum in pools else None
