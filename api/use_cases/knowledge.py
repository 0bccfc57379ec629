"""What was measured of a query, and what follows from it without measuring anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from circinus.api.schemas.explanation import WhatIfBody
from circinus.api.store.engine import connect
from circinus.api.store.journal import SqlJournal, edition_of
from circinus.api.store.records import StoredPlan, StoredQuery
from circinus.api.use_cases.changes import changed_infrastructure, changed_query
from circinus.api.use_cases.parts import ServiceParts, made
from circinus.deploy.planning import Planner, planner_of
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.latency import Work
from circinus.pipelines.pipeline import Pipeline, features_of
from circinus.pipelines.plan import Plan
from circinus.pipelines.profile import FloatArray
from circinus.pipelines.query import Query
from circinus.planner.answers.explaining import Explanation, explained
from circinus.planner.answers.known import Answer, Known
from circinus.profiler.drawing import Drawing
from circinus.profiler.journal import profiles_of


def drawn(planner: Planner, pipeline: Pipeline, dataset: Dataset, seed: int) -> Drawing:
    """Give the order in which a planner draws the inputs of a data set."""

    def features() -> FloatArray | None:
        return features_of(pipeline, (example.input for example in dataset.examples))

    return planner.drawing(features, len(dataset), seed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Knowledge:
    """What was measured of a query, and who judges it.

    Attributes:
        known: Profiles, one per configuration, in one order of inputs; none before the first.
        planner: Of the query's method.
        drawing: The order.
    """

    known: Known
    planner: Planner
    drawing: Drawing

    @classmethod
    def of(cls, parts: ServiceParts, record: StoredQuery) -> Knowledge:
        """Give what planning workers measured of a query so far.

        Raises:
            InvalidInput: If its pipeline is not offered any more.
        """
        query, data = record.query, record.request.data
        pipeline = parts.pipeline(query.pipeline)
        dataset = made(pipeline, data.examples or 0, data.seed)
        planner = planner_of(query.planning)
        drawing = drawn(planner, pipeline, dataset, query.seed)
        journal = SqlJournal(connect(parts.settings.database_url), record.id, edition_of(pipeline))
        everything, operators = journal.everything(), len(pipeline.graph.operators)
        plans = (stored.plan for stored in parts.store.plans(record.id))
        known = Known(
            graph=pipeline.graph,
            profiles=profiles_of(everything, drawing.order, operators),
            population=len(drawing.order),
            # The stored plans were found for the accuracy that was asked for.
            trusted={plan.configuration: query.slo.accuracy for plan in plans},
        )
        return cls(known=known, planner=planner, drawing=drawing)

    def answer(self, query: Query, infrastructure: Infrastructure) -> Answer:
        """Give what the measurements say of the query, changed, somewhere else.

        Raises:
            InvalidInput: If it does not fit.
        """
        return self.planner.answer(query, infrastructure, self.known, self.drawing)

    def work(self, plan: Plan) -> Work:
        """Give what a plan's configuration does to inputs.

        Raises:
            InvalidInput: If it is not among the measurements.
        """
        for profile in self.known.profiles:
            if profile.configuration == plan.configuration:
                return Work.of(profile)
        raise InvalidInput.of("plan", "must be of a configuration that was measured", plan.id)


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


def explain(parts: ServiceParts, record: StoredQuery, stored: StoredPlan) -> Explanation:
    """Give why a plan is what it is.

    Raises:
        InvalidInput: If its configuration is not among the measurements.
    """
    knowledge = Knowledge.of(parts, record)
    found = knowledge.answer(record.query, parts.infrastructure)
    return explained(stored.plan, found, knowledge.known)


def what_if(parts: ServiceParts, record: StoredQuery, change: WhatIfBody) -> WhatIf:
    """Give what a change of circumstances would do; nothing is changed or measured.

    Raises:
        InvalidInput: If the change is malformed or does not fit.
    """
    query = changed_query(record.query, change)
    infrastructure = changed_infrastructure(parts.infrastructure, change)
    knowledge = Knowledge.of(parts, record)
    before = knowledge.answer(record.query, parts.infrastructure)
    after = knowledge.answer(query, infrastructure)
    return WhatIf(
        before=before,
        after=after,
        query=query,
        infrastructure=infrastructure,
        words=_words(before.plans, after.plans),
    )


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
