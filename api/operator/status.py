"""The status of a `PipelineQuery`: pure, from the service's view of its query.

What does not change keeps its time stamps: two looks at an unchanged query give equal documents,
so nothing is written to the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from circinus.api.phases import LIVE, QueryPhase
from circinus.api.schemas.planning import PlanningView
from circinus.api.schemas.plans import PlanList, PlanView
from circinus.api.schemas.progress import QueryView

PLANNED = "Planned"
READY = "Ready"
_TROUBLE = frozenset(
    {QueryPhase.INFEASIBLE, QueryPhase.EXHAUSTED, QueryPhase.FAILED, QueryPhase.CANCELLED}
)
_REFUSED = "refused"
_UNKNOWN = "unknown"
_UNREACHABLE = "ServiceUnavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to tell whoever watches the object: the reason is one word, in CamelCase."""

    warning: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is so, is not so, or is not known."""

    type: str  # `Planned` or `Ready`
    holds: bool | None  # None: not known yet
    reason: str  # one word, in CamelCase
    message: str = ""  # in words; may be empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a status says."""

    generation: int  # of the spec that it is about
    phase: str  # in one word, for the column
    message: str  # more about the phase; may be empty
    query_id: str | None = None  # of the spec's query; None: there is none
    plan_id: str | None = None  # that the schedule chose; None: none yet
    # Query of an older spec that answers requests meanwhile; None: none does
    served_by: str | None = None
    # How the query is planned; None: there is none, or as it was
    planning: PlanningView | None = None
    plan: PlanView | None = None  # the chosen plan, where it is not told already; None: as it was
    conditions: tuple[Condition, ...] = ()  # all of them

    @classmethod
    def refused(cls, generation: int, message: str) -> Status:
        """Give the status of a spec that the service does not take."""
        no = tuple(
            Condition(type=type, holds=False, reason="Refused", message=message)
            for type in (PLANNED, READY)
        )
        return cls(generation=generation, phase=_REFUSED, message=message, conditions=no)

    @classmethod
    def unreachable(cls, generation: int, before: Mapping[str, Any], message: str) -> Status:
        """Give the status while the service does not answer: what was known, and why no more."""
        unknown = Condition(type=READY, holds=None, reason=_UNREACHABLE, message=message)
        return cls(
            generation=generation,
            phase=before.get("phase") or _UNKNOWN,
            message=message,
            query_id=before.get("queryId"),
            plan_id=before.get("planId"),
            served_by=before.get("servedBy"),
            conditions=(unknown,),
        )

    def document(self, before: Mapping[str, Any], *, at: float) -> dict[str, Any]:
        """Give the status as the cluster keeps it; fields that no longer hold are None.

        `before` is what was written last; what changes does so `at` seconds since the epoch.
        """
        told: dict[str, Any] = {
            "observedGeneration": self.generation,
            "phase": self.phase,
            "message": self.message,
            "queryId": self.query_id,
            "planId": self.plan_id,
            "servedBy": self.served_by,
            "conditions": self._conditions(before.get("conditions") or (), at),
        }
        if self.query_id is None:
            told["planning"] = None
        elif self.planning is not None:
            parts = self.planning.model_dump(mode="json", exclude_none=True)
            told["planning"] = dict.fromkeys(before.get("planning") or ()) | parts
        if self.plan is not None:
            states = {name: state.value for name, state in self.plan.states.items()}
            told |= {
                "costUsdPerHour": self.plan.cost_usd_per_hour,
                "slo": ", ".join(f"{name} {state}" for name, state in states.items()),
                "sloStates": states,
            }
        elif self.plan_id is None:
            told |= dict.fromkeys(("costUsdPerHour", "slo", "sloStates"))
        return told

    def _conditions(self, before: Sequence[Mapping[str, Any]], at: float) -> list[dict[str, Any]]:
        known = {condition["type"]: dict(condition) for condition in before}
        now = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for condition in self.conditions:
            old = known.get(condition.type, {})
            state = {None: "Unknown", True: "True", False: "False"}[condition.holds]
            since = old.get("lastTransitionTime") if old.get("status") == state else None
            known[condition.type] = {
                "type": condition.type,
                "status": state,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": since or now,
                "observedGeneration": self.generation,
            }
        return list(known.values())


def status_of(
    generation: int, query: QueryView, plans: PlanList | None, *, served_by: str | None = None
) -> Status:
    """Give what to say of the query of a spec.

    `plans` are its own, to tell of the chosen one; None: it is told already, or none is.
    """
    items = () if plans is None else plans.items
    return Status(
        generation=generation,
        phase=query.phase.value,
        message=_message(query),
        query_id=query.id,
        plan_id=query.plan_id,
        served_by=served_by,
        planning=query.planning,
        plan=next((plan for plan in items if plan.id == query.plan_id), None),
        conditions=(_planned(query), _ready(query, served_by)),
    )


def transition(before: Mapping[str, object], now: Mapping[str, object]) -> Event | None:
    """Give the event of a new phase; None: the phase is the same."""
    if before.get("phase") == now["phase"]:
        return None
    phase, message = str(now["phase"]), str(now["message"])
    trouble = phase in {_REFUSED, _UNKNOWN, *(p.value for p in _TROUBLE)}
    return Event(
        warning=trouble,
        reason=phase.capitalize(),
        message=message or f"query {now['queryId']} is {phase}",
    )


def _message(query: QueryView) -> str:
    return query.message or "" if query.shortfall is None else query.shortfall.sentence


def _planned(query: QueryView) -> Condition:
    if query.phase in LIVE or query.phase is QueryPhase.RETIRED:
        return Condition(type=PLANNED, holds=True, reason="PlansFound")
    holds = False if query.phase in _TROUBLE else None
    reason = query.phase.value.capitalize()
    return Condition(type=PLANNED, holds=holds, reason=reason, message=_message(query))


def _ready(query: QueryView, served_by: str | None) -> Condition:
    message = _message(query)
    if served_by is not None:
        message = f"query {served_by} of the spec before answers meanwhile. {message}".strip()
    holds = query.phase is QueryPhase.SERVING
    reason = query.phase.value.capitalize()
    return Condition(type=READY, holds=holds, reason=reason, message=message)
