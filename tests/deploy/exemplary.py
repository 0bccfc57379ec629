"""Pipelines whose examples are slow, large, wrong, or as they should be."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.model.payload import Payload


def _pipeline(name: str, examples: Callable[[int, int], Dataset] | None) -> Pipeline:
    operator = Operator(spec=OperatorSpec(name="same"), run=lambda inputs, knobs: inputs)
    return Pipeline(
        name=name,
        operators=(operator,),
        score=lambda output, expected: float(output == expected),
        examples=examples,
    )


def _numbers(count: int, seed: int) -> Dataset:
    examples = [Example(input=i, expected=i + 1) for i in range(count)]
    return Dataset(name="numbers", examples=examples)


def _note(what: int) -> None:
    with Path(os.environ["EXEMPLARY_CALLS"]).open("a") as calls:
        calls.write(f"{what}\n")


def _raise(count: int, seed: int) -> Dataset:
    raise ValueError("no luck")


def _refuse(count: int, seed: int) -> Dataset:
    raise InvalidInput.of("count", "must be even", count)


def _exit(count: int, seed: int) -> Dataset:
    os._exit(3)


def _hang(count: int, seed: int) -> Dataset:
    time.sleep(3600)
    return _numbers(count, seed)


def _count(count: int, seed: int) -> Dataset:
    _note(count)
    print("what pipelines print is no example", file=sys.stdout)  # noqa: T201
    return _numbers(count, seed)


def _megabytes(count: int, seed: int) -> Dataset:
    _note(seed)
    inputs = [np.full(2**20, i, np.uint8) for i in range(count)]
    return Dataset(name="arrays", examples=[Example(input=i, expected=0) for i in inputs])


def _huge(count: int, seed: int) -> Dataset:
    """One array, again and again: small in memory, large in a file."""
    array: Payload = np.zeros(8 * 2**20, np.uint8)
    return Dataset(name="huge", examples=[Example(input=array, expected=0)] * count)


def _greedy(count: int, seed: int) -> Dataset:
    held = [np.ones(2**27) for _ in range(8)]  # 8 GiB
    return _numbers(len(held), seed)


class _OneByOne:
    def __init__(self, pause_s: float, most: int) -> None:
        self._pause_s, self._most = pause_s, most

    def __call__(self, count: int, seed: int) -> Dataset:
        raise AssertionError("nobody needs them together")

    def one_by_one(self, count: int, seed: int) -> Iterator[Example]:
        for number in itertools.count() if self._most == 0 else range(count):
            yield Example(input=number, expected=number)
            time.sleep(self._pause_s)


odd = _pipeline(
    "odd",
    lambda count, seed: Dataset(
        name="odd", examples=[Example(input=cast("Payload", object()), expected=0)]
    ),
)
without = _pipeline("without", None)
raising = _pipeline("raising", _raise)
refusing = _pipeline("refusing", _refuse)
exiting = _pipeline("exiting", _exit)
hanging = _pipeline("hanging", _hang)
huge = _pipeline("huge", _huge)
greedy = _pipeline("greedy", _greedy)
few = _pipeline("few", lambda count, seed: _numbers(5, seed))
counted = _pipeline("counted", _count)
megabytes = _pipeline("megabytes", _megabytes)
endless = _pipeline("endless", _OneByOne(0.05, 0))
steady = _pipeline("steady", _OneByOne(0.05, 1))
