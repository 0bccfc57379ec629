"""How far from the optimum are scheduling policies, and how long do they take?

Runs policies on the same problems (`studies.scheduling.problems`) beside the integer program and
its bound. Every schedule is validated; a problem whose optimum was not proven in time stays in,
measured against the best bound.

The one rule: a row says only what a user could compute again from the problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from pathlib import Path

from circinus.deploy.methods import DEFAULT, PUBLISHED, method_where
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, ProcessorClock, SystemClock
from circinus.scheduler.compiled.feasibility import Compiled, benefits
from circinus.scheduler.ilp.model import Objective
from circinus.scheduler.ilp.policy import Ilp
from circinus.scheduler.policies.prices import dual_prices
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.policies.rental import rented_usd_per_hour
from circinus.scheduler.problem import Problem, Schedule, validate
from circinus.scheduler.problem_form import schedule_to_dict
from circinus.studies.report.tables import written
from circinus.studies.scheduling import gap_report
from circinus.studies.scheduling.gap_report import GapRow
from circinus.studies.scheduling.problems import ProblemCase

ILP = "ilp"
POLICIES = (PUBLISHED.scheduling, DEFAULT.scheduling, "fcfs", "local_best", ILP)
"""In the order in which they run: those of the methods, `greedy` and `priced`, which mean their
forms for the objective, and the baselines."""
_UNWRITTEN = ("cpu_seconds",)
"""Of a row: the page has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is compared."""

    policies: tuple[str, ...] = POLICIES  # among `POLICIES`
    # goodput of the machines there are, or cost of serving all
    objective: Objective = Objective.GOODPUT
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

    The folder `out` is made if needed; what is there of an earlier run is replaced. `observer`
    gets each row as soon as it is there, the file `schedule_out` what each policy chose, as JSON.

    Raises:
        ArithmeticError: If a policy gave an invalid schedule.
    """
    stopwatch = Stopwatch() if stopwatch is None else stopwatch
    chosen: list[Mapping[str, object]] = []

    def found() -> Iterator[GapRow]:
        for case in problems:
            for row, schedule in _compare(case, question, stopwatch):
                observer(row)
                about = {"case": case.name, "policy": row.policy, "objective": row.objective}
                chosen.append({**about, "seconds": row.seconds, **schedule_to_dict(schedule)})
                yield row

    rows = written(found(), GapRow, out / "ilp.csv", without=_UNWRITTEN, digits=None)
    gap_report.write(rows, out)
    if schedule_out is not None:
        schedule_out.write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")
    return tuple(rows)


def _compare(
    case: ProblemCase, question: Question, stopwatch: Stopwatch
) -> list[tuple[GapRow, Schedule]]:
    bound, proven = relaxed_bound(case.problem, question.objective), False
    found: list[tuple[GapRow, Schedule]] = []
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
        found.append((replace(row, seconds=wall_s, cpu_seconds=cpu_s), schedule))
    return [(replace(row, bound=bound, proven=proven), schedule) for row, schedule in found]


def relaxed_bound(problem: Problem, objective: Objective) -> float:
    """Give the bound of the linear relaxation: goodput at most, or cost at least."""
    compiled = Compiled.of(problem)
    if objective is Objective.GOODPUT:
        return dual_prices(compiled.arrays, precision=1e-6).bound
    if len(compiled.queries) < len(problem.candidates):
        return inf
    price = [tier.price_usd_per_hour for tier in compiled.tiers]
    least, _ = compiled.arrays.least(compiled.arrays.usage @ price)
    return float(least.sum())


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
        cost=rented_usd_per_hour(case.problem.tiers, schedule),
        bound=nan,
        proven=False,
        seconds=nan,
        cpu_seconds=nan,
    )
