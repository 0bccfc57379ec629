"""What every use case works with: the store, the pipelines with their examples, the machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock
from typing import Protocol

from circinus.api.settings import Settings
from circinus.api.store.schedules import ScheduleStore
from circinus.api.store.store import Store
from circinus.api.use_cases.capacity import Capacity
from circinus.api.use_cases.scheduling import ScheduleInForce
from circinus.deploy.profiling.prefix_files import PrefixFiles
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.pipeline import Pipeline
from circinus.scheduler.rolling.scheduler import Upkeep

_KEPT = 8
"""Data sets: making one may take seconds."""


class Catalogue(Protocol):
    """Pipelines by name. Loading may be slow, once; safe to share between threads."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in alphabetical order; none is loaded for it."""

    def pipeline(self, name: str) -> Pipeline:
        """Give a pipeline.

        Raises:
            InvalidInput: If none has that name, or it cannot be loaded.
        """

    def reference(self, name: str) -> str:
        """Give what another process of this service loads the pipeline by.

        Raises:
            InvalidInput: If none has that name.
        """


class ExampleSource:
    """Gives data sets by pipeline, count and seed, kept for a while. Safe to share by threads."""

    def __init__(self, catalogue: Catalogue, *, limit: int) -> None:
        self._limit = limit  # most examples that a client may ask for
        self._lock = Lock()

        @lru_cache(_KEPT)
        def kept(pipeline: str, count: int, seed: int) -> Dataset:
            return made(offered(catalogue, pipeline), count, seed)

        self._kept = kept

    def check(self, count: int, *, field: str = "examples") -> None:
        """Raise InvalidInput if a client may not ask for so many."""
        checks.require(1 <= count <= self._limit, field, f"must be 1 to {self._limit}", count)

    def examples(self, pipeline: str, count: int, seed: int) -> Dataset:
        """Give a data set.

        Raises:
            InvalidInput: If the pipeline is not offered, or the count is above the limit.
        """
        self.check(count)
        with self._lock:
            return self._kept(pipeline, count, seed)


@dataclass(frozen=True, kw_only=True)
class ServiceParts:
    """What a service and its planning workers are made of.

    Attributes:
        settings: Of the operator.
        infrastructure: As it is stated.
        catalogue: Pipelines offered.
        store: Of queries; its tables exist.
        schedules: The store of schedules, in the same database.
        clock: Of everything.
        upkeep: How schedules are made.
        quotas: Of tenants.
    """

    settings: Settings
    infrastructure: Infrastructure
    catalogue: Catalogue
    store: Store
    schedules: ScheduleStore
    clock: Clock
    upkeep: Upkeep
    quotas: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def examples(self) -> ExampleSource:
        """Examples of the pipelines."""
        return ExampleSource(self.catalogue, limit=self.settings.examples_limit)

    @cached_property
    def capacity(self) -> Capacity:
        """The machines there are."""
        return Capacity(stated=self.infrastructure, store=self.schedules, clock=self.clock)

    @cached_property
    def in_force(self) -> ScheduleInForce:
        """The schedule."""
        return ScheduleInForce(self.schedules)

    @cached_property
    def outputs(self) -> PrefixFiles | None:
        """Of operators, shared by queries and planning workers; None: not kept."""
        folder = self.settings.outputs
        return None if folder is None else PrefixFiles(folder, self.settings.outputs_limit_bytes)

    def pipeline(self, name: str) -> Pipeline:
        """Give a pipeline that a client names, see `offered`."""
        return offered(self.catalogue, name)


def offered(catalogue: Catalogue, name: str) -> Pipeline:
    """Give a pipeline that a client names, with examples of its own.

    Raises:
        InvalidInput: If none has that name, it brings no examples, or this machine lacks what it
            needs.
    """
    if name not in catalogue.names:  # never a `module:attribute`: that would run a client's code
        known = ", ".join(catalogue.names) or "none is"
        raise InvalidInput.of("pipeline", f"must be registered ({known})", name)
    pipeline = catalogue.pipeline(name)
    if pipeline.examples is None:
        raise InvalidInput.of("pipeline", "must bring examples to be planned by a service", name)
    pipeline.require_available()
    return pipeline


def made(pipeline: Pipeline, count: int, seed: int) -> Dataset:
    """Give examples of a pipeline.

    Raises:
        InvalidInput: If it brings none.
    """
    if pipeline.examples is None:
        raise InvalidInput.of("pipeline", "must bring examples", pipeline.name)
    return pipeline.examples(count, seed)
