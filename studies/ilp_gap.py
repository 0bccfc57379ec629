"""How far from the optimum are scheduling policies, and how long do they take?

Runs policies on the same problems, drawn (`scheduler.generator`) or given, beside the
integer program and its bound. Every schedule is validated; a problem whose optimum was not
proven in time stays in, measured against the best bound.

The one rule: a row says only what a user could compute again from the problem, which
`save_problems` keeps and the seed makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from pathlib import Path

from deploy.methods import DEFAULT, PUBLISHED, method_where
from pipelines import checks
from pipelines.infrastructure import Tier
from scheduler.compiled import Compiled, benefits
from scheduler.generator import Recipe, Weights, problem_of
from scheduler.ilp import Ilp, Objective
from scheduler.policies import Terms, scheduling_policy
from scheduler.prices import dual_prices
from scheduler.problem import Problem, Schedule, validate
from scheduler.problem_form import schedule_to_dict
from scheduler.rental import rented_usd_per_hour
from studies import ilp_gap_report
from studies.stopwatch import Reading, Stopwatch
from studies.tables import written

ILP = "ilp"
POLICIES = (PUBLISHED.scheduling, DEFAULT.scheduling, "fcfs", "local_best", ILP)
"""In the order in which they run: those of the methods, `greedy` and `priced`, which mean their
forms for the objective, and the baselines."""
_UNWRITTEN = ("cpu_seconds",)
"""Of a row: the page has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem to compare policies on.

    Attributes:
        name: For files: unique within a run.
        problem: The problem.
        plans: Of each query; of the query with most, where they differ.
        seed: It was drawn from; None: it was given.
    """

    name: str
    problem: Problem
    plans: int
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one policy made of one problem; a line of `ilp.csv`, but for `cpu_seconds`.

    Attributes:
        queries: N.
        plans: Of a query.
        tiers: Shared ones.
        seed: Of the problem; empty if it was given.
        policy: Name.
        method: Whose scheduling policy it is; empty: of none.
        objective: `goodput` or `cost`.
        served: Queries.
        goodput: Sum of the benefits of those (their weights, if all priorities are equal).
        cost: Dollars per hour of all machines that hold anything, as whole machines.
        bound: No schedule is better: the integer program's, or that of the linear relaxation.
        proven: Whether the bound is the optimum.
        seconds: The policy took, of the machine's time.
        cpu_seconds: Of the processor's, in this process: CBC runs in another.
    """

    queries: int
    plans: int
    tiers: int
    seed: int | None
    policy: str
    method: str | None
    objective: str
    served: int
    goodput: float
    cost: float
    bound: float
    proven: bool
    seconds: float
    cpu_seconds: float

    @property
    def ratio(self) -> float:
        """Goodput over its bound, or cost over its; NaN for a cost that does not serve all."""
        if self.objective == Objective.GOODPUT:
            return self.goodput / self.bound if self.bound > 0 else 1.0
        if self.served < self.queries:
            return nan
        return self.cost / self.bound if self.bound > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is compared.

    Attributes:
        policies: Among `POLICIES`.
        objective: Goodput of the machines there are, or cost of serving all.
        time_limit_s: Of the integer program, for each problem.
    """

    policies: tuple[str, ...] = POLICIES
    objective: Objective = Objective.GOODPUT
    time_limit_s: float = 60.0

    def __post_init__(self) -> None:
        rule = f"must be among {', '.join(POLICIES)}"
        for policy in self.policies:
            checks.require(policy in POLICIES, "policies", rule, policy)
        checks.unique("policies", self.policies)
        checks.require(len(self.policies) > 0, "policies", "must name one at least", [])
        checks.positive("time_limit_s", self.time_limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Which problems are drawn.

    Attributes:
        queries: Sizes; for each of them one problem per seed.
        plans: Of a query.
        tiers: With their machines.
        seeds: How many.
        first_seed: The first of them, `>= 0`.
        largest: Share of the largest item.
        weights: How queries differ in weight.
        load: If given, machines are set so that the least that all queries could ask for is this
            many times what there is, spread over the tiers evenly, a machine each at least.
    """

    queries: tuple[int, ...]
    plans: int
    tiers: tuple[Tier, ...]
    seeds: int = 1
    first_seed: int = 0
    largest: float = 1.0
    weights: Weights = Weights.UNLIKE
    load: float | None = None

    def __post_init__(self) -> None:
        for queries in self.queries:
            checks.require(queries >= 1, "queries", "must be >= 1", queries)
        checks.positive("plans", self.plans)
        checks.positive("seeds", self.seeds)
        checks.non_negative("first_seed", self.first_seed)
        if self.load is not None:
            checks.positive("load", self.load)


def cases(draw: Draw, objective: Objective) -> tuple[Case, ...]:
    """Give the drawn problems, the small ones first.

    For `COST` each shared tier gets as many machines as could ever be needed.
    """
    found = []
    for queries in draw.queries:
        for seed in range(draw.first_seed, draw.first_seed + draw.seeds):
            recipe = Recipe(
                queries=queries,
                plans=draw.plans,
                tiers=draw.tiers,
                largest=draw.largest,
                weights=draw.weights,
            )
            problem = problem_of(recipe, seed)
            if objective is Objective.COST:
                problem = with_machines(problem, 2 * queries)
            elif draw.load is not None:
                problem = with_machines(problem, _machines(problem, draw.load))
            name = f"q{queries}-p{draw.plans}-s{seed}"
            found.append(Case(name=name, problem=problem, plans=draw.plans, seed=seed))
    return tuple(found)


def given(problem: Problem, name: str) -> Case:
    """Give the case of a user's own problem."""
    plans = max((len(c.plans) for c in problem.candidates), default=0)
    return Case(name=name, problem=problem, plans=plans, seed=None)


def with_machines(problem: Problem, machines: int) -> Problem:
    """Give the problem with that many machines on each shared tier."""
    tiers = tuple(t if t.dedicated else replace(t, machines=machines) for t in problem.tiers)
    return replace(problem, tiers=tiers)


def _machines(problem: Problem, load: float) -> int:
    compiled = Compiled.of(with_machines(problem, 1))
    least, _ = compiled.arrays.least(compiled.arrays.usage.sum(axis=1))
    return max(1, round(float(least.sum()) / load / max(1, len(compiled.tiers))))


def run(
    problems: Sequence[Case],
    question: Question,
    out: Path,
    *,
    schedule_out: Path | None = None,
    stopwatch: Stopwatch | None = None,
    observer: Callable[[Row], None] = lambda row: None,
) -> tuple[Row, ...]:
    """Run the policies; write `ilp.csv`, `ilp.svg` and `ilp.html` into a folder.

    The time limits of `greedy` to `local_best` count processor seconds here, so that what they
    reach does not depend on what else the machine does.

    Args:
        problems: To run on.
        question: What is compared.
        out: Folder; made if needed. What is there of an earlier run is replaced.
        schedule_out: File that gets what each policy chose, as JSON.
        stopwatch: Of the seconds told; None: the system's.
        observer: Gets each row as soon as it is there.

    Raises:
        ArithmeticError: If a policy gave an invalid schedule.
    """
    stopwatch = Stopwatch() if stopwatch is None else stopwatch
    chosen: list[Mapping[str, object]] = []

    def found() -> Iterator[Row]:
        for case in problems:
            for row, schedule in _compare(case, question, stopwatch):
                observer(row)
                about = {"case": case.name, "policy": row.policy, "objective": row.objective}
                chosen.append({**about, "seconds": row.seconds, **schedule_to_dict(schedule)})
                yield row

    rows = written(found(), Row, out / "ilp.csv", without=_UNWRITTEN, digits=None)
    ilp_gap_report.write(rows, out)
    if schedule_out is not None:
        schedule_out.write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")
    return tuple(rows)


def _compare(case: Case, question: Question, stopwatch: Stopwatch) -> list[tuple[Row, Schedule]]:
    bound, proven = relaxed_bound(case.problem, question.objective), False
    found: list[tuple[Row, Schedule]] = []
    for name in question.policies:
        started = stopwatch.read()
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
        took = stopwatch.read().since(started)
        found.append((_row(case, question, name, schedule, took), schedule))
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


def _row(case: Case, question: Question, policy: str, schedule: Schedule, took: Reading) -> Row:
    wrong = validate(case.problem, schedule)
    if wrong:
        raise ArithmeticError(f"{policy} on {case.name}: {wrong[0]}")
    worth = benefits(case.problem.candidates)
    return Row(
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
        seconds=took.wall_s,
        cpu_seconds=took.cpu_s,
    )
