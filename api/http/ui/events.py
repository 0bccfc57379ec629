"""Pages of events, newest first: of the whole service, and of one query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse

from circinus.api.http.pages import page
from circinus.api.http.routes.paths import QUERY
from circinus.api.http.routes.service import ServiceOf
from circinus.api.http.ui.frame import all_events, framed
from circinus.api.schemas.events import LARGEST_ID, EventKind
from circinus.api.store.events import EventLog

EVENTS = "/ui/events"
_PART = f"{EVENTS}/part"
router = APIRouter(include_in_schema=False)
EVENTS_PER_PAGE = 50
"""Events on a page."""
_EVERY = "all"
_STEPS = frozenset({EventKind.PROGRESS, EventKind.MEASURED})
"""Of searches: many, and each has little information."""
_KINDS: Mapping[str, frozenset[EventKind]] = {
    "": frozenset(EventKind) - _STEPS,
    _EVERY: frozenset(EventKind),
    **{kind.value: frozenset({kind}) for kind in EventKind},
}
_NAMES: Mapping[str, str] = {
    "": "all but steps of searches",
    _EVERY: "all",
    EventKind.PHASE: "phase",
    EventKind.PROGRESS: "progress",
    EventKind.MEASURED: "measurement",
    EventKind.REPLANNED: "replanned",
    EventKind.DRIFTED: "drift",
    EventKind.POOL: "pool",
    EventKind.TRAFFIC: "requests changed",
    EventKind.OBJECTIVES: "objectives",
    EventKind.OVERLOAD: "overload",
    EventKind.SCHEDULE: "schedule",
    EventKind.DEPLOYMENT: "deployment",
    EventKind.MACHINES: "machines",
    EventKind.EMULATION: "emulation",
}
_Id = Annotated[int, Query(ge=0, le=LARGEST_ID)]
_Kind = Annotated[str, Query(max_length=40)]
_Of = Annotated[str, Query(max_length=80, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events a page shows: the newest, or those before or after one."""

    kind: str = ""  # among `_KINDS`
    query: str = ""  # of this query alone; empty: of any, and of none
    before: int = 0  # the newest before this event; 0: up to now
    after: int = 0  # the oldest after it; 0: the newest

    def at(self, path: str = EVENTS, **other: object) -> str:
        """Return the path of a page with other parameters, from its newest event on."""
        values = {"kind": self.kind, "query": self.query, **other}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"{path}?{query}" if query else path


def _selection(kind: _Kind = "", query: _Of = "", before: _Id = 0, after: _Id = 0) -> EventFilter:
    return EventFilter(
        kind=kind if kind in _KINDS else "", query=query.strip(), before=before, after=after
    )


Selected = Annotated[EventFilter, Depends(_selection)]


@router.get(EVENTS)
def every(service: ServiceOf, selection: Selected) -> HTMLResponse:
    """Return the page of all events; an unknown kind is none."""
    since = all_events(service)
    table = event_table(service.parts.store.events, selection)
    return framed("events.html", service, table, section="Events", events=since)


@router.get(_PART)
def part(service: ServiceOf, selection: Selected) -> HTMLResponse:
    """Return the part of the page that changes by itself."""
    return page("_events.html", event_table(service.parts.store.events, selection))


@router.get(f"/ui{QUERY}/events")
def of_query(query_id: str, service: ServiceOf) -> HTMLResponse:
    """Return the events of a query as a part of its page; NotFound if there is none."""
    service.parts.store.state(query_id)
    return page("_events.html", query_event_table(service.parts.store.events, query_id))


def query_event_table(log: EventLog, query_id: str) -> dict[str, object]:
    """Return what `_events.html` shows of one query, in its page."""
    part = f"/ui/queries/{quote(query_id)}/events"
    return event_table(log, EventFilter(query=query_id)) | {"whole": False, "part": part}


def event_table(log: EventLog, selection: EventFilter) -> dict[str, object]:
    """Return what `_events.html` shows, in the page of events."""
    kinds, query_id = _KINDS.get(selection.kind, _KINDS[""]), selection.query.strip() or None
    most = EVENTS_PER_PAGE + 1  # one more shows whether there is a page after this one
    if selection.after:
        events = log.since(selection.after, most, query_id=query_id, kinds=kinds)
        more, rows = len(events) > EVENTS_PER_PAGE, events[:EVENTS_PER_PAGE]
        older, newer = bool(rows), more
    else:
        until = selection.before - 1 if selection.before else LARGEST_ID
        events = log.newest(most, until=until, query_id=query_id, kinds=kinds)
        more, rows = len(events) > EVENTS_PER_PAGE, events[-EVENTS_PER_PAGE:]
        older, newer = more, bool(selection.before)
    return {
        "selection": selection,
        "names": _NAMES,
        "events": rows[::-1],
        "older": selection.at(before=rows[0].id) if older else "",
        "newer": selection.at(after=rows[-1].id) if newer and rows else "",
        "whole": True,
        "part": selection.at(_PART),
        "moves": not (selection.before or selection.after),
    }
