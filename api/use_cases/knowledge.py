"""What was measured of a query, and what follows from it without measuring anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from circinus.api.schemas.explanation import ExplanationView, WhatIfBody, WhatIfView
from circinus.api.schemas.planning import planning_view
from circinus.api.schemas.plans import plan_view
from circinus.api.schemas.progress import shortfall_view
from circinus.api.store.journal import edition_of
from circinus.api.store.records import StoredPlan, StoredQuery
from circinus.api.use_cases.changes import changed_infrastructure, changed_query
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.planning import Planner, planner_of
from circinus.pipelines import units
from circinus.pipelines.configuration import Configuration
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.graph import PipelineGraph
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.latency import Work
from circinus.pipelines.pipeline import Pipeline, features_of
from circinus.pipelines.plan import Plan
from circinus.pipelines.profile import FloatArray
from circinus.pipelines.query import Query
from circinus.planner.answers.explaining import explained
from circinus.planner.answers.known import Answer, Known
from circinus.profiler.drawing import Drawing
from circinus.profiler.journal import MeasuredInput, profiles_of


def drawn(planner: Planner, pipeline: Pipeline, dataset: Dataset, seed: int) -> Drawing:
    """Give the order in which a planner draws the inputs of a data set."""

    def features() -> FloatArray | None:
        return features_of(pipeline, (example.input for example in dataset.examples))

    return planner.drawing(features, len(dataset), seed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Knowledge:
    """What was measured of a query, and who judges it."""

    known: Known  # profiles, one per configuration, in one order of inputs; none before the first
    planner: Planner  # of the query's method
    drawing: Drawing  # the order

    @classmethod
    def of(cls, parts: ServiceParts, record: StoredQuery) -> Knowledge:
        """Give what was measured so far; InvalidInput if the pipeline is not offered any more."""
        query = record.query
        pipeline = parts.pipeline(query.pipeline)
        source, planner = record.request.data, planner_of(query.planning)

        def features() -> FloatArray | None:  # asked for by few methods: examples may be slow
            examples = parts.data(source, query.pipeline).examples
            return features_of(pipeline, (example.input for example in examples))

        count = parts.count(source, query.pipeline)
        drawing = planner.drawing(features, count, query.seed)
        everything = parts.store.journal(record.id, edition_of(pipeline)).everything()
        plans = [stored.plan for stored in parts.store.plans(record.id)]
        return cls.made(pipeline.graph, query, drawing, everything, plans)

    @classmethod
    def made(
        cls,
        graph: PipelineGraph,
        query: Query,
        drawing: Drawing,
        measured: Iterable[tuple[Configuration, MeasuredInput]],
        plans: Iterable[Plan],
    ) -> Knowledge:
        """Give what measurements of a query are, of which its plans were found."""
        known = Known(
            graph=graph,
            profiles=profiles_of(measured, drawing.order, len(graph.operators)),
            population=len(drawing.order),
            # The plans were found for the accuracy that was asked for.
            trusted={plan.configuration: query.slo.accuracy for plan in plans},
        )
        return cls(known=known, planner=planner_of(query.planning), drawing=drawing)

    def answer(self, query: Query, infrastructure: Infrastructure) -> Answer:
        """Give what they say of the query, changed, elsewhere; InvalidInput if it does not fit."""
        return self.planner.answer(query, infrastructure, self.known, self.drawing)

    def work(self, plan: Plan) -> Work:
        """Give what a plan's configuration does to inputs; InvalidInput if it was not measured."""
        for profile in self.known.profiles:
            if profile.configuration == plan.configuration:
                return Work.of(profile)
        raise InvalidInput.of("plan", "must be of a configuration that was measured", plan.id)

    def explain(self, plan: Plan, query: Query, infrastructure: Infrastructure) -> ExplanationView:
        """Give why a plan is what it is; InvalidInput if its configuration was not measured."""
        return ExplanationView.of(
            explained(plan, self.answer(query, infrastructure), self.known),
            plan=plan_view(plan, query.slo, infrastructure),
            planning=planning_view(query.planning),
        )

    def what_if(self, query: Query, here: Infrastructure, change: WhatIfBody) -> WhatIfView:
        """Give what a change would do; InvalidInput if it does not fit."""
        changed, there = changed_query(query, change), changed_infrastructure(here, change)
        before, after = self.answer(query, here), self.answer(changed, there)
        return WhatIfView(
            words=_words(before.plans, after.plans),
            before=[plan_view(plan, query.slo, here) for plan in before.plans],
            after=[plan_view(plan, changed.slo, there) for plan in after.plans],
            shortfall=shortfall_view(after.shortfall, changed.slo, there),
        )


def explain(parts: ServiceParts, record: StoredQuery, stored: StoredPlan) -> ExplanationView:
    """Give why a plan is what it is; InvalidInput if its configuration was not measured."""
    knowledge = Knowledge.of(parts, record)
    return knowledge.explain(stored.plan, record.query, parts.infrastructure)


def what_if(parts: ServiceParts, record: StoredQuery, change: WhatIfBody) -> WhatIfView:
    """Give what a change would do, measuring nothing; InvalidInput if it does not fit."""
    return Knowledge.of(parts, record).what_if(record.query, parts.infrastructure, change)


def _words(before: Sequence[Plan], after: Sequence[Plan]) -> str:
    old, new = next(iter(before), None), next(iter(after), None)
    if new is None:
        return "no measured plan would do" if old else "no measured plan does, nor would one"
    if old is None:
        return (
            f"a plan for {units.dollars_per_hour(new.cost_usd_per_hour)} would do; none does now"
        )
    moved = [
        f"{operator} from {tier} to {new.deployment.placement[operator]}"
        for operator, tier in old.deployment.placement.items()
        if new.deployment.placement[operator] != tier
    ]
    alike = old.cost_usd_per_hour == new.cost_usd_per_hour and not moved
    if alike and old.configuration == new.configuration:
        return "the cheapest plan would stay as it is"
    told = (old.cost_usd_per_hour, new.cost_usd_per_hour)
    cost = " to ".join(map(units.dollars_per_hour, told))
    parts = [f"the cheapest plan would go from {cost}"]
    if moved:
        parts.append(f"move {', '.join(moved)}")
    if new.configuration != old.configuration:
        parts.append(f"be configured {_changes(old, new)}")
    return ", ".join(parts)


def _changes(old: Plan, new: Plan) -> str:
    pairs = zip(old.configuration.values, new.configuration.values, strict=True)
    return " ".join(f"{o}.{k}={b}" for (o, k, a), (_, _, b) in pairs if a != b)
