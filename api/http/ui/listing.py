"""The list of queries, newest first: objectives, phase, plans and spending of each."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from circinus.api.http.pages import page
from circinus.api.http.rendered import RenderedQueries
from circinus.api.http.routes.service import QueriesOf, ServiceOf
from circinus.api.http.ui.frame import all_events, framed
from circinus.api.phases import QueryPhase
from circinus.api.schemas.progress import PageRequest
from circinus.api.schemas.violations import checked

router = APIRouter(include_in_schema=False)
_Cursor = Annotated[str, Query(max_length=200)]
_Phase = Annotated[str, Query(max_length=20)]


@router.get("/")
def listing(
    service: ServiceOf, rendered: QueriesOf, phase: _Phase = "", cursor: _Cursor = ""
) -> HTMLResponse:
    """Return the page; an unknown phase is none."""
    events = all_events(service)
    context = _context(rendered, phase, cursor)
    return framed("listing.html", service, context, section="Queries", events=events)


@router.get("/ui/queries")
def part(rendered: QueriesOf, phase: _Phase = "", cursor: _Cursor = "") -> HTMLResponse:
    """Return the part of the page that changes by itself."""
    return page("_listing.html", _context(rendered, phase, cursor))


def _context(rendered: RenderedQueries, phase: str, cursor: str) -> dict[str, object]:
    only = QueryPhase(phase) if phase in set(QueryPhase) else None
    request = checked(PageRequest, {"phase": only, "cursor": cursor or None})
    queries, following = rendered.listed(request)
    counts = rendered.parts.store.counts()
    return {
        "queries": [each.view for each in queries],
        "counts": counts,
        "total": sum(counts.values()),
        "only": only,
        "cursor": cursor,
        "following": following,
    }
