"""The workload: problems of HumanEval (Chen et al. 2021), each a function to write and its tests.

A problem's prompt is the beginning of a Python module: imports, a signature, a docstring that says
what the function does, often with examples. Its tests are asserts in a function `check`. What is
read here is parsed and never run.
"""

from __future__ import annotations

import ast
import doctest
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.catalog.material import part_of
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.weights import ModelWeights
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import FloatArray

HUMAN_EVAL = ModelWeights(
    name="humaneval",
    what="HumanEval, 164 problems with tests",
    licence="MIT",
    size_bytes=44_877,
    files={
        "HumanEval.jsonl.gz": "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"
    },
)
SMALLEST_PART = 54  # problems of the smallest of three parts
MOST_CHARACTERS = 8_000  # of a prompt: more than twice as many as the longest of HumanEval
MOST_EXAMPLES = 8  # of a prompt that are run
_SEPARATORS = r"(?:==|=>|➞|-->|->|→|=|(?:should )?returns?|should be)"
_LONGEST_VALUE = 80  # characters of a wrong value, in the message of an example


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeProblem:
    """A function to write."""

    prompt: str  # the module that it begins, with signature and docstring
    entry: str  # name of the function


def checked_problem(value: Payload) -> CodeProblem:
    """Return the value as a problem; InvalidInput unless its prompt is Python with the function.

    Only the texts `prompt` and `entry` are looked at: what operators hand on has more.
    """
    prompt, entry = (
        checked_text("problem", value, "prompt"),
        checked_text("problem", value, "entry"),
    )
    rule = f"must have at most {MOST_CHARACTERS} characters"
    checks.require(len(prompt) <= MOST_CHARACTERS, "problem.prompt", rule, len(prompt))
    problem = CodeProblem(prompt=prompt, entry=entry)
    _definition(problem)
    return problem


def checked_text(field: str, value: Payload, name: str) -> str:
    """Return a text that a dict has under a name; InvalidInput if there is none."""
    text = value.get(name) if isinstance(value, dict) else None
    if not isinstance(text, str):
        kind = type(value).__name__ if not isinstance(value, dict) else type(text).__name__
        raise InvalidInput.of(f"{field}.{name}", "must be a text", kind)
    return text


def parsed(field: str, source: str) -> ast.Module:
    """Return a source as a tree; InvalidInput if it is no Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput.of(field, f"must be Python ({error})", source) from error


def description_of(problem: CodeProblem) -> str:
    """Return what the docstring of the function says."""
    return ast.get_docstring(_definition(problem)) or ""


def signature_of(problem: CodeProblem) -> str:
    """Return the function's first line, without its colon."""
    definition = _definition(problem)
    returns = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
    return f"def {problem.entry}({ast.unparse(definition.args)}){returns}"


def examples_of(problem: CodeProblem) -> tuple[str, ...]:
    """Return the examples of the docstring, as statements that fail with what came out instead.

    Those of doctest, and lines such as `f(1) == 2`, `f(1) => 2`, `f(1) should return 2`.
    """
    pairs = dict.fromkeys((*_doctests(problem), *_lines(problem)))
    return tuple(
        f"_value = {call}\nassert _value == {value}, "
        f"{f'{call} is '!r} + repr(_value)[:{_LONGEST_VALUE}] + {f', not {value}'!r}"
        for call, value in list(pairs)[:MOST_EXAMPLES]
    )


def asserts_of(test: str, entry: str) -> tuple[str, ...]:
    """Return the tests in a source with a function `check(candidate)`, each a source of its own.

    A test is a statement with an assert, with the statements before it since the last one; to be
    run one after the other. InvalidInput if there is none.
    """
    check = _function(parsed("expected.test", test), "check")
    rule = "must have a function check with an argument and an assert"
    checks.require(check is not None and len(check.args.args) == 1, "expected.test", rule, test)
    body = [] if check is None else check.body
    name = "" if check is None else check.args.args[0].arg
    tests: list[str] = []
    pending = [f"{name} = {entry}"]
    for statement in body:
        if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Constant):
            continue  # `assert True`, which marks where a section begins
        pending.append(ast.unparse(statement))
        if any(isinstance(node, ast.Assert) for node in ast.walk(statement)):
            tests.append("\n".join(pending))
            pending = []
    checks.require(bool(tests), "expected.test", rule, test)
    return tuple(tests)


def problem_features(problem: CodeProblem) -> FloatArray:  # (4,)
    """Return how long and how well explained a problem is, for stratified sampling.

    Characters of the prompt and words of the docstring; its examples; the function's arguments.
    """
    definition = _definition(problem)
    words = len((ast.get_docstring(definition) or "").split())
    arguments = len(definition.args.args)
    shape = (len(problem.prompt), words, len(examples_of(problem)), arguments)
    return np.array(shape, np.float64)


@dataclass(frozen=True, slots=True)
class HumanEvalExamples:
    """`examples(count, seed)`: problems of the seed's part, in the seed's order, none twice."""

    weights: ModelWeights = field(default=HUMAN_EVAL)

    def __call__(self, count: int, seed: int) -> Dataset:
        """Return so many, or as many as there are."""
        return Dataset(name=f"HumanEval, seed {seed}", examples=list(self.one_by_one(count, seed)))

    def one_by_one(self, count: int, seed: int) -> Iterator[Example]:
        """Return the same, one after the other."""
        problems = part_of(_problems(self.weights.path("HumanEval.jsonl.gz")), seed)
        order = np.random.Generator(np.random.PCG64(seed)).permutation(len(problems))
        return (_example(problems[index]) for index in order[:count])


@cache
def _problems(path: Path) -> tuple[dict[str, Any], ...]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return tuple(json.loads(line) for line in file)


def _example(row: dict[str, Any]) -> Example:
    prompt, entry = row["prompt"], row["entry_point"]
    program = prompt + row["canonical_solution"]
    return Example(
        input={"prompt": prompt, "entry": entry},
        expected={"program": program, "entry": entry, "test": row["test"]},
    )


def _definition(problem: CodeProblem) -> ast.FunctionDef:
    definition = _function(parsed("problem.prompt", problem.prompt), problem.entry)
    if definition is None:
        rule = "must begin the function that entry names"
        raise InvalidInput.of("problem.prompt", rule, problem.entry)
    return definition


def _function(module: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the last function of a module with that name; None: it has none."""
    functions = (each for each in module.body if isinstance(each, ast.FunctionDef))
    return next((each for each in reversed(list(functions)) if each.name == name), None)


def _doctests(problem: CodeProblem) -> Iterator[tuple[str, str]]:
    try:
        examples = doctest.DocTestParser().get_examples(description_of(problem))
    except ValueError:  # of what only looks like one
        return
    for example in examples:
        call, text = example.source.strip(), example.want.strip()
        value = next(filter(_is_literal, (text, text.partition("\n")[0])), None)
        if value is not None and _is_expression(call):
            yield _plain(call), _plain(value)


def _lines(problem: CodeProblem) -> Iterator[tuple[str, str]]:
    pattern = re.compile(rf"({re.escape(problem.entry)}\(.*?\))\s*{_SEPARATORS}\s*(.+)")
    for line in description_of(problem).splitlines():
        match = pattern.search(line)
        if match is None:
            continue
        call, rest = match[1], match[2].strip()
        first = re.fullmatch(r"(\S+)\s+[#(A-Za-z].*", rest)  # words behind it, no sum
        bare = rest.split("#")[0].strip()
        values = (bare.rstrip("."), bare, rest, first[1] if first else "")
        value = next(filter(_is_literal, values), None)
        if value is not None and _is_call_of_literals(call):
            yield _plain(call), _plain(value)


def _plain(expression: str) -> str:
    """Return an expression in one form, without comments."""
    return ast.unparse(ast.parse(expression, mode="eval"))


def _is_call_of_literals(text: str) -> bool:
    if not _is_expression(text):
        return False
    call = ast.parse(text, mode="eval").body
    return isinstance(call, ast.Call) and all(_is_literal(ast.unparse(a)) for a in call.args)


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True
