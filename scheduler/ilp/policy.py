"""The integer program as a scheduling policy: optimal, given time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from pipelines import checks
from scheduler.compiled import Compiled
from scheduler.ilp.machines import Symmetry
from scheduler.ilp.model import Model, Objective
from scheduler.ilp.solvers import Solver, installed_solvers, run
from scheduler.problem import Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """An answer and what is proven of it.

    Attributes:
        schedule: Valid; under `COST` nobody is served when not all could be, or none was found.
        objective: Its goodput (sum of benefits), or dollars per hour of rented machines; infinite
            when no schedule that serves all was found.
        bound: No schedule is better than this.
        proven: Whether the schedule is optimal, within the gap asked for.
    """

    schedule: Schedule
    objective: float
    bound: float
    proven: bool

    @property
    def gap(self) -> float:
        """How far the bound is from the objective, relative to the objective."""
        if self.objective == self.bound:
            return 0.0
        return abs(self.bound - self.objective) / max(abs(self.objective), 1e-12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ilp:
    """A `SchedulingPolicy` that is optimal, given time.

    Attributes:
        objective: What is sought.
        solver: None: the first one that is installed, HiGHS before CBC.
        time_limit_s: Of the solver; then the best schedule found so far is given.
        gap: Relative gap at which the solver may stop.
        symmetry: None: a flow where the grid allows, tier by tier.
    """

    objective: Objective = Objective.GOODPUT
    solver: Solver | None = None
    time_limit_s: float = 60.0
    gap: float = 1e-6
    symmetry: Symmetry | None = None

    def __post_init__(self) -> None:
        checks.positive("time_limit_s", self.time_limit_s)
        checks.non_negative("gap", self.gap)

    def schedule(self, problem: Problem) -> Schedule:
        """Give a valid schedule that mentions every candidate once."""
        return self.solve(problem).schedule

    def solve(self, problem: Problem) -> Solved:
        """Give the best schedule found, and the bound.

        Raises:
            InvalidInput: If no solver is installed, or the one asked for is not.
        """
        solver = self.solver or installed_solvers()[0]
        compiled = Compiled.of(problem)
        everybody = len(compiled.queries) == len(problem.candidates)
        if self.objective is Objective.COST and not everybody:
            return _nothing(compiled, inf)
        model = Model(compiled, self.objective, self.symmetry)
        bound, proven, found = run(model.program, solver, self.time_limit_s, self.gap)
        if not found:
            nothing = 0.0 if self.objective is Objective.GOODPUT else inf
            return _nothing(compiled, nothing, bound=inf if proven else bound)
        schedule = model.schedule()
        objective = model.value()
        return Solved(schedule=schedule, objective=objective, bound=bound, proven=proven)


def _nothing(compiled: Compiled, objective: float, bound: float | None = None) -> Solved:
    schedule = compiled.schedule(compiled.placement())
    bound = objective if bound is None else bound
    return Solved(schedule=schedule, objective=objective, bound=bound, proven=objective == bound)
