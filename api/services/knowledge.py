"""What was measured of a query, and what follows from it without measuring anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from api.documents import from_document
from api.services.changes import Circumstances, changed_infrastructure, changed_query
from api.store.records import QueryRecord
from api.store.store import Store
from deploy.planning import Planner
from pipelines.errors import InvalidInput
from pipelines.infrastructure import Infrastructure
from pipelines.latency import Work
from pipelines.pipeline import Pipeline
from pipelines.plan import Plan
from pipelines.profile import Profile
from pipelines.query import Query
from planner.explaining import Explanation, explained
from planner.known import Answer, Known
from profiler.drawing import Drawing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurements:
    """What was measured of a query.

    Attributes:
        profiles: One per configuration, in one order of inputs.
        population: Number of inputs.
        planner: Of the query's method: judges them.
        drawing: The order.
    """

    profiles: Sequence[Profile]
    population: int
    planner: Planner
    drawing: Drawing


class MeasurementSource(Protocol):
    """Finds what was measured of queries. Safe to share between threads."""

    def of(
        self, query_id: str, query: Query, pipeline: Pipeline, examples: Examples
    ) -> Measurements:
        """Give what was measured of a query so far; no profiles before the first."""


@dataclass(frozen=True, slots=True)
class Examples:
    """The data that a query was profiled on.

    Attributes:
        count: Number of examples.
        seed: Of the examples.
    """

    count: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What a change of circumstances would do to a query.

    Attributes:
        before: What is known as things are.
        after: What is known of the changed query on the changed infrastructure.
        query: The changed query.
        infrastructure: The changed infrastructure.
        words: What changes for the cheapest plan, in words.
    """

    before: Answer
    after: Answer
    query: Query
    infrastructure: Infrastructure
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Answers questions about queries from what was measured. Safe to share between threads.

    Attributes:
        store: With the queries.
        source: With the measurements.
        infrastructure: Planned for.
    """

    store: Store
    source: MeasurementSource
    infrastructure: Infrastructure

    def explain(
        self, plan_id: str, record: QueryRecord, query: Query, pipeline: Pipeline
    ) -> Explanation:
        """Give why a plan is what it is.

        Raises:
            InvalidInput: If its configuration is not among the measurements.
            NotFound: If there is no such plan.
        """
        plan = from_document(Plan, self.store.plan(plan_id).plan)
        measured, known = self._known(record, query, pipeline)
        found = measured.planner.answer(query, self.infrastructure, known, measured.drawing)
        return explained(plan, found, known)

    def what_if(
        self, record: QueryRecord, query: Query, pipeline: Pipeline, change: Circumstances
    ) -> WhatIf:
        """Give what a change of circumstances would do; nothing is changed or measured.

        Raises:
            InvalidInput: If the change is malformed or does not fit.
        """
        other = changed_query(query, change)
        elsewhere = changed_infrastructure(self.infrastructure, change)
        measured, known = self._known(record, query, pipeline)
        planner, drawing = measured.planner, measured.drawing
        before = planner.answer(query, self.infrastructure, known, drawing)
        after = planner.answer(other, elsewhere, known, drawing)
        return WhatIf(
            before=before,
            after=after,
            query=other,
            infrastructure=elsewhere,
            words=_words(before.plans, after.plans),
        )

    def answer(
        self,
        record: QueryRecord,
        query: Query,
        pipeline: Pipeline,
        infrastructure: Infrastructure,
    ) -> Answer:
        """Give what the measurements of a query say of it, changed, somewhere else.

        Raises:
            InvalidInput: If it does not fit.
        """
        measured, known = self._known(record, query, pipeline)
        return measured.planner.answer(query, infrastructure, known, measured.drawing)

    def work(self, record: QueryRecord, query: Query, pipeline: Pipeline, plan: Plan) -> Work:
        """Give what a plan's configuration does to inputs.

        Raises:
            InvalidInput: If it is not among the measurements.
        """
        _, known = self._known(record, query, pipeline)
        mine = (p for p in known.profiles if p.configuration == plan.configuration)
        profile = next(mine, None)
        if profile is None:
            raise InvalidInput.of("plan", "must be of a configuration that was measured", plan.id)
        return Work.of(profile)

    def _known(
        self, record: QueryRecord, query: Query, pipeline: Pipeline
    ) -> tuple[Measurements, Known]:
        data = record.spec["data"]
        told: Mapping[str, object] = data if isinstance(data, Mapping) else {}
        examples = Examples(int(str(told.get("examples", 0))), int(str(told.get("seed", 0))))
        measured = self.source.of(record.id, query, pipeline, examples)
        plans = [from_document(Plan, stored.plan) for stored in self.store.plans(record.id)]
        known = Known(
            graph=pipeline.graph,
            profiles=measured.profiles,
            population=measured.population,
            trusted={plan.configuration: _asked(record) for plan in plans},
        )
        return measured, known


def _asked(record: QueryRecord) -> float:
    """Give the accuracy that the stored plans were found for."""
    slo = record.spec["slo"]
    return float(str(slo["accuracy"])) if isinstance(slo, Mapping) else 1.0


def _words(before: Iterable[Plan], after: Iterable[Plan]) -> str:
    old, new = next(iter(before), None), next(iter(after), None)
    if new is None:
        return "no measured plan would do" if old else "no measured plan does, nor would one"
    if old is None:
        return f"a plan for {new.cost_usd_per_hour:.4g} USD per hour would do; none does now"
    moved = [
        f"{operator} from {tier} to {new.deployment.placement[operator]}"
        for operator, tier in old.deployment.placement.items()
        if new.deployment.placement[operator] != tier
    ]
    alike = old.cost_usd_per_hour == new.cost_usd_per_hour and not moved
    if alike and old.configuration == new.configuration:
        return "the cheapest plan would stay as it is"
    cost = f"{old.cost_usd_per_hour:.4g} to {new.cost_usd_per_hour:.4g} USD per hour"
    parts = [f"the cheapest plan would go from {cost}"]
    if moved:
        parts.append(f"move {', '.join(moved)}")
    if new.configuration != old.configuration:
        parts.append(f"be configured {_changes(old, new)}")
    return ", ".join(parts)


def _changes(old: Plan, new: Plan) -> str:
    pairs = zip(old.configuration.values, new.configuration.values, strict=True)
    return " ".join(f"{o}.{k}={b}" for (o, k, a), (_, _, b) in pairs if a != b)
