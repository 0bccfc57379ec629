"""How far from the optimum are scheduling policies, and how long do they take?

Runs policies on the same problems (`studies.scheduling.problems`) beside the integer program and
its bound. Every schedule is validated; a problem whose optimum was not proven in time stays in,
measured against the best bound.

The one rule: a row holds only what a user could compute again from the problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import Annotated

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circinus.deploy.methods import DEFAULT, PUBLISHED, method_where
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, ProcessorClock, SystemClock
from circinus.scheduler.compiled.feasibility import Compiled, benefits
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.prices import dual_prices
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.problem import (
    SCHEDULING_POLICIES,
    Objective,
    Problem,
    Schedule,
    spent_usd_per_hour,
    validate,
)
from circinus.scheduler.problem_form import schedule_to_dict
from circinus.scheduler.rolling.assessment import relaxed_usd_per_hour
from circinus.studies.report.charts import panels, svg
from circinus.studies.report.pages import grid, page, paragraph
from circinus.studies.report.tables import of_column, summarised, written
from circinus.studies.scheduling.problems import ProblemCase

ILP = "ilp"
_METHODS = (PUBLISHED.scheduling, DEFAULT.scheduling)  # which mean their forms for the objective
POLICIES = (*_METHODS, *(p for p in SCHEDULING_POLICIES if p not in (*_METHODS, ILP)), ILP)
"""In the order in which they run: those of the methods, the other baselines, the optimum."""
_UNWRITTEN = ("cpu_seconds",)
"""Of a row: the page has them."""
NEAREST_PERCENT = 0.001
"""Distances below it are drawn there, with a label at the axis."""
_SHORTEST_S = 1e-4
_APART = 1.5  # times a number of queries: those nearer have no label of their own
_RATIOS = (
    "Ratios are to the best bound: the optimum where it is proven, else what the integer "
    "program or the linear relaxation still allows. Unproven problems are counted."
)
_COLUMNS = (
    *("queries", "policy", "problems", "proven", "mean ratio", "worst ratio", "served"),
    *("seconds", "processor seconds"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is compared."""

    policies: tuple[str, ...] = POLICIES  # among `POLICIES`
    objective: Objective = Objective.GOODPUT  # of the machines there are, or cost of serving all
    time_limit_s: float = 60.0  # of the integer program, for each problem

    def __post_init__(self) -> None:
        for policy in self.policies:
            checks.among("policies", policy, POLICIES)
        checks.unique("policies", self.policies)
        checks.require(len(self.policies) > 0, "policies", "must name one at least", [])
        checks.positive("time_limit_s", self.time_limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """What measures the time that policies take."""

    wall: Clock = field(default_factory=SystemClock)  # the machine's time
    cpu: Clock = field(default_factory=ProcessorClock)  # the processor's


def run(
    problems: Sequence[ProblemCase],
    question: Question,
    out: Path,
    *,
    schedule_out: Path | None = None,
    stopwatch: Stopwatch | None = None,
    observer: Callable[[GapRow], None] = lambda row: None,
) -> tuple[GapRow, ...]:
    """Run the policies; write `ilp.csv`, `ilp.svg` and `ilp.html` into a folder.

    The time limits of `greedy` to `local_best` count processor seconds here, so that what they
    reach does not depend on what else the machine does.

    `observer` gets each row as soon as it is there, the file `schedule_out` what each policy
    chose, as JSON. A policy that gives an invalid schedule is an ArithmeticError.
    """
    stopwatch = Stopwatch() if stopwatch is None else stopwatch
    chosen: list[Mapping[str, object]] = []

    def gap_rows() -> Iterator[GapRow]:
        for case in problems:
            for row, schedule in _compare(case, question, stopwatch):
                about = {"case": case.name, "policy": row.policy, "objective": row.objective}
                chosen.append({**about, "seconds": row.seconds, **schedule_to_dict(schedule)})
                yield row

    path = out / "ilp.csv"
    rows = written(gap_rows(), GapRow, path, without=_UNWRITTEN, digits=None, observer=observer)
    lines, objective = summary(rows), question.objective.value
    drawn = svg(picture(lines, objective))
    (out / "ilp.svg").write_text(drawn, encoding="utf-8")
    title, about = f"Scheduling policies: {objective}", paragraph(f"{_about(rows)} {_RATIOS}")
    html = page(title, about, drawn, grid(_COLUMNS, map(cells, lines)))
    (out / "ilp.html").write_text(html, encoding="utf-8")
    if schedule_out is not None:
        schedule_out.write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")
    return tuple(rows)


def _compare(
    case: ProblemCase, question: Question, stopwatch: Stopwatch
) -> list[tuple[GapRow, Schedule]]:
    bound, proven = relaxed_bound(case.problem, question.objective), False
    results: list[tuple[GapRow, Schedule]] = []
    for name in question.policies:
        wall_s, cpu_s = stopwatch.wall.now(), stopwatch.cpu.now()
        if name == ILP:
            ilp = Ilp(objective=question.objective, time_limit_s=question.time_limit_s)
            solved = ilp.solve(case.problem)
            schedule, proven = solved.schedule, solved.proven
            if isfinite(solved.bound):
                limited = question.objective is Objective.GOODPUT
                bound = min(bound, solved.bound) if limited else max(bound, solved.bound)
        else:
            terms = Terms(objective=question.objective, clock=stopwatch.cpu)
            schedule = scheduling_policy(name, terms).schedule(case.problem)
        wall_s, cpu_s = stopwatch.wall.now() - wall_s, stopwatch.cpu.now() - cpu_s
        row = _row(case, question, name, schedule)
        results.append((replace(row, seconds=wall_s, cpu_seconds=cpu_s), schedule))
    return [(replace(row, bound=bound, proven=proven), schedule) for row, schedule in results]


def relaxed_bound(problem: Problem, objective: Objective) -> float:
    """Return the bound of the linear relaxation: goodput at most, or cost at least."""
    if objective is Objective.COST:
        return relaxed_usd_per_hour(problem)
    return dual_prices(Compiled.of(problem).arrays, precision=1e-6).bound


def _row(case: ProblemCase, question: Question, policy: str, schedule: Schedule) -> GapRow:
    wrong = validate(case.problem, schedule)
    if wrong:
        raise ArithmeticError(f"{policy} on {case.name}: {wrong[0]}")
    worth = benefits(case.problem.candidates)
    return GapRow(
        queries=len(case.problem.candidates),
        plans=case.plans,
        tiers=sum(not tier.dedicated for tier in case.problem.tiers),
        seed=case.seed,
        policy=policy,
        method=method_where(lambda method: method.scheduling == policy),
        objective=question.objective.value,
        served=len(schedule.assignments),
        goodput=sum(worth[query] for query in schedule.by_query),
        cost=spent_usd_per_hour(case.problem, schedule.assignments),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """What one policy made of one problem; a line of `ilp.csv`, but for `cpu_seconds`."""

    queries: int  # N
    plans: int  # of a query
    tiers: int  # shared ones
    seed: int | None  # of the problem; empty if it comes from a file
    policy: str
    method: str | None  # whose scheduling policy it is; empty: of none
    objective: str  # `goodput` or `cost`
    served: int  # queries
    goodput: float  # sum of the benefits of those (their weights, if all priorities are equal)
    cost: float  # dollars per hour of all machines that hold anything, as whole machines
    bound: float = nan  # of the integer program or its linear relaxation: nothing is better
    proven: bool = False  # whether the bound is the optimum
    seconds: float = nan  # the policy took, of the machine's time
    cpu_seconds: float = nan  # of the processor's, in this process: CBC runs in another

    @property
    def ratio(self) -> float:
        """Goodput over its bound, or cost over its; NaN for a cost that does not serve all."""
        if self.objective == Objective.GOODPUT:
            return self.goodput / self.bound if self.bound > 0 else 1.0
        if self.served < self.queries:
            return nan
        return self.cost / self.bound if self.bound > 0 else 1.0


def _worst_ratio(rows: Sequence[GapRow]) -> float:
    worst = min if rows[0].objective == Objective.GOODPUT else max
    return worst(row.ratio for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Rows of one policy at one size, put together."""

    policy: str
    queries: int  # N
    problems: Annotated[int, len]  # how many
    proven: Annotated[int, of_column(sum, "proven")]  # for how many the bound is the optimum
    # of the ratios to the bound; NaN if one has none
    mean_ratio: Annotated[float, of_column(fmean, "ratio")]
    worst_ratio: Annotated[float, _worst_ratio]  # lowest ratio of goodput, highest of cost
    served: Annotated[float, of_column(fmean, "served")]  # mean number of queries
    seconds: Annotated[float, of_column(fmean, "seconds")]  # mean, of the machine's time
    # mean, of the processor's, in the study's process
    cpu_seconds: Annotated[float, of_column(fmean, "cpu_seconds")]


def summary(rows: Sequence[GapRow]) -> list[Line]:
    """Return a line per size and policy, in the order of the rows."""
    return summarised(rows, Line, "queries", "policy")


def cells(line: Line) -> tuple[str, ...]:
    """Return a line as words: queries, policy, then as `Line`."""
    return (
        *(str(line.queries), line.policy, str(line.problems), str(line.proven)),
        *(f"{line.mean_ratio:.4f}", f"{line.worst_ratio:.4f}", f"{line.served:.1f}"),
        *(f"{line.seconds:.3f}", f"{line.cpu_seconds:.3f}"),
    )


def _about(rows: Sequence[GapRow]) -> str:
    """Return which problems were run, in a sentence."""
    if not rows:
        return "No problem was run."
    shape = f"up to {max(r.plans for r in rows)} plans per query on {rows[0].tiers} shared tiers"
    seeds = sorted({r.seed for r in rows if r.seed is not None})
    problems = len({(r.queries, r.seed) for r in rows})
    if not seeds:
        return f"A problem from a file: {rows[0].queries} queries, {shape}."
    drawn = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    return f"Problems drawn: {problems}, {drawn}, {shape}."


def picture(lines: Sequence[Line], objective: str) -> Figure:
    """Draw distance to the bound, and seconds, by the number of queries.

    Both panels are log-log. The good policies are within a percent of the bound, so their
    distance to it is drawn, not their ratio: on an axis of ratios they are one line. A band
    reaches from the mean to the worst problem.
    """
    figure, [[distance, seconds]] = panels(1, 2, width=5.5, height=3.6)
    distances = [
        (line, 100 * abs(1 - line.mean_ratio), 100 * abs(1 - line.worst_ratio)) for line in lines
    ]
    distance.set_title(f"{objective}: distance to the bound, %, mean to worst")
    _draw(distance, distances, NEAREST_PERCENT)
    seconds.set_title("mean seconds")
    _draw(seconds, [(line, line.seconds, line.seconds) for line in lines], _SHORTEST_S)
    return figure


def _draw(axes: Axes, figures: Sequence[tuple[Line, float, float]], least: float) -> None:
    """Draw mean and worst; below `least` they are drawn there, those that are none left out."""
    empty = any(line.queries == 0 for line, *_ in figures)  # a logarithm has no place for it
    axes.set(xscale="linear" if empty else "log", yscale="log", xlabel="queries")
    sizes: set[int] = set()
    for policy in dict.fromkeys(line.policy for line, *_ in figures):
        own = [
            (line.queries, max(mean, least), max(worst, least))
            for line, mean, worst in figures
            if line.policy == policy and isfinite(mean)
        ]
        if own:
            queries, means, worsts = map(list, zip(*own, strict=True))
            axes.plot(queries, means, "o-", label=policy)
            axes.fill_between(queries, means, worsts, alpha=0.15)
            sizes.update(queries)
    ticks: list[int] = []
    for size in sorted(sizes):
        if not ticks or size > _APART * ticks[-1]:
            ticks.append(size)
    axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda y, _: _label(y, least))


def _label(y: float, least: float) -> str:
    """Return the label of a tick; the one at `least` also stands for lower values."""
    if y < least * 0.99:
        return ""
    return f"≤ {y:g}" if y < least * 1.01 else f"{y:g}"
