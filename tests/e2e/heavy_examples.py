"""A pipeline whose examples take long and are large, and one of a number, for a whole service."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from tests.e2e.slow_sum import pipeline as slow_sum

_MANY = 1000
_LARGE = 2**17


def _examples(count: int, seed: int) -> Dataset:
    """Return few at once; many hold the interpreter for minutes, and gigabytes of memory."""
    made = []
    for number in range(1, count + 1):
        padding = np.full(_LARGE if count > _MANY else 1, number % 100, np.uint8)
        if count > _MANY:
            sum(range(2_000_000))
        value = seed * 1000 + number
        made.append(Example(input={"value": value, "padding": padding}, expected=2 * value + 1))
    return Dataset(name="sums", examples=made)


pipeline: Pipeline = replace(slow_sum, name="heavy", examples=_examples)
