"""Studies take the parts of methods from the product, so that a row of `default` is the product.

Whoever adds a line to `ALLOWED` says why that row is neither `default` nor `published`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from circinus import studies
from circinus.deploy.methods import METHODS
from circinus.deploy.planning import planner_of, sampling_of, stopping_rule
from circinus.pipelines.model.query import SAMPLING, STOPPING
from circinus.profiler.drawing import Drawing, equal_strata, round_robin
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.problem import Objective

FOLDER = Path(studies.__file__).parent

ALLOWED = (
    ("methods", "Cmbo", "a competitor: CMBO on a fixed number of inputs"),
    ("methods", "MultiFidelity", "ablations: ours without one of its ideas"),
    ("methods", "TTest", "counts the inputs that competitors as published measure"),
    ("methods", "random_drawing", "the order of competitors as published"),
    ("methods", "stratified_drawing", "the order of tuned competitors"),
    ("simulated_profiles", "equal_strata", "strata of a trace, made once for thousands of orders"),
    ("simulated_profiles", "round_robin", "thousands of orders over strata that are there"),
)
"""(module, name, reason) of ablations, competitors, and what draws for many queries at once."""


def test_no_study_makes_a_part_of_a_method_by_itself() -> None:
    allowed = {(module, name) for module, name, _ in ALLOWED}
    wrong = [
        f"{file.relative_to(FOLDER)}:{line}: {name} must come from the product's tables"
        for file in _files()
        for line, name in used(file.read_text(encoding="utf-8"), _parts())
        if (file.stem, name) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_everything_allowed_is_used() -> None:
    there = {
        (file.stem, name)
        for file in _files()
        for _, name in used(file.read_text(encoding="utf-8"), _parts())
    }
    assert {(module, name) for module, name, _ in ALLOWED} <= there


def test_the_parts_are_those_that_methods_name() -> None:
    # As of today, in full: a part that is lost from the list below would not be looked for.
    assert _parts() == {
        *("MultiFidelity", "Cmbo", "Betting", "TTest", "Priced", "Rental", "Greedy"),
        *("PlanAhead", "MinCostMatching", "random_drawing", "stratified_drawing"),
        *("equal_strata", "round_robin"),
    }


@pytest.mark.parametrize(
    "snippet",
    [
        "rule = TTest()",
        "from circinus.profiler.stopping import TTest as Rule\nrule = Rule(minimum=2)",
        "import circinus.profiler.stopping as stopping\nrule = stopping.TTest()",
        "RULES = {'t-test': TTest}",
        "def rule(made=TTest): ...",
        "@dataclass\nclass A:\n    rule: object = field(default_factory=TTest)",
        "made = lambda: TTest()",
        "from profiler import stopping\nmade = getattr(stopping, 'TTest')()",
    ],
)
def test_a_study_that_makes_a_part_by_itself_is_found(snippet: str) -> None:
    assert [name for _, name in used(snippet, {"TTest"})] == ["TTest"]


@pytest.mark.parametrize(
    "snippet",
    [
        "from circinus.profiler.stopping import TTest",
        "def f(rule: TTest) -> TTest: ...",
        "rule: TTest | None = None",
        "def f(rule: object) -> bool:\n    return isinstance(rule, TTest)",
        "'''As TTest() does.'''",
        "def f(rule):\n    match rule:\n        case TTest():\n            return rule.minimum",
    ],
)
def test_a_study_that_only_speaks_of_a_part_is_let_be(snippet: str) -> None:
    assert list(used(snippet, {"TTest"})) == []


def used(text: str, parts: set[str]) -> list[tuple[int, str]]:
    """Return (line, name) of the parts that a module makes or hands on, whatever it calls them."""
    tree = ast.parse(text)
    known_as = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return [
        (line, known_as.get(name, name))
        for line, name in _values(tree)
        if known_as.get(name, name) in parts
    ]


def _values(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names that source evaluates, without annotations and type checks."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.lineno, node.id
    elif isinstance(node, ast.Attribute):
        yield node.lineno, node.attr
    elif _is_call(node, "getattr"):
        yield from _strings(node)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") or isinstance(node, ast.MatchClass):
            continue
        children = value if isinstance(value, list) else [value]
        if name == "args" and _is_call(node, "isinstance"):
            children = children[:1]
        for child in children:
            if isinstance(child, ast.AST):
                yield from _values(child)


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.lineno, each.value


def _files() -> list[Path]:
    files = sorted(FOLDER.rglob("*.py"))
    assert len(files) > 20
    return files


@cache
def _parts() -> set[str]:
    """Return what the product makes of the names in `METHODS`, and what orders are made of."""
    two = np.arange(2)
    made: list[object] = [
        *(stopping_rule(name, Drawing(order=two, groups=two)) for name in STOPPING),
        *(dispatch_policy(method.dispatch) for method in METHODS.values()),
        *(
            scheduling_policy(method.scheduling, Terms(objective=objective))
            for method in METHODS.values()
            for objective in Objective
        ),
    ]
    functions: list[object] = [*map(sampling_of, SAMPLING)]
    functions += [equal_strata, round_robin]
    functions += [planner_of(method.planning).settings.strategy for method in METHODS.values()]
    names = {type(each).__name__ for each in made}
    return names | {getattr(function, "__name__", "") for function in functions}
