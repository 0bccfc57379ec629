"""Digests change with the code, and with nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest

from circinus.pipelines.execution.code_digest import code_digest
from tests.e2e.service_process import ROOT

Made = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Held:
    function: object


class Adds:
    by = 1

    def __call__(self, number: int) -> int:
        return number + self.by


def _closing(value: object) -> object:
    return lambda item: (item, value)


def _made(value: object) -> Callable[[object], object]:
    return lambda item: value


def _calling(value: object) -> object:
    inner = _closing(value)
    return lambda item: inner


def _looping(value: object) -> object:
    ring: list[object] = [value]
    ring.append(ring)
    return lambda item: ring


def _method(value: object) -> object:
    adds = Adds()
    adds.by = value  # type: ignore[assignment]  # anything
    return adds.__call__


MADE: list[Made] = [
    _closing,
    _calling,
    _looping,
    _method,
    lambda value: partial(print, value),
    lambda value: Held(_closing(value)),
    lambda value: lru_cache(_made(value)),
    lambda value: {"a": [_closing(value)]},
    lambda value: lambda item, default=value: item,
]
VALUES = [1, 2, 1.0, "1", True, None, b"1", (1,), [1], {1, 2}, {"a": 1}]
VALUES += [re.compile("x" * 300), re.compile("x" * 301), np.array([None]), np.array([print])]
VALUES += [deque([1]), deque([2]), np.array([1]), np.array([1.0]), np.array([[1]]), len, str, os]


@pytest.mark.parametrize("made", MADE)
def test_what_functions_hold_is_told_apart(made: Made) -> None:
    digests = [code_digest(made(value)) for value in VALUES]

    assert len(set(digests)) == len(VALUES)
    assert digests == [code_digest(made(value)) for value in VALUES]


def test_another_body_is_another_digest_and_another_place_is_not() -> None:
    def of(text: str) -> object:
        names: dict[str, Any] = {"LIMIT": 3, "__name__": "cell"}
        exec(text, names)
        return names["f"]

    same = code_digest(of("def f(x):\n    return x[:LIMIT]"))
    assert same == code_digest(of("\n\ndef f(x):\n    # why\n    return x[:LIMIT]"))
    others = [
        "def f(x):\n    return x[LIMIT:]",
        "def f(x):\n    return x[:LIMIT].strip()",
        "LIMIT = 4\ndef f(x):\n    return x[:LIMIT]",
        "def f(x, y=1):\n    return x[:LIMIT]",
        "def g(x):\n    return x\ndef f(x):\n    return g(x[:LIMIT])",
        "def g(x):\n    return x + x\ndef f(x):\n    return g(x[:LIMIT])",
        "class A:\n    def g(self, x): return x\ndef f(x):\n    return A().g(x)",
        "class A:\n    by = 1\n    def g(self, x): return x\ndef f(x):\n    return A().g(x)",
        "class A:\n    by = 2\n    def g(self, x): return x\ndef f(x):\n    return A().g(x)",
        "class A:\n    @property\n    def g(self): return 1\ndef f(x):\n    return A().g",
        "class A:\n    @property\n    def g(self): return 2\ndef f(x):\n    return A().g",
        "class A:\n    @classmethod\n    def g(cls): return 1\ndef f(x):\n    return A.g()",
        "class A:\n    @classmethod\n    def g(cls): return 2\ndef f(x):\n    return A.g()",
        "class A:\n    g = 1\nclass B(A):\n    pass\ndef f(x):\n    return B.g",
        "class A:\n    g = 2\nclass B(A):\n    pass\ndef f(x):\n    return B.g",
        "class A:\n    def g(self, x): return x + x\ndef f(x):\n    return A().g(x)",
    ]
    digests = {code_digest(of(text)) for text in others}
    assert len(digests | {same}) == len(others) + 1


class Strange:
    @property  # type: ignore[misc]  # as proxies have it
    def __class__(self) -> Any:  # noqa: ANN401
        raise RuntimeError("nothing is bound")

    def __getattr__(self, name: str) -> object:
        return Strange()


def test_what_cannot_be_looked_into_goes_by_its_kind() -> None:
    assert code_digest(Strange()) == code_digest(Strange()) != code_digest(object())


def test_values_beside_each_other_are_not_taken_for_one() -> None:
    assert code_digest("ab", "c") != code_digest("a", "bc")
    assert code_digest(["a"], "b") != code_digest(["a", "b"])


SCRIPT = """
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from circinus.pipelines.execution.code_digest import code_digest
from tests.e2e.troublesome import healthy

words = {"a", "b", "c", "d"}
upper = RunnableLambda(lambda text: text.upper() if text in words else text)
case = RunnablePassthrough().configurable_alternatives(
    ConfigurableField(id="case"), default_key="same", upper=upper
)
prompt = ChatPromptTemplate.from_messages([("system", "be brief"), ("user", "{text}")])
chain = {"text": case} | prompt.with_config(tags=["x"]) | (lambda value: value.to_string())
chain.invoke("a") if %r else None
print(code_digest(chain, print), code_digest(healthy.operators))
"""


def test_a_chain_has_the_same_digest_in_every_process_used_or_not() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT % used],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, used in (("1", False), ("2", False), ("2", True))
    }

    assert len(told) == 1
