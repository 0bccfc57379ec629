"""Where the examples that requests name come from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from circinus.deploy.profiling.examples import ExampleSet
from circinus.pipelines import checks
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.payload import content_hash


class ExampleSource(Protocol):
    """Returns examples. Used within one event loop, which it never blocks.

    Errors of all: Unavailable if they are not there in time, or too many others are made;
    InvalidInput if there is none, or they are too large; OperatorFailed if making them fails.
    """

    async def example(self, wanted: ExampleSet, index: int, timeout_s: float) -> Example:
        """Return one of a set; InvalidInput also if the set has no more."""

    async def hashes(self, wanted: ExampleSet, timeout_s: float) -> Collection[str]:
        """Return the hashes of a set's inputs, see `content_hash`."""

    async def count(self, wanted: ExampleSet, timeout_s: float) -> int:
        """Return how many a set has."""

    async def close(self) -> None:
        """End what makes them."""


@dataclass(frozen=True, slots=True)
class ExamplesHere:
    """An `ExampleSource` in this process, where operators run, too: nothing bounds it."""

    pipeline: Callable[[str], Pipeline]  # by its reference

    async def example(self, wanted: ExampleSet, index: int, timeout_s: float) -> Example:
        """See `ExampleSource`."""
        made = wanted.examples(self.pipeline)
        found = await asyncio.to_thread(lambda: list(islice(made, index, index + 1)))
        checks.require(bool(found), "example.index", "must be one of the examples", index)
        return found[0]

    async def hashes(self, wanted: ExampleSet, timeout_s: float) -> Collection[str]:
        """See there."""
        made = wanted.examples(self.pipeline)
        return await asyncio.to_thread(lambda: {content_hash(each.input) for each in made})

    async def count(self, wanted: ExampleSet, timeout_s: float) -> int:
        """See there."""
        made = wanted.examples(self.pipeline)
        return await asyncio.to_thread(lambda: sum(1 for _ in made))

    async def close(self) -> None:
        """See there: nothing is left to end."""
