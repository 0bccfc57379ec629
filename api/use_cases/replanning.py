"""Other plans for a query: for other objectives, other data, or a world that drifted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeGuard

from circinus.api.schemas.explanation import ReplanBody, ReplanData
from circinus.api.store.records import (
    Conflict,
    Replan,
    Search,
    StoredQuery,
    plan_documents,
    to_document,
)
from circinus.api.use_cases.changes import changed_query
from circinus.api.use_cases.knowledge import Knowledge
from circinus.api.use_cases.parts import ServiceParts
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import Plan, with_known_memory
from circinus.pipelines.model.query import Query, fitted
from circinus.planner.answers.drift import Drift, ObservedRequests, as_observed, eased, parts_of
from circinus.planner.answers.known import Answer, result_of
from circinus.planner.search.result import PlanningSummary


def replan_for_change(parts: ServiceParts, record: StoredQuery, change: ReplanBody) -> StoredQuery:
    """Return the query after a change of its SLOs or its data.

    Plans for other SLOs are searched among the measurements. They replace the old ones at once,
    and the old one serves until the new one does. Where there are none, and for other data, the
    query is planned anew; no measurement on the same data is repeated. InvalidInput if the change
    is malformed or makes the query invalid, Conflict if it is in planning or retired.
    """
    data = change.data
    if data is not None:
        parts.require_few(data.examples, "data.examples")
    wanted = changed_query(record.query, change)
    replan = Replan(
        query_id=record.id,
        spec=_spec(record.spec, wanted, data),
        why="its data changed" if data is not None else "its objectives changed",
        at=parts.clock.timestamp(),
        forget=data is not None,
    )
    answer = None
    if data is None:
        answer = Knowledge.of(parts, record).answer(wanted, parts.infrastructure)
    _store(parts, record, replan, answer)
    if answer is not None and answer.plans and answer.undecided:
        _search_for_better(parts, record, answer, parts.infrastructure)
    return parts.store.query(record.id)


def replan_for_drift(
    parts: ServiceParts,
    record: StoredQuery,
    plan: Plan,
    drift: Drift,
    window: ObservedRequests,
    data: ReplanData | None,
) -> str:
    """Replan a query whose deployed plan drifted; return the outcome, in words.

    Where latency drifted, plans are searched for the infrastructure as observed: among the
    measurements, then by searching on while the old ones serve. Where accuracy did, the query is
    planned anew on the data that showed it; None: no expected output was known.
    """
    query = record.query
    replan = Replan(
        query_id=record.id, spec=record.spec, why=drift.words, at=parts.clock.timestamp()
    )
    if drift.accuracy and data is not None:
        anew = replace(replan, spec=_spec(record.spec, query, data), forget=True)
        _store(parts, record, anew)
        return "planned anew on the data that showed it"
    if record.searching is not None:
        return "it is searched on already: nothing was changed"
    graph = parts.pipeline(query.pipeline).graph
    tiers = fitted(query, graph, parts.infrastructure).infrastructure
    knowledge = Knowledge.of(parts, record)
    observed = as_observed(tiers, plan, parts_of(graph, tiers, knowledge.work(plan), plan), window)
    if observed is tiers:
        return "neither tiers nor links are slower, requests wait: nothing was changed"
    # The query's own device is part of what was observed.
    answer = knowledge.answer(replace(query, device=None), observed)
    if not answer.plans:
        return f"no measured plan would do: {_search_on(parts, record, drift.words, observed)}"
    _store(parts, record, replan, answer)
    done = "replaced by plans that were measured earlier"
    if not answer.undecided:
        return done
    _search_for_better(parts, record, answer, observed)
    return f"{done}; {answer.undecided} configurations that may be better are searched"


def _search_on(
    parts: ServiceParts, record: StoredQuery, why: str, observed: Infrastructure
) -> str:
    vain = record.search
    if vain is not None and not eased(observed, vain.observed):
        return "a search in a world no slower than this one found none, nothing was changed"
    if not _request_search(parts, record, why, observed):
        return "the query changed meanwhile, nothing was changed"
    return "it is searched on while the old one serves"


def _search_for_better(
    parts: ServiceParts, record: StoredQuery, answer: Answer, infrastructure: Infrastructure
) -> None:
    """Request a search among undecided configurations, while plans measured earlier serve."""
    why = f"{answer.undecided} configurations may be cheaper or more accurate"
    _request_search(parts, record, why, infrastructure)  # one in planning again needs none


def _request_search(
    parts: ServiceParts, record: StoredQuery, why: str, infrastructure: Infrastructure
) -> bool:
    at = parts.clock.timestamp()
    search = Search(why=why, infrastructure=to_document(infrastructure), at=at)
    return parts.store.search_on(record.id, search)


def _store(
    parts: ServiceParts, record: StoredQuery, replan: Replan, answer: Answer | None = None
) -> None:
    if answer is not None and answer.plans:
        summary = PlanningSummary.of(result_of(answer))
        if (before := record.planned) is not None:
            summary = summary.after(before)
        earlier = [each.plan for each in parts.store.plans(record.id)]
        plans = plan_documents(with_known_memory(answer.plans, earlier))
        replan = replace(replan, result=to_document(summary), plans=plans)
    if not parts.store.replan(replan):
        rule = "must be planned and not retired to be planned again"
        raise Conflict("phase", rule, record.phase.value)


def _spec(spec: Mapping[str, object], query: Query, data: ReplanData | None) -> dict[str, object]:
    slo, document = query.slo, spec.get("slo")
    slo_document = dict(document) if isinstance(document, Mapping) else {}
    slo_document["accuracy"] = slo.accuracy
    if "latency_s" in slo_document or slo.throughput_per_s is None:
        slo_document["latency_s"] = slo.latency_s
    for cost in ("cost_usd_per_hour", "cost_usd_per_1000_requests"):
        if getattr(slo, cost) is not None:
            slo_document[cost] = getattr(slo, cost)
    if data is None:
        return {**spec, "slo": slo_document}
    before = spec.get("data")
    unchanged = {"on_failure": before["on_failure"]} if _has(before, "on_failure") else {}
    return {**spec, "slo": slo_document, "data": {**unchanged, **data.model_dump()}}


def _has(document: object, name: str) -> TypeGuard[Mapping[str, object]]:
    return isinstance(document, Mapping) and name in document
