"""Reconciliation of a `PipelineQuery`: the calls to its service, and its status.

Every look starts from the object and the service's queries, never from memory. The queries of an
object are those whose idempotency key begins with its uid. So a controller that was killed at any
point, or missed any event, continues with its next look, and pays for nothing twice. The service's
queries may be a tick old (`queries`), and each action can be repeated.

A new spec is a new query. The query of the spec before serves on until the new one does. If the
new one waits for the capacity that the old one holds, the old one ends first, and an event reports
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from circinus.api.client import Client
from circinus.api.operator.observed import (
    OBJECTIVES_MET,
    objectives_condition,
    observed_facts,
)
from circinus.api.operator.queries import KnownQuery, QueryBook
from circinus.api.operator.scaling import PlannedFor, rescale, scale_facts
from circinus.api.phases import LIVE, QueryPhase
from circinus.api.query_file import query_of
from circinus.deploy.kubernetes.diagnosis import iso_time
from circinus.pipelines.errors import InvalidInput

NO_DEPLOYMENT = "none"
PLANNED = "Planned"
READY = "Ready"
_TROUBLE = frozenset(
    {QueryPhase.INFEASIBLE, QueryPhase.EXHAUSTED, QueryPhase.FAILED, QueryPhase.CANCELLED}
)
REFUSED = "refused"
_UNKNOWN = "unknown"
UNWATCHED = "unwatched"
_OF_QUERY = ("queryId", "planId", "servedBy", "planning", "observed", "replicas", "selector")
_OF_PLAN = ("costUsdPerHour", "slo", "sloStates")
_DIGITS = 6  # of figures in a status


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryObject:
    """An object as the cluster has it."""

    uid: str  # of this object, never used again
    generation: int  # grows with every change of the spec
    spec: Mapping[str, object]  # as the API server let it through
    status: Mapping[str, Any]  # as it was written last; empty before the first time

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> QueryObject:
        """Return an object of the cluster as it is followed."""
        metadata = obj["metadata"]
        return cls(
            uid=metadata["uid"],
            generation=metadata["generation"],
            spec=obj.get("spec", {}),
            status=obj.get("status", {}),
        )


def follow(target: QueryObject, book: QueryBook) -> tuple[Status, list[Event]]:
    """Make the service follow an object's spec; return its status, and events to publish.

    Refused if it names another problem than a broken rule, Unavailable if it cannot answer now.
    """
    planned = PlannedFor.of(target.spec, target.generation, target.status)
    key = f"{target.uid}/{planned.generation}"
    known = book.of(target.uid)
    query = next((q for q in known if q.key == key), None) or _finished(target, key, book)
    if query is None:
        try:
            query = book.submit(query_of(dict(planned.spec)), key)
        except InvalidInput as error:
            # Whatever served before serves on: the new spec never became a query.
            return Status.refused(target.generation, str(error)), []
    others = [other for other in known if other.id != query.id]
    events, serving = _make_way(query, others, book)
    if query.phase in LIVE:
        rescale(book.service, query.id, has=query.replicas, wanted=planned.replicas)
    facts = {
        "phase": query.phase.value,
        "message": query.message,
        "queryId": query.id,
        "planId": query.plan_id,
        "servedBy": serving,
        "planning": {**dict.fromkeys(target.status.get("planning") or ()), **query.planning},
        **_plan_facts(book.service, query, target.status),
    }
    objectives = book.fares(query.id)
    facts["observed"] = observed = observed_facts(target.status.get("observed"), objectives)
    facts |= {**planned.facts, **scale_facts(query.id, objectives)}
    state, reason, message = objectives_condition(observed)
    met = Condition(type=OBJECTIVES_MET, status=state, reason=reason, message=message)
    conditions = (*_conditions(query, query.message, serving), met)
    return Status(generation=target.generation, facts=facts, conditions=conditions), events


def release(target: QueryObject, book: QueryBook) -> tuple[str, ...]:
    """Stop all queries that the object ever had; return the ids of those that still run.

    Refused if the service names a problem, Unavailable if it cannot answer now.
    """
    left = []
    for view in book.service.all_queries(key_prefix=f"{target.uid}/"):
        book.stop(KnownQuery.of(view))
        if book.service.deployment(view.id).phase != NO_DEPLOYMENT:
            left.append(view.id)
    return tuple(left)


def _finished(target: QueryObject, key: str, book: QueryBook) -> KnownQuery | None:
    """Return the present spec's query that is no longer among the unfinished ones.

    None: there is none, or a service that lost its state has to get it again.
    """
    query_id = target.status.get("queryId")
    query = book.find(str(query_id)) if query_id else None
    return query if query is not None and query.key == key else None


def _make_way(
    query: KnownQuery, others: Iterable[KnownQuery], book: QueryBook
) -> tuple[list[Event], str | None]:
    """Stop the queries of older specs; return events, and the one that serves on."""
    events, serving = [], None
    for other in others:
        if (
            other.phase is QueryPhase.SERVING
            and serving is None
            and not _is_due(query, book.service)
        ):
            serving = other.id  # the newest of them: requests are answered until the change
            continue
        if book.stop(other):
            events.append(_retired(other, query))
    return events, serving


def _is_due(query: KnownQuery, service: Client) -> bool:
    """Return whether the query of the spec before must end: its successor serves, or needs it."""
    if query.phase is QueryPhase.WAITING:
        return any(waiting.query_id == query.id for waiting in service.schedule().waiting)
    return query.phase is QueryPhase.SERVING


def _retired(other: KnownQuery, query: KnownQuery) -> Event:
    if other.phase is QueryPhase.SERVING and query.phase is QueryPhase.WAITING:
        message = (
            f"query {other.id} of the spec before is stopped to make room for {query.id}: "
            "requests are not answered until that one serves"
        )
        return Event(warning=True, reason="RetiredForCapacity", message=message)
    message = f"query {other.id} of an older spec is stopped"
    return Event(warning=False, reason="Retired", message=message)


def _plan_facts(
    service: Client, query: KnownQuery, before: Mapping[str, object]
) -> Mapping[str, object]:
    """Return events on the chosen plan; nothing if the status has it already."""
    if query.plan_id is None:
        return dict.fromkeys(_OF_PLAN)
    known = before.get("queryId") == query.id and before.get("planId") == query.plan_id
    plans = () if known and before.get("sloStates") else service.plans(query.id).items
    for plan in plans:
        if plan.id == query.plan_id:
            states = {name: state.value for name, state in plan.states.items()}
            words = ", ".join(f"{name} {state}" for name, state in states.items())
            # As people read it: 0.02, not the 0.020000000000000004 of a sum.
            facts = (float(f"{plan.cost_usd_per_hour:.{_DIGITS}g}"), words, states)
            return dict(zip(_OF_PLAN, facts, strict=True))
    return {}


def _conditions(query: KnownQuery, message: str, served_by: str | None) -> tuple[Condition, ...]:
    word = query.phase.value.capitalize()
    if query.phase in LIVE or query.phase is QueryPhase.RETIRED:
        planned = Condition(type=PLANNED, status="True", reason="PlansFound")
    else:
        state = "False" if query.phase in _TROUBLE else "Unknown"
        planned = Condition(type=PLANNED, status=state, reason=word, message=message)
    if served_by is not None:
        message = f"query {served_by} of the spec before answers meanwhile. {message}".strip()
    serves = str(query.phase is QueryPhase.SERVING)
    return planned, Condition(type=READY, status=serves, reason=word, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event for watchers of the object: the reason is one word, in CamelCase."""

    warning: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is so, is not so, or is not known."""

    type: str  # `Planned`, `Ready` or `ObjectivesMet`
    status: str  # `True`, `False`, or `Unknown`: not known yet
    reason: str  # one word, in CamelCase
    message: str = ""  # in words; may be empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The content of a status, from the service's view of the query."""

    generation: int  # of the spec that it is about
    facts: Mapping[str, object]  # fields of the status; None: no longer holds; left out: as it was
    conditions: tuple[Condition, ...]  # all of them

    @classmethod
    def refused(cls, generation: int, message: str) -> Status:
        """Return the status of a spec that the service does not take."""
        no = tuple(
            Condition(type=type, status="False", reason="Refused", message=message)
            for type in (PLANNED, READY)
        )
        facts = {"phase": REFUSED, "message": message, **dict.fromkeys(_OF_QUERY + _OF_PLAN)}
        return cls(generation=generation, facts=facts, conditions=no)

    @classmethod
    def unreachable(cls, target: QueryObject, message: str) -> Status:
        """Return the status while the service does not answer: what was known, and why no more."""
        reason = "ServiceUnavailable"
        unknown = Condition(type=READY, status="Unknown", reason=reason, message=message)
        phase = target.status.get("phase") or _UNKNOWN
        facts = {**target.status, "phase": phase, "message": message}
        return cls(generation=target.generation, facts=facts, conditions=(unknown,))

    @classmethod
    def unwatched(cls, generation: int, message: str) -> Status:
        """Return the status of an object without a controller."""
        no = Condition(type=READY, status="False", reason="NotWatched", message=message)
        facts = {"phase": UNWATCHED, "message": message}
        return cls(generation=generation, facts=facts, conditions=(no,))

    def document(self, before: Mapping[str, Any], *, at: float) -> dict[str, Any]:
        """Return the status as the cluster stores it; fields that no longer hold are None.

        `before` is the status written last; changes get the time stamp `at`, in seconds since the
        epoch. The rest retains its own: an unchanged query writes nothing to the cluster.
        """
        known = {each["type"]: dict(each) for each in before.get("conditions") or ()}
        for condition in self.conditions:
            old = known.get(condition.type, {})
            same = old.get("status") == condition.status
            since = old.get("lastTransitionTime") if same else None
            known[condition.type] = {
                **asdict(condition),
                "lastTransitionTime": since or iso_time(at),
                "observedGeneration": self.generation,
            }
        conditions = list(known.values())
        return {**self.facts, "observedGeneration": self.generation, "conditions": conditions}


def transition(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[Event]:
    """Yield the event of a phase if it is new."""
    phase = str(now["phase"])
    if before.get("phase") != phase:
        message = str(now["message"]) or f"query {now.get('queryId')} is {phase}"
        warning = phase in {REFUSED, UNWATCHED, _UNKNOWN, *_TROUBLE}  # phases are text
        yield Event(warning=warning, reason=phase.capitalize(), message=message)
