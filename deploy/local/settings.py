"""What workers get from the environment of the process that starts them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# A machine of a local tier is one core: numeric libraries may not take more.
_THREADS = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "NUMEXPR_NUM", "VECLIB_MAXIMUM")
_ONE_THREAD = {f"{threads}_THREADS": "1" for threads in _THREADS}


def worker_environment() -> dict[str, str]:
    """Give this process's environment with one numeric thread and without the project's secrets.

    The module search path is the same, so that a reference means the same there.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("CIRCINUS_") and ("TOKEN" in name or "SECRET" in name))
    }
    search = [str(Path(entry).absolute()) for entry in sys.path]  # "" is the current folder
    return {**kept, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(search)}
