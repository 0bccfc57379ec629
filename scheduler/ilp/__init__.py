"""The integer programs of Circinus, appendix B: the yardstick of the other policies.

`model` states them as sets, variables, objective and constraints; `machines` holds the two ways
to tell equal machines apart no longer; `solvers` calls HiGHS or CBC; `policy` puts it together.
"""

from __future__ import annotations

from scheduler.ilp.machines import Symmetry
from scheduler.ilp.model import Objective
from scheduler.ilp.policy import Ilp, Solved
from scheduler.ilp.solvers import Solver, installed_solvers

__all__ = ["Ilp", "Objective", "Solved", "Solver", "Symmetry", "installed_solvers"]
