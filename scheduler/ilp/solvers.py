"""Solvers of integer programs: which are there, and what each says of the best bound."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from enum import StrEnum
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import pulp

from pipelines.errors import InvalidInput


class Solver(StrEnum):
    """Solvers of integer programs that PuLP can call."""

    HIGHS = "HiGHS"
    CBC = "PULP_CBC_CMD"


def installed_solvers() -> tuple[Solver, ...]:
    """Give the solvers that are there, the faster first.

    Raises:
        InvalidInput: If there is none.
    """
    there = set(pulp.listSolvers(onlyAvailable=True))
    found = tuple(solver for solver in Solver if solver.value in there)
    if not found:
        rule = "must be installed: HiGHS (pip install highspy) or CBC"
        raise InvalidInput.of("a solver of integer programs", rule, sorted(there))
    return found


def run(
    program: pulp.LpProblem, solver: Solver, time_limit_s: float, gap: float
) -> tuple[float, bool, bool]:
    """Solve; give the bound, whether the outcome is proven, and whether there is a solution."""
    call: Callable[[pulp.LpProblem, float, float], tuple[float, bool]]
    call = _run_highs if solver is Solver.HIGHS else _run_cbc
    bound, proven = call(program, time_limit_s, gap)
    found = program.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    return bound, proven, found


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
