"""The integer program as a scheduling policy: optimal, given time; and what solvers say."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pulp

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.compiled.feasibility import Compiled
from circinus.scheduler.compiled.placement import Placement
from circinus.scheduler.ilp.model import Model, Objective, Symmetry
from circinus.scheduler.problem import Problem, Schedule


class Solver(StrEnum):
    """Solvers of integer programs that PuLP can call."""

    HIGHS = "HiGHS"
    CBC = "PULP_CBC_CMD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """An answer and what is proven of it."""

    # valid; under `COST` nobody is served when not all could be, or none was found
    schedule: Schedule
    # its goodput (sum of benefits), or dollars per hour of rented machines and of calls; infinite
    # when no schedule that serves all was found
    objective: float
    bound: float  # no schedule is better than this
    proven: bool  # whether the schedule is optimal, within the gap asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Ilp:
    """A `SchedulingPolicy` that is optimal, given time."""

    objective: Objective = Objective.GOODPUT  # what is sought
    solver: Solver | None = None  # None: the first one that is installed, HiGHS before CBC
    time_limit_s: float = 60.0  # of the solver; then the best schedule found so far is given
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
        found = model.program.sol_status in solutions
        placement = model.placement() if found else compiled.placement()
        if self.objective is Objective.GOODPUT:
            return _filled(compiled, placement, bound * model.scale, proven=proven and found)
        if not found:
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
    found = tuple(solver for solver in Solver if solver.value in there)
    if not found:
        rule = "must be installed: HiGHS (pip install highspy) or CBC"
        raise InvalidInput.of("a solver of integer programs", rule, sorted(there))
    return found


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
    found = _CBC_BOUND.search(text)
    worst = inf if program.sense == pulp.LpMaximize else 0.0
    return (abs(float(found[1])) if found else worst), False
