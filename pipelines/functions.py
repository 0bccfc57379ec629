"""What a function is made of: the code, what it holds, and the names that it uses."""

from __future__ import annotations

import dis
import sysconfig
from functools import lru_cache
from types import CellType, CodeType

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def is_installed(path: str) -> bool:
    """Say whether a file of code is of an installed package, or of Python's own."""
    return path.startswith(_INSTALLED)


def content_of(cell: CellType) -> object:
    """Return what a closure holds; None while it is not filled."""
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


@lru_cache(maxsize=1024)
def names_in(code: CodeType) -> tuple[list[str], list[str]]:
    """Return the globals that a function loads and all that it names, functions inside included.

    In an order that is the same in every process: knobs are found in it.
    """
    inner = [names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    loads = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    return (
        sorted(loads.union(*(globals_ for globals_, _ in inner))),
        sorted({*code.co_names}.union(*(names for _, names in inner))),
    )
