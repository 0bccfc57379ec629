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

Every variable has bounds. Where a query runs now is not looked at.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import gcd, inf
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pulp

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.compiled.feasibility import Compiled
from circinus.scheduler.compiled.placement import Placed, Placement
from circinus.scheduler.problem import PARTS, Problem, Schedule, quota_parts

FINEST_GRID = 100
"""Steps of a machine: the graph of a flow grows with it, times the number of sizes."""


class Objective(StrEnum):
    """What is sought."""

    GOODPUT = "goodput"
    """Machines are limited: the largest weight that can be served."""
    COST = "cost"
    """Machines can be rented, up to those of the tier: all queries, for the least money."""


class Symmetry(StrEnum):
    """How the symmetry of equal machines is broken; see the module."""

    ORDERED = "ordered"
    FLOW = "flow"


_Sizes = Mapping[int, pulp.LpAffineExpression]
"""Size -> how many items of it are placed, of a tier."""


class Model:
    """The program of a problem, and the way back from its solution."""

    def __init__(
        self, compiled: Compiled, objective: Objective, symmetry: Symmetry | None
    ) -> None:
        self._compiled = compiled
        limited = objective is Objective.GOODPUT
        sense = pulp.LpMaximize if limited else pulp.LpMinimize
        self.program = pulp.LpProblem("schedule", sense)
        arrays = compiled.arrays
        plans = range(len(compiled.entries))
        self._items = [arrays.items(p) for p in plans]
        self._x = [self.program.add_variable(f"x_{p}", cat="Binary") for p in plans]
        self._add_choice(limited)
        self._add_quotas()
        self._tiers = [self._add_tier(m, symmetry) for m in range(len(compiled.tiers))]
        # Solvers take numbers above 1e20 for infinite: benefits are in units of the largest.
        self.scale = float(arrays.benefit.max(initial=0.0)) or 1.0
        self._add_objective(limited)

    def _add_choice(self, limited: bool) -> None:
        first = self._compiled.arrays.first.tolist()
        for q in range(len(self._compiled.queries)):
            served = pulp.lpSum(self._x[first[q] : first[q + 1]])
            self.program += served <= 1 if limited else served == 1

    def _add_quotas(self) -> None:
        compiled = self._compiled
        owner = compiled.arrays.owner.tolist()
        for tenant in compiled.problem.quotas:
            for m, tier in enumerate(compiled.tiers):
                held = [
                    (x, sum(parts for t, parts in items if t == m))
                    for p, (x, items) in enumerate(zip(self._x, self._items, strict=True))
                    if compiled.queries[owner[p]].tenant == tenant
                ]
                most = quota_parts(compiled.problem, tenant, tier)
                self.program += pulp.LpAffineExpression(held) <= most

    def _add_objective(self, limited: bool) -> None:
        arrays = self._compiled.arrays
        if limited:
            benefit = (arrays.benefit[arrays.owner] / self.scale).tolist()
            self.program.setObjective(
                pulp.LpAffineExpression(list(zip(self._x, benefit, strict=True)))
            )
        else:
            tiers = zip(self._compiled.tiers, self._tiers, strict=True)
            rent = pulp.lpSum(tier.price_usd_per_hour * added.rented for tier, added in tiers)
            calls = arrays.calls_usd_per_hour.tolist()
            called = pulp.LpAffineExpression(list(zip(self._x, calls, strict=True)))
            self.program.setObjective(rent + called)

    def _add_tier(self, m: int, symmetry: Symmetry | None) -> Ordered | Flow:
        count: dict[int, Counter[int]] = defaultdict(Counter)  # size -> plan -> items
        for p, items in enumerate(self._items):
            for tier, parts in items:
                if tier == m:
                    count[parts][p] += 1
        placed = {
            size: pulp.LpAffineExpression([(self._x[p], n) for p, n in sorted(plans.items())])
            for size, plans in sorted(count.items(), reverse=True)
        }
        machines = min(self._compiled.tiers[m].machines, self._most_items(m))
        if symmetry is None:
            fine = PARTS // gcd(PARTS, *count) <= FINEST_GRID
            symmetry = Symmetry.FLOW if fine else Symmetry.ORDERED
        form = Flow if symmetry is Symmetry.FLOW else Ordered
        return form(self.program, m, machines, placed)

    def _most_items(self, m: int) -> int:
        """Return the most items of all queries on a tier: more machines stay empty."""
        most: Counter[int] = Counter()
        for query, items in zip(self._compiled.arrays.owner.tolist(), self._items, strict=True):
            most[query] = max(most[query], sum(tier == m for tier, _ in items))
        return most.total()

    def placement(self) -> Placement[int]:
        """Return where the solution puts queries."""
        placement = self._compiled.placement()
        slots = [tier.machines_of_sizes() for tier in self._tiers]
        owner = self._compiled.arrays.owner.tolist()
        for p, x in enumerate(self._x):
            if (x.value() or 0.0) > 0.5:
                machines = tuple(slots[m][parts].pop() for m, parts in self._items[p])
                placement.occupy(owner[p], Placed(p, self._items[p], machines))
        return placement

    def money_usd_per_hour(self) -> float:
        """Return what machines and calls of the solution cost, from its whole numbers."""
        tiers = zip(self._compiled.tiers, self._tiers, strict=True)
        rent = sum(t.price_usd_per_hour * _whole(added.rented.value()) for t, added in tiers)
        calls = zip(self._x, self._compiled.arrays.calls_usd_per_hour.tolist(), strict=True)
        return float(rent + sum(usd * _whole(x.value()) for x, usd in calls))


class Ordered:
    """Machines by number, the fuller ones first; `rented` of them hold anything."""

    def __init__(self, program: pulp.LpProblem, m: int, machines: int, placed: _Sizes) -> None:
        self._n = [
            {
                size: program.add_variable(f"n_{m}_{k}_{size}", 0, PARTS // size, cat="Integer")
                for size in placed
            }
            for k in range(machines)
        ]
        z = [program.add_variable(f"z_{m}_{k}", cat="Binary") for k in range(machines)]
        loads = [
            # In parts, whole numbers: with shares of a millionth presolve finds no way at all.
            pulp.LpAffineExpression([(n, size) for size, n in row.items()])
            for row in self._n
        ]
        for k in range(machines):
            program += loads[k] <= PARTS * z[k]
            if k:
                program += loads[k - 1] >= loads[k]
                program += z[k - 1] >= z[k]
        for size, wanted in placed.items():
            program += pulp.lpSum(row[size] for row in self._n) == wanted
        self.rented = pulp.lpSum(z)

    def machines_of_sizes(self) -> dict[int, list[int]]:
        """Return, for each size, a machine for every item of it."""
        slots: dict[int, list[int]] = defaultdict(list)
        for k, row in enumerate(self._n):
            for size, n in row.items():
                slots[size] += [k] * _whole(n.value())
        return slots


class Flow:
    """Machines as paths through loads; `rented` of them hold anything."""

    def __init__(self, program: pulp.LpProblem, m: int, machines: int, placed: _Sizes) -> None:
        self._arcs = {
            (a, size): program.add_variable(f"f_{m}_{a}_{size}", 0, machines, cat="Integer")
            for a, size in _arcs(placed)
        }
        self.rented = program.add_variable(f"z_{m}", 0, machines, cat="Integer")
        out: dict[int, list[pulp.LpVariable]] = defaultdict(list)
        into: dict[int, list[pulp.LpVariable]] = defaultdict(list)
        for (a, size), f in self._arcs.items():
            out[a].append(f)
            into[a + size].append(f)
        for a, leaving in out.items():
            program += pulp.lpSum(leaving) <= (pulp.lpSum(into[a]) if a else self.rented)
        for size, wanted in placed.items():
            of_size = [f for (_, s), f in self._arcs.items() if s == size]
            program += pulp.lpSum(of_size) >= wanted

    def machines_of_sizes(self) -> dict[int, list[int]]:
        """Return, for each size, a machine for every item of it."""
        left: dict[int, list[int]] = defaultdict(list)  # load -> sizes put on top of it
        for (a, size), f in self._arcs.items():
            left[a] += [size] * _whole(f.value())
        slots: dict[int, list[int]] = defaultdict(list)
        for machine in range(len(left[0])):
            load = 0
            while left[load]:
                size = left[load].pop()
                slots[size].append(machine)
                load += size
        return slots


def _arcs(sizes: Mapping[int, object]) -> list[tuple[int, int]]:
    """Return the arcs (load, size) on paths from 0 along which sizes fall."""
    loads = {0}
    arcs: list[tuple[int, int]] = []
    for size in sorted(sizes, reverse=True):
        for start in sorted(loads):
            load = start
            while load + size <= PARTS:
                arcs.append((load, size))
                load += size
                if load in loads:
                    break  # its own arcs of this size follow, or have been made
                loads.add(load)
    return list(dict.fromkeys(arcs))


def _whole(value: float | None) -> int:
    """Return the whole number that a solver meant; 0 where it gave none."""
    return round(value or 0.0)


class Solver(StrEnum):
    """Solvers of integer programs that PuLP can call."""

    HIGHS = "HiGHS"
    CBC = "PULP_CBC_CMD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """An answer and what is proven of it."""

    # valid; under `COST` nobody is served without a schedule that serves all
    schedule: Schedule
    # its goodput (sum of benefits), or dollars per hour of rented machines and of calls; infinite
    # without a schedule that serves all
    objective: float
    bound: float  # no schedule is better than this
    proven: bool  # whether the schedule is optimal, within the gap asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Ilp:
    """A `SchedulingPolicy` that is optimal, given time."""

    objective: Objective = Objective.GOODPUT  # what is sought
    solver: Solver | None = None  # None: the first one that is installed, HiGHS before CBC
    time_limit_s: float = 60.0  # of the solver; then its best schedule so far is the result
    gap: float = 1e-6  # relative gap at which the solver may stop
    symmetry: Symmetry | None = None  # None: a flow where the grid allows, tier by tier

    def __post_init__(self) -> None:
        checks.positive("time_limit_s", self.time_limit_s)
        checks.non_negative("gap", self.gap)

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        return self.solve(problem).schedule

    def solve(self, problem: Problem) -> Solved:
        """Return the best schedule found, and the bound.

        InvalidInput if no solver is installed, or the one asked for is not.
        """
        solver = self.solver or installed_solvers()[0]
        compiled = Compiled.of(problem)
        everybody = len(compiled.queries) == len(problem.candidates)
        if self.objective is Objective.COST and not everybody:
            return _nothing(compiled, inf)
        model = Model(compiled, self.objective, self.symmetry)
        call = _run_highs if solver is Solver.HIGHS else _run_cbc
        bound, proven = call(model.program, self.time_limit_s, self.gap)
        solutions = (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
        solved = model.program.sol_status in solutions
        placement = model.placement() if solved else compiled.placement()
        if self.objective is Objective.GOODPUT:
            return _filled(compiled, placement, bound * model.scale, proven=proven and solved)
        if not solved:
            return _nothing(compiled, inf if proven else bound)
        schedule, money = compiled.schedule(placement), model.money_usd_per_hour()
        return Solved(schedule=schedule, objective=money, bound=bound, proven=proven)


def _filled(
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


def _nothing(compiled: Compiled, bound: float) -> Solved:
    schedule = compiled.schedule(compiled.placement())
    return Solved(schedule=schedule, objective=inf, bound=bound, proven=bound == inf)


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
