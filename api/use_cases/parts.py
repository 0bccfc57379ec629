"""What every use case works with: the store, the pipelines with their examples, the machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Protocol

from circinus.api.schemas.query import DataSource
from circinus.api.settings import Settings
from circinus.api.store.datasets import SqlDatasets
from circinus.api.store.ownership import RequireOwned
from circinus.api.store.store import Store
from circinus.api.use_cases.capacity import Capacity
from circinus.api.use_cases.datasets import open_stored, unpacked_at
from circinus.deploy.profiling.examples import ExampleSet
from circinus.deploy.profiling.prefix_files import PrefixFiles
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload
from circinus.scheduler.problem import Objective, SchedulingPolicy
from circinus.scheduler.rolling.scheduler import Upkeep


class Catalogue(Protocol):
    """Pipelines by name; InvalidInput for one that none has. Safe to share between threads."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in alphabetical order; none is loaded for it."""

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline; InvalidInput also if it cannot be loaded, which may be slow, once."""

    def reference(self, name: str) -> str:
        """Return what another process of this service loads the pipeline by."""


@dataclass(frozen=True, kw_only=True)
class ServiceParts:
    """What a service and its planning workers are made of."""

    settings: Settings  # of the operator
    infrastructure: Infrastructure  # as it is stated
    catalogue: Catalogue  # of the pipelines offered
    store: Store  # its tables exist
    clock: Clock  # of everything
    upkeep: Upkeep  # how schedules are made
    quotas: Mapping[str, float] = field(default_factory=dict)  # of tenants
    # The policy for each objective, for previews; of the objective that is set it is `upkeep`'s
    policies: Mapping[Objective, SchedulingPolicy] = field(default_factory=dict)
    # How many examples a set has, for other threads than the event loop's; None: known once made
    counted: Callable[[ExampleSet], int] | None = None
    # Returns if this process owns the database, which one that plans need not
    require_owned: RequireOwned = lambda: None

    @cached_property
    def capacity(self) -> Capacity:
        """The machines there are."""
        return Capacity(stated=self.infrastructure, store=self.store.schedules, clock=self.clock)

    @property
    def objective(self) -> Objective:
        """What schedules seek."""
        return self.settings.scheduling_objective

    @property
    def most_usd_per_hour(self) -> float:
        """What rented machines and calls may cost; infinite: any money."""
        most = self.settings.most_usd_per_hour
        return inf if most is None else most

    @cached_property
    def outputs(self) -> PrefixFiles | None:
        """Of operators, shared by queries and planning workers; None: not stored."""
        folder = self.settings.outputs
        return None if folder is None else PrefixFiles(folder, self.settings.outputs_limit_bytes)

    @property
    def datasets(self) -> SqlDatasets:
        """That users handed over."""
        return self.store.datasets

    def data(self, source: DataSource, pipeline: str) -> Dataset:
        """Return the inputs that a query is planned on.

        NotFound if it names a data set that is gone, InvalidInput for a pipeline that is not
        offered, or has no examples where the query needs some.
        """
        if source.dataset is not None:
            return open_stored(self.datasets, source.dataset, self.settings.datasets)
        return made(self.pipeline(pipeline), source.examples or 0, source.seed)

    def count(self, source: DataSource, pipeline: str) -> int:
        """Return the number of inputs of `data`; errors as there.

        Unavailable if their pipeline does not make them in time.
        """
        if source.dataset is not None:
            return self.datasets.get(source.dataset).inputs
        if self.counted is None:
            return len(self.data(source, pipeline))
        return self.counted(self.example_set(source, pipeline, inputs_only=True))

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline that a client names.

        InvalidInput if none has that name, or this machine lacks what it needs.
        """
        names = self.catalogue.names
        if name not in names:  # never a `module:attribute`: that would run a client's code
            known = ", ".join(names) or "none is"
            raise InvalidInput.of("pipeline", f"must be registered ({known})", name)
        pipeline = self.catalogue.pipeline(name)
        pipeline.require_available()
        return pipeline

    def require_few(self, count: int, field: str = "examples") -> None:
        """Raise InvalidInput if a client requests too many examples."""
        limit = self.settings.examples_limit
        checks.require(1 <= count <= limit, field, f"must be 1 to {limit}", count)

    def sample(self, pipeline: str) -> Payload:
        """Make an input to try a deployment on; InvalidInput if there is none, or no pipeline."""
        return made(self.pipeline(pipeline), 1, 0).examples[0].input

    def example_set(self, source: DataSource, pipeline: str, *, inputs_only: bool) -> ExampleSet:
        """Return the identity of the examples of `data`; errors as there."""
        if source.dataset is not None:
            where = unpacked_at(self.datasets, source.dataset, self.settings.datasets)
            return ExampleSet(kind=where[0], folder=str(where[1]), inputs_only=inputs_only)
        self.pipeline(pipeline)
        return ExampleSet(
            reference=self.catalogue.reference(pipeline),
            count=source.examples or 0,
            seed=source.seed,
            inputs_only=inputs_only,
        )


def made(pipeline: Pipeline, count: int, seed: int) -> Dataset:
    """Return examples of a pipeline; InvalidInput if it brings none."""
    if pipeline.examples is None:
        rule = "must bring examples: hand over data of your own, and name its data set"
        raise InvalidInput.of("pipeline", rule, pipeline.name)
    return pipeline.examples(count, seed)
