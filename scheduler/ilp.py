"""The integer linear programs of Circinus, appendix B: the yardstick of the other policies.

Two objectives, each with one shared tier or several: the four forms of the appendix. On a
dedicated tier nobody competes and nothing is rented, so those items are left out.

Sets
    i in Q          queries
    j in C_i        plans of query i that fit the machines at all
    m               shared tiers
    k = 1 .. L_m    machines of tier m (unlimited: the most that may be rented)
    s in S_m        sizes: the different shares that items ask of tier m
    d_ijms          items of size s that plan j of query i has on tier m

Variables
    x_ij in {0, 1}          query i is served with plan j; h_i = sum_j x_ij is admission
    n_mks in 0..floor(1/s)  items of size s on machine k of tier m
    z_mk in {0, 1}          machine k of tier m is rented (limited: 1)

Objective
    limited     maximise sum_i w_i h_i                  (eqs. 11 and 16)
    unlimited   minimise sum_m G_m sum_k z_mk           (eqs. 1 and 6)
                       + sum_ij c_ij x_ij               (ours: c_ij dollars of calls)

Constraints
    one plan        sum_j x_ij <= 1; unlimited: = 1     (3, 8, 13, 18)
    placed          sum_k n_mks = sum_ij d_ijms x_ij    for each m, s  (4, 9, 14, 19)
    capacity        sum_s s n_mks <= z_mk               for each m, k  (2, 7, 12, 17)
    quota           sum over a tenant's i, j, s of s d_ijms x_ij <= its part of L_m  (ours)

Linearisation and symmetry. The appendix marks which machine k holds plan j of query i by a
binary y_ijmk and multiplies: h_i x_ij y_ijmk. (Its eq. 4 asks for a machine for every plan,
chosen or not; harmless only because of the product.) Items of one size are
interchangeable, so it is enough to count them: n_mks = sum_ij x_ij y_ijmk d_ijms is the
product, already summed, and swapping equal items is no other solution. Machines are
interchangeable too; one of two ways removes that:

    ordered     loads fall: sum_s s n_mks >= sum_s s n_m,k+1,s
    flow        where all sizes are multiples of a grid of at most `FINEST_GRID` steps, the
                n and z of a tier are replaced by a flow (Valerio de Carvalho 1999): nodes
                are loads 0..1, an arc (a, a + s) is an item of size s put on top of load a,
                sizes fall along a path, and a path is a machine. What flows out of 0 is the
                number of machines in use; out of any other node flows at most what flows
                in. The relaxation is far tighter, and machines have no names at all.

Every variable has bounds.

What runs stays with its plan on its machines, unless `Ilp.moves`: it is no variable then, its
machines are that much smaller (a path starts at that load), and the rest is optimal given that.

A tier of unlike types pays each of z machines by its price, the cheapest first: y_mg machines of
price g, sum_g y_mg = sum_k z_mk. Where machines do not suffice for all, or would cost more than
the problem's limit, the policy serves as much as they do: the limited form, with one more
constraint, that rent and calls stay within the limit.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum
from math import gcd, inf, isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np
import pulp

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.compiled.feasibility import Compiled
from circinus.scheduler.compiled.placement import Items, Placed, Placement
from circinus.scheduler.ilp_machines import Flow, Machines, Ordered
from circinus.scheduler.problem import (
    CENT,
    PARTS,
    Objective,
    Problem,
    Schedule,
    quota_parts,
    spent_usd_per_hour,
)

FINEST_GRID = 100
"""Steps of a machine: the graph of a flow grows with it, times the number of sizes."""


class Symmetry(StrEnum):
    """How the symmetry of equal machines is broken; see the module."""

    ORDERED = "ordered"
    FLOW = "flow"


class Model:
    """The program of those of a problem who are not placed, and the way back from its solution."""

    def __init__(
        self,
        compiled: Compiled,
        staying: Placement[int],  # of those who stay where they are
        objective: Objective,
        symmetry: Symmetry | None,
    ) -> None:
        self._compiled = compiled
        self._staying = staying
        limited = objective is Objective.GOODPUT
        sense = pulp.LpMaximize if limited else pulp.LpMinimize
        self.program = pulp.LpProblem("schedule", sense)
        arrays = compiled.arrays
        self._owner: list[int] = arrays.owner.tolist()
        plans = [p for p, q in enumerate(self._owner) if q not in staying.at]
        self._items = {p: arrays.items(p) for p in plans}
        self._x = {p: self.program.add_variable(f"x_{p}", cat="Binary") for p in plans}
        self._add_choice(limited)
        self._add_quotas()
        self._machines: list[Machines] = []
        self._tiers = [self._add_tier(m, symmetry) for m in range(len(compiled.tiers))]
        # Solvers take numbers above 1e20 for infinite: benefits are in units of the largest.
        benefit = [float(arrays.benefit[self._owner[p]]) for p in plans] if limited else []
        self._scale = max(benefit, default=1.0)
        self._add_objective(limited)
        # What those who stay are worth, or their machines and calls cost.
        self._fixed = self._fixed_worth(limited)

    def _add_choice(self, limited: bool) -> None:
        of_query: dict[int, list[pulp.LpVariable]] = defaultdict(list)
        for p, x in self._x.items():
            of_query[self._owner[p]].append(x)
        for plans in of_query.values():
            served = pulp.lpSum(plans)
            self.program += served <= 1 if limited else served == 1

    def _add_quotas(self) -> None:
        compiled, at = self._compiled, self._staying.at

        def parts(items: Items, m: int) -> int:
            return sum(parts for t, parts in items if t == m)

        for tenant in compiled.problem.quotas:
            its = {q for q, c in enumerate(compiled.queries) if c.tenant == tenant}
            for m, tier in enumerate(compiled.tiers):
                held = [
                    (x, parts(self._items[p], m))
                    for p, x in self._x.items()
                    if self._owner[p] in its
                ]
                most = quota_parts(compiled.problem, tenant, tier)
                most -= sum(parts(at[q].items, m) for q in its & at.keys())
                self.program += pulp.LpAffineExpression(held) <= most

    def _add_objective(self, limited: bool) -> None:
        if not limited:
            self.program.setObjective(self._money())
            return
        most = self._compiled.problem.most_usd_per_hour
        if isfinite(most):
            self.program += self._money() <= most - self._fixed_worth(limited=False)
        arrays = self._compiled.arrays
        self.program.setObjective(self._chosen(arrays.benefit[arrays.owner] / self._scale))

    def _chosen(self, worth: FloatArray) -> pulp.LpAffineExpression:
        return pulp.LpAffineExpression([(x, float(worth[p])) for p, x in self._x.items()])

    def _money(self) -> pulp.LpAffineExpression:
        """Return what machines that are opened and calls of newcomers cost."""
        called = self._chosen(
            self._compiled.arrays.calls_usd_per_hour
        )  # deviates: calls-in-the-cost
        return pulp.lpSum(self._rent(m) for m in range(len(self._tiers))) + called

    def _rent(self, m: int) -> pulp.LpAffineExpression:
        tier, machines = self._compiled.tiers[m], self._machines[m]
        there = zip(machines.numbers, machines.used, strict=True)
        count = Counter(tier.price_of(k) for k, parts in there if not parts)
        prices, rented = sorted(count), self._tiers[m].rented
        if len(prices) <= 1:
            return (prices[0] if prices else 0.0) * rented
        of_price = [
            self.program.add_variable(f"y_{m}_{g}", 0, count[price], cat="Integer")
            for g, price in enumerate(prices)
        ]
        self.program += pulp.lpSum(of_price) == rented
        return pulp.LpAffineExpression(list(zip(of_price, prices, strict=True)))

    def _fixed_worth(self, limited: bool) -> float:
        arrays, at = self._compiled.arrays, self._staying.at
        if limited:
            return float(sum(arrays.benefit[list(at)].tolist())) if at else 0.0
        tiers = zip(self._compiled.tiers, self._staying.on, strict=True)
        rent = sum(t.price_of(k) for t, on in tiers for k, there in enumerate(on) if there)
        return float(rent + sum(arrays.calls_usd_per_hour[p.plan] for p in at.values()))

    def _add_tier(self, m: int, symmetry: Symmetry | None) -> Ordered | Flow:
        count: dict[int, Counter[int]] = defaultdict(Counter)  # size -> plan -> items
        for p, items in self._items.items():
            for tier, parts in items:
                if tier == m:
                    count[parts][p] += 1
        placed = {  # deviates: counted-items
            size: pulp.LpAffineExpression([(self._x[p], n) for p, n in sorted(plans.items())])
            for size, plans in sorted(count.items(), reverse=True)
        }
        there = self._compiled.tiers[m].machines
        machines = Machines.of(self._staying.free[m], there, self._most_items(m))
        self._machines.append(machines)
        if symmetry is None:
            fine = PARTS // gcd(PARTS, *count, *machines.used) <= FINEST_GRID
            symmetry = Symmetry.FLOW if fine else Symmetry.ORDERED
        form = Flow if symmetry is Symmetry.FLOW else Ordered
        return form(self.program, m, machines, placed)

    def _most_items(self, m: int) -> int:
        """Return the most items of all queries on a tier: more machines stay empty."""
        most: Counter[int] = Counter()
        for p, items in self._items.items():
            query = self._owner[p]
            most[query] = max(most[query], sum(tier == m for tier, _ in items))
        return most.total()

    def place(self, placement: Placement[int]) -> None:
        """Put queries where the solution puts them, beside those who stay."""
        slots = [tier.machines_of_sizes() for tier in self._tiers]
        for p, x in self._x.items():
            if (x.value() or 0.0) > 0.5:
                machines = tuple(slots[m][parts].pop() for m, parts in self._items[p])
                placement.occupy(self._owner[p], Placed(p, self._items[p], machines))

    def worth(self, value: float) -> float:
        """Return a value of the program's objective as goodput or dollars per hour of all."""
        return self._fixed + value * self._scale


class Solver(StrEnum):
    """Solvers of integer programs that PuLP can call."""

    HIGHS = "HiGHS"
    CBC = "PULP_CBC_CMD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """An answer and what is proven of it."""

    # valid; under `COST` no newcomer is served without a schedule that serves all
    schedule: Schedule
    # its goodput (sum of benefits), or dollars per hour of rented machines and of calls; infinite
    # without a schedule that serves all
    objective: float
    bound: float  # no schedule is better than this, with what stays where it is
    proven: bool  # whether the schedule is optimal, within the gap asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Ilp:
    """A `SchedulingPolicy` that is optimal, given time."""

    objective: Objective = Objective.GOODPUT  # what is sought
    solver: Solver | None = None  # None: the first one that is installed, HiGHS before CBC
    # of solvers, for one schedule; then the best one so far is the result
    time_limit_s: float = 60.0
    gap: float = 1e-6  # relative gap at which the solver may stop
    symmetry: Symmetry | None = None  # None: a flow where the grid allows, tier by tier
    # deviates: ilp-does-not-move
    moves: bool = False  # whether what runs may be moved, or stopped for others
    small_steps: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.positive("time_limit_s", self.time_limit_s)
        checks.non_negative("gap", self.gap)

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        if self.objective is Objective.GOODPUT:
            return self.solve(problem).schedule
        half = replace(self, time_limit_s=self.time_limit_s / 2)  # there may be two programs
        solved = half.solve(problem)
        if solved.objective == inf:
            return replace(half, objective=Objective.GOODPUT).solve(problem).schedule
        return solved.schedule

    def solve(self, problem: Problem) -> Solved:
        """Return the best schedule found, and the bound, which no limit of dollars changes.

        InvalidInput if no solver is installed, or the one asked for is not.
        """
        solver = self.solver or installed_solvers()[0]
        compiled = Compiled.of(problem)
        placement = compiled.placement() if self.moves else staying(compiled)
        everybody = len(compiled.queries) == len(problem.candidates)
        if self.objective is Objective.COST and not everybody:
            return _nothing(compiled, inf, placement)
        model = Model(compiled, placement, self.objective, self.symmetry)
        call = _run_highs if solver is Solver.HIGHS else _run_cbc  # deviates: integer-solver
        bound, proven = call(model.program, self.time_limit_s, self.gap)
        solutions = (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
        solved = model.program.sol_status in solutions
        bound = model.worth(bound)
        dear = (
            self.objective is Objective.COST
            and solved
            and model.worth(model.program.objective.value() or 0.0)
            > problem.most_usd_per_hour * (1 + CENT) + CENT
        )
        if dear:
            return _nothing(compiled, bound, placement)
        if solved:
            model.place(placement)
        if self.objective is Objective.GOODPUT:
            return _filled(compiled, placement, bound, proven=proven and solved)
        if not solved:
            return _nothing(compiled, inf if proven else bound, placement)
        schedule = compiled.schedule(placement)
        money = spent_usd_per_hour(problem, schedule.assignments)
        return Solved(schedule=schedule, objective=money, bound=bound, proven=proven)


def staying(compiled: Compiled) -> Placement[int]:
    """Return a placement of all who can go on where they run, those of more benefit first."""
    placement, running = compiled.placement(), compiled.running()
    benefit = compiled.arrays.benefit
    for query in sorted(running, key=lambda q: (-float(benefit[q]), q)):
        placement.occupy(query, running[query])
    return placement


def _filled(  # deviates: filled-after-solving
    compiled: Compiled, placement: Placement[int], bound: float, *, proven: bool
) -> Solved:
    """Return a solution with whoever else fits: solvers miss small benefits beside large ones.

    So somebody is served, too, where there was no time to find a solution.
    """
    arrays = compiled.arrays
    ranked = np.argsort(-arrays.benefit[arrays.owner], kind="stable").tolist()
    schedule = compiled.filled_up(placement, ranked)
    benefit = sum(arrays.benefit[list(placement.at)].tolist()) if placement.at else 0.0
    return Solved(schedule=schedule, objective=benefit, bound=max(bound, benefit), proven=proven)


def _nothing(compiled: Compiled, bound: float, placement: Placement[int]) -> Solved:
    schedule = compiled.schedule(placement)
    proven = bound == inf or bound > compiled.problem.most_usd_per_hour
    return Solved(schedule=schedule, objective=inf, bound=bound, proven=proven)


def installed_solvers() -> tuple[Solver, ...]:
    """Return the solvers that are there, the faster first; InvalidInput if there is none."""
    there = set(pulp.listSolvers(onlyAvailable=True))
    installed = tuple(solver for solver in Solver if solver.value in there)
    if not installed:
        rule = "must be installed: HiGHS (pip install highspy) or CBC"
        raise InvalidInput.of("a solver of integer programs", rule, sorted(there))
    return installed


def _run_highs(program: pulp.LpProblem, time_limit_s: float, gap: float) -> tuple[float, bool]:
    program.solve(pulp.HiGHS(msg=False, timeLimit=time_limit_s, gapRel=gap, threads=1))
    bound = program.solverModel.getInfo().mip_dual_bound
    if program.sense == pulp.LpMaximize:
        bound = -bound  # PuLP hands HiGHS the negative to minimise
    return bound, program.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionInfeasible)


_CBC_BOUND = re.compile(r"^(?:Lower|Upper) bound:\s+(\S+)", re.MULTILINE)
_CBC_STOPPED = re.compile(r"^Result - Stopped", re.MULTILINE)


def _run_cbc(program: pulp.LpProblem, time_limit_s: float, gap: float) -> tuple[float, bool]:
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        # The CBC that PuLP 3 brings along leaves it with PuLP 4; our range ends before that.
        warnings.simplefilter("ignore", DeprecationWarning)
        log = Path(folder) / "cbc.log"
        solver = pulp.PULP_CBC_CMD(
            msg=False, timeLimit=time_limit_s, gapRel=gap, threads=1, logPath=str(log)
        )
        program.solve(solver)
        text = log.read_text()
    stopped = _CBC_STOPPED.search(text) is not None
    if not stopped:
        value = program.objective.value() if program.objective else 0.0
        return (0.0 if value is None else value), True
    match = _CBC_BOUND.search(text)
    worst = inf if program.sense == pulp.LpMaximize else 0.0
    return (abs(float(match[1])) if match else worst), False
