"""Data sets of users: uploaded, listed, deleted, and opened for planning."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import Protocol

from circinus.api.schemas.service import DatasetView
from circinus.api.settings import Settings
from circinus.api.store.datasets import SqlDatasets, StoredDataset
from circinus.deploy.profiling.examples import ExampleSet
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import (
    LARGEST_UNPACKED,
    Dataset,
    Example,
    dataset_id,
    open_dataset,
    unpacked,
)
from circinus.pipelines.model.payload import content_hash


def take_in(
    datasets: SqlDatasets, kind: str, content: bytes, settings: Settings, clock: Clock
) -> tuple[StoredDataset, bool]:
    """Store a content; return whether it is new; InvalidInput with every faulty example."""
    with tempfile.TemporaryDirectory() as folder:
        examples = unpacked(
            kind,
            content,
            Path(folder),
            most_inputs=settings.dataset_inputs_limit,
            most_bytes=settings.dataset_limit_bytes,
        )
    return datasets.add(
        StoredDataset(
            id=dataset_id(kind, content),
            kind=kind,
            size_bytes=len(content),
            inputs=len(examples),
            created_at=clock.timestamp(),
        ),
        content,
    )


def dataset_views(datasets: SqlDatasets, *which: StoredDataset) -> list[DatasetView]:
    """Return data sets, each with the queries that use it."""
    users = datasets.users()
    return [DatasetView.of(one, queries=users.get(one.id, [])) for one in which]


def forget(datasets: SqlDatasets, dataset: str, folder: Path) -> None:
    """Delete a data set; Conflict while a query uses it, NotFound if there is none of that id."""
    datasets.delete(dataset)
    rmtree(folder / dataset, ignore_errors=True)  # the unpacked copies of other computers stay


def open_stored(datasets: SqlDatasets, dataset: str, folder: Path) -> Dataset:
    """Return a data set's examples, unpacked below a folder; NotFound if there is none."""
    return open_dataset(*unpacked_at(datasets, dataset, folder))


def unpacked_at(datasets: SqlDatasets, dataset: str, folder: Path) -> tuple[str, Path]:
    """Return kind and place of a data set, unpacked below a folder; NotFound if there is none."""
    kind = datasets.get(dataset).kind
    home = folder / dataset
    if not home.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            fresh = Path(made) / "fresh"
            fresh.mkdir(mode=0o700)
            # It was looked at when it was handed over.
            unpacked(kind, datasets.content(dataset), fresh, most_bytes=LARGEST_UNPACKED)
            try:
                os.rename(fresh, home)
            except OSError:  # another process was first
                checks.require(home.is_dir(), "datasets", "must be a writable folder", str(folder))
    return kind, home


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
        """Return one example of a set."""
        made = wanted.examples(self.pipeline)
        example = await asyncio.to_thread(next, islice(made, index, None), None)
        if example is None:
            raise InvalidInput.of("example.index", "must be one of the examples", index)
        return example

    async def hashes(self, wanted: ExampleSet, timeout_s: float) -> Collection[str]:
        """Return the hashes of a set's inputs."""
        made = wanted.examples(self.pipeline)
        return await asyncio.to_thread(lambda: {content_hash(each.input) for each in made})

    async def count(self, wanted: ExampleSet, timeout_s: float) -> int:
        """Return the number of examples of a set."""
        made = wanted.examples(self.pipeline)
        return await asyncio.to_thread(lambda: sum(1 for _ in made))

    async def close(self) -> None:
        """End nothing: it started nothing."""
