"""Measurements of a query, and answers from them without measuring anything."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from circinus.api.schemas.explanation import BreakEvenView, ExplanationView, WhatIfBody, WhatIfView
from circinus.api.schemas.planning import planning_view
from circinus.api.schemas.plans import plan_view
from circinus.api.schemas.progress import shortfall_view
from circinus.api.store.journal import edition_of
from circinus.api.store.records import StoredPlan, StoredQuery
from circinus.api.use_cases.changes import (
    break_even_view,
    changed_infrastructure,
    changed_query,
    rates_of,
)
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.planning import Planner, planner_of
from circinus.pipelines import units
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.features import InputFeatures, features_of
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.draws import drawing_as
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import Query
from circinus.planner.answers.break_even import break_even
from circinus.planner.answers.explaining import explained
from circinus.planner.answers.known import Answer, Known
from circinus.planner.search.result import undecided_words
from circinus.profiler.drawing import Drawing
from circinus.profiler.journal import MeasuredInput, profiles_of

_MOST_QUERIES = 8
"""Queries: one with 2,016 configurations takes some 20 MB."""


def drawn(planner: Planner, pipeline: Pipeline, dataset: Dataset, seed: int) -> Drawing:
    """Return the order in which a planner draws the inputs of a data set."""

    def features() -> InputFeatures:
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
        """Return what was measured so far; InvalidInput if the pipeline is no longer offered."""
        query = record.query
        pipeline = parts.pipeline(query.pipeline)
        source, planner = record.request.data, planner_of(query.planning)

        def features() -> InputFeatures:  # few methods use them: examples may be slow
            examples = parts.data(source, query.pipeline).examples
            return features_of(pipeline, (example.input for example in examples))

        count = parts.count(source, query.pipeline)
        drawing = planner.drawing(features, count, query.seed)
        everything = parts.store.journal(record.id, edition_of(pipeline)).everything()
        plans = [stored.plan for stored in parts.store.plans(record.id)]
        stochastic = record.planned.seen_to_draw if record.planned else ()
        return cls.made(pipeline.graph, query, drawing, everything, plans, stochastic)

    @classmethod
    def made(
        cls,
        graph: PipelineGraph,
        query: Query,
        drawing: Drawing,
        measured: Iterable[tuple[Configuration, MeasuredInput]],
        plans: Iterable[Plan],
        seen_to_draw: Iterable[str] = (),  # operators that are not declared to
    ) -> Knowledge:
        """Return the knowledge of a query's measurements, from which its plans are."""
        known = Known(
            graph=drawing_as(graph, {*seen_to_draw, *query.draws}),
            profiles=profiles_of(measured, drawing.order, len(graph.operators)),
            population=len(drawing.order),
            # The plans are those for the query's accuracy objective.
            trusted={plan.configuration: query.slo.accuracy for plan in plans},
        )
        return cls(known=known, planner=planner_of(query.planning), drawing=drawing)

    def answer(self, query: Query, infrastructure: Infrastructure) -> Answer:
        """Return the answer for the query, changed, elsewhere; InvalidInput if it does not fit."""
        return self.planner.answer(query, infrastructure, self.known, self.drawing)

    def work(self, plan: Plan) -> Work:
        """Return the effect of a plan's configuration on inputs; InvalidInput if not measured."""
        for profile in self.known.profiles:
            if profile.configuration == plan.configuration:
                return Work.of(profile)
        raise InvalidInput.of("plan", "must be of a configuration that was measured", plan.id)

    def explain(
        self, plan: Plan, query: Query, here: Infrastructure, now: Answer | None = None
    ) -> ExplanationView:
        """Return why a plan is what it is; InvalidInput if its configuration was not measured.

        `now` is the answer to the query here, if it is known already.
        """
        return ExplanationView.of(
            explained(plan, now or self.answer(query, here), self.known),
            plan=plan_view(plan, query.slo, here),
            planning=planning_view(query.planning),
        )

    def what_if(
        self, query: Query, here: Infrastructure, change: WhatIfBody, now: Answer | None = None
    ) -> WhatIfView:
        """Return the effect of a change; InvalidInput if it does not fit. `now`: see `explain`."""
        changed, there = changed_query(query, change), changed_infrastructure(here, change)
        before, after = now or self.answer(query, here), self.answer(changed, there)
        return WhatIfView(
            words="; ".join((_words(before.plans, after.plans), *_undecided(after))),
            before=[plan_view(plan, query.slo, here) for plan in before.plans],
            after=[plan_view(plan, changed.slo, there) for plan in after.plans],
            shortfall=shortfall_view(after.shortfall, changed.slo, there),
            break_even=self._break_even(changed, there, change.rate) if change.rate else None,
        )

    def _break_even(self, query: Query, there: Infrastructure, rates: str) -> BreakEvenView:
        low, high = rates_of(query, rates)

        def plans_at(rate: float) -> Sequence[Plan]:
            rated = replace(query, request_rate_per_s=rate)
            return self.planner.every_plan(rated, there, self.known, self.drawing)

        return break_even_view(break_even(plans_at, low, high), query, there)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Subject:
    """A query as questions about it find it."""

    record: StoredQuery
    knowledge: Knowledge
    now: Answer  # on the present infrastructure


@dataclass(slots=True, eq=False)
class Answers:
    """Answers questions about queries by their measurements. Safe to share between threads.

    Reading and judging measurements takes longer than any question: the results for the latest
    queries are cached until these change.
    """

    parts: ServiceParts
    _known: OrderedDict[tuple[str, int], _Subject] = field(default_factory=OrderedDict, init=False)
    _one_at_a_time: Lock = field(default_factory=Lock, init=False)

    def explain(self, stored: StoredPlan) -> ExplanationView:
        """Return why a plan is what it is; InvalidInput if its configuration was not measured."""
        subject, here = self._subject(stored.query_id), self.parts.infrastructure
        return subject.knowledge.explain(stored.plan, subject.record.query, here, subject.now)

    def what_if(self, query_id: str, change: WhatIfBody) -> WhatIfView:
        """Return what a change would do, measuring nothing.

        NotFound if there is no query of that id, InvalidInput if the change does not fit.
        """
        subject, here = self._subject(query_id), self.parts.infrastructure
        return subject.knowledge.what_if(subject.record.query, here, change, subject.now)

    def _subject(self, query_id: str) -> _Subject:
        key = query_id, self.parts.store.state(query_id)[0]
        with self._one_at_a_time:
            if (cached := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return cached
        record = self.parts.store.query(query_id)
        knowledge = Knowledge.of(self.parts, record)
        now = knowledge.answer(record.query, self.parts.infrastructure)
        made = _Subject(record=record, knowledge=knowledge, now=now)
        with self._one_at_a_time:
            self._known[key] = made
            while len(self._known) > _MOST_QUERIES:
                self._known.popitem(last=False)
        return made


def _words(before: Sequence[Plan], after: Sequence[Plan]) -> str:
    old, new = next(iter(before), None), next(iter(after), None)
    if new is None:
        return (
            "infeasible: no measured plan would do"
            if old
            else "no measured plan does, nor would one"
        )
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
    costs = (old.cost_usd_per_hour, new.cost_usd_per_hour)
    cost = " to ".join(map(units.dollars_per_hour, costs))
    parts = [f"the cheapest plan would go from {cost}"]
    if moved:
        parts.append(f"move {', '.join(moved)}")
    if new.configuration != old.configuration:
        parts.append(f"be configured {_changes(old, new)}")
    return ", ".join(parts)


def _undecided(after: Answer) -> tuple[str, ...]:
    """Return how much of the answer a replan would measure, in words."""
    if after.plans or not after.undecided:
        return undecided_words(after.undecided)
    return (f"a replan measures {after.undecided} configurations that may still do",)


def _changes(old: Plan, new: Plan) -> str:
    pairs = zip(old.configuration.values, new.configuration.values, strict=True)
    return " ".join(f"{o}.{k}={b}" for (o, k, a), (_, _, b) in pairs if a != b)
