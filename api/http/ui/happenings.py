"""What happened, newest first: in the whole service, and to one query."""

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
SHOWN = 50
"""Events on a page."""
_EVERY = "all"
_STEPS = frozenset({EventKind.PROGRESS, EventKind.MEASURED})
"""Of searches: many, and each says little by itself."""
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
class HappeningsAsked:
    """Which events a page shows: the newest, or those before or after one."""

    kind: str = ""  # among `_KINDS`
    query: str = ""  # of this query alone; empty: of any, and of none
    before: int = 0  # the newest before this event; 0: up to now
    after: int = 0  # the oldest after it; 0: the newest

    def at(self, path: str = EVENTS, **other: object) -> str:
        """Return the path of a page with something else, from its newest event on."""
        told = {"kind": self.kind, "query": self.query, **other}
        given = urlencode({name: value for name, value in told.items() if value})
        return f"{path}?{given}" if given else path


def _asked(kind: _Kind = "", query: _Of = "", before: _Id = 0, after: _Id = 0) -> HappeningsAsked:
    return HappeningsAsked(
        kind=kind if kind in _KINDS else "", query=query.strip(), before=before, after=after
    )


Asked = Annotated[HappeningsAsked, Depends(_asked)]


@router.get(EVENTS)
def every(service: ServiceOf, asked: Asked) -> HTMLResponse:
    """Return the page of what happened in the whole service; an unknown kind is none."""
    since = all_events(service)
    told = happenings(service.parts.store.events, asked)
    return framed("happenings.html", service, told, section="Events", events=since)


@router.get(_PART)
def part(service: ServiceOf, asked: Asked) -> HTMLResponse:
    """Return the part of the page that changes by itself."""
    return page("_happenings.html", happenings(service.parts.store.events, asked))


@router.get(f"/ui{QUERY}/events")
def of_query(query_id: str, service: ServiceOf) -> HTMLResponse:
    """Return the part of a query's page with what happened to it; NotFound if there is none."""
    service.parts.store.state(query_id)
    return page("_happenings.html", happenings_of(service.parts.store.events, query_id))


def happenings_of(log: EventLog, query_id: str) -> dict[str, object]:
    """Return what `_happenings.html` shows of one query, in its page."""
    part = f"/ui/queries/{quote(query_id)}/events"
    return happenings(log, HappeningsAsked(query=query_id)) | {"whole": False, "part": part}


def happenings(log: EventLog, asked: HappeningsAsked) -> dict[str, object]:
    """Return what `_happenings.html` shows, in the page of events."""
    kinds, query_id = _KINDS.get(asked.kind, _KINDS[""]), asked.query.strip() or None
    most = SHOWN + 1  # one more tells whether there is a page after this one
    if asked.after:
        found = log.since(asked.after, most, query_id=query_id, kinds=kinds)
        more, shown = len(found) > SHOWN, found[:SHOWN]
        older, newer = bool(shown), more
    else:
        until = asked.before - 1 if asked.before else LARGEST_ID
        found = log.newest(most, until=until, query_id=query_id, kinds=kinds)
        more, shown = len(found) > SHOWN, found[-SHOWN:]
        older, newer = more, bool(asked.before)
    return {
        "asked": asked,
        "names": _NAMES,
        "happened": shown[::-1],
        "older": asked.at(before=shown[0].id) if older else "",
        "newer": asked.at(after=shown[-1].id) if newer and shown else "",
        "whole": True,
        "part": asked.at(_PART),
        "moves": not (asked.before or asked.after),
    }
