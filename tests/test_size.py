"""Rule 2 of docs/style.md: how large a file, a class, a function and a room may be."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "api",
    "circinus",
    "deploy",
    "pipelines",
    "planner",
    "profiler",
    "scheduler",
    "studies",
)
LINES_OF_A_FILE, LINES_OF_A_CLASS, LINES_OF_A_FUNCTION, FILES_OF_A_ROOM = 400, 250, 60, 16
EXCEPTIONS = {
    "api/bootstrap/planning.py:plan_query": "opens what a search needs, in the order of closing",
    "api/store/store.py:Store": "the statements on queries share one transaction discipline",
    "deploy/runtime/tier_queue.py:TierQueue": "waiting requests and places change together",
}
"""What may be larger, at most five, each with its reason."""


@cache
def modules() -> dict[str, str]:
    """Return the source of each shipped module by its path, but for generated ones."""
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "_pb2" not in path.name and not any(part.is_symlink() for part in path.parents)
    }


def too_large() -> Iterator[str]:
    """Yield the files, classes, functions and rooms that are larger than they may be."""
    for path, source in modules().items():
        if len(source.splitlines()) > LINES_OF_A_FILE:
            yield path
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                limit = LINES_OF_A_CLASS
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                limit = LINES_OF_A_FUNCTION
            else:
                continue
            if (node.end_lineno or 0) - _first_line(node) + 1 > limit:
                yield f"{path}:{node.name}"
    rooms = Counter(
        str(Path(path).parent) for path in modules() if not path.endswith("__init__.py")
    )
    yield from (f"{room}/" for room, files in rooms.items() if files > FILES_OF_A_ROOM)


def _first_line(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the first line of a class, or of a function's body after its docstring."""
    if isinstance(node, ast.ClassDef):
        return node.lineno
    first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
    return first.lineno


def test_nothing_is_larger_than_it_may_be() -> None:
    assert len(modules()) > 300
    assert sorted(too_large()) == sorted(EXCEPTIONS)


def test_there_are_few_exceptions_and_each_has_its_reason() -> None:
    assert len(EXCEPTIONS) <= 5
    assert all(len(reason) > 20 for reason in EXCEPTIONS.values())
