"""What clients poll: rendered once for each state of it, which its ETag names.

Looking whether a query changed takes one small select; only then is it read, with its documents.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from threading import Lock
from typing import Annotated, Any

from fastapi import Header
from starlette.responses import Response

from circinus.api.http.bodies import JSON
from circinus.api.http.description import header
from circinus.api.phases import CANCELLABLE
from circinus.api.schemas.plans import PlanList, plan_view
from circinus.api.schemas.progress import PageRequest, QueryView
from circinus.api.store.records import StoredQuery
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.queries import page_of
from circinus.api.use_cases.views import query_view

LATEST = 50
"""Displacements in a view."""
_CACHED = 2500
"""Queries: a planned one takes some 20 kB. A list of more of them renders all every time."""
_NOT_MODIFIED = 304

IfNoneMatch = Annotated[str | None, Header(max_length=200)]
_ETAG = header("ETag", "Of the answer.", required=False)
TAGGED: Mapping[int | str, dict[str, Any]] = {
    200: _ETAG,
    _NOT_MODIFIED: {"description": "What If-None-Match names is still so; empty", **_ETAG},
}
"""Of a route that returns `tagged` text."""


def tagged(
    text: bytes | Callable[[], bytes], known: str | None, tag: str | None = None
) -> Response:
    """Return a JSON text with its ETag, or an empty 304 if that is among the `known` ones.

    The tag is the text's digest, equal for equal texts of any service, unless it is passed. With a
    passed tag the text may be made only when it is needed.
    """
    if tag is None:
        text = text if isinstance(text, bytes) else text()
        tag = blake2b(text, digest_size=9).hexdigest()
    tag = f'"{tag}"'
    # A proxy that compresses marks tags as weak.
    tags = () if known is None else (one.strip().removeprefix("W/") for one in known.split(","))
    if any(one in (tag, "*") for one in tags):
        return Response(status_code=_NOT_MODIFIED, headers={"ETag": tag})
    text = text if isinstance(text, bytes) else text()
    return Response(text, media_type=JSON, headers={"ETag": tag})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RenderedQuery:
    """A query as clients see it, but for its deployment."""

    record: StoredQuery
    view: QueryView
    text: bytes  # the view's JSON


@dataclass(eq=False)
class RenderedQueries:
    """Renders the queries of a service. Safe to share between threads."""

    parts: ServiceParts
    _one_at_a_time: Lock = field(default_factory=Lock, init=False)
    # A service that is started again may plan for other machines
    _here: str = field(default_factory=lambda: secrets.token_hex(8), init=False)

    def query(self, query_id: str) -> RenderedQuery:
        """Return a query with its displacements; NotFound if there is none of that id."""
        version, revision = self.parts.store.state(query_id)
        return self._rendered(query_id, version, revision, LATEST)

    def listed(self, request: PageRequest) -> tuple[Sequence[RenderedQuery], str | None]:
        """Return what is on a page and the cursor of the next one; errors as `page_of`."""
        states, next_cursor = self._states(request)
        return [self._rendered(*each, 0) for each in states], next_cursor

    def page(self, request: PageRequest) -> tuple[Callable[[], bytes], str]:
        """Return what makes the JSON of a `QueryPage`, and its tag; errors as `page_of`.

        The tag is of the states that are on it: a page that is as before is not made again.
        """
        states, next_cursor = self._states(request)
        state = repr((self._here, states, next_cursor)).encode()

        def made() -> bytes:
            items = (self._rendered(*each, 0).text for each in states)
            cursor = b"null" if next_cursor is None else b'"%b"' % next_cursor.encode()
            return b'{"items":[%b],"next_cursor":%b}' % (b",".join(items), cursor)

        return made, blake2b(state, digest_size=9).hexdigest()

    def _states(self, request: PageRequest) -> tuple[list[tuple[str, int, int]], str | None]:
        """Return id, version and revision of what is on a page, and the cursor of the next one."""
        records, next_cursor = page_of(self.parts.store, request)
        revision = self.parts.store.schedules.revision()
        # No schedule has queries that are not planned yet.
        return [
            (each.id, each.version, 0 if each.phase in CANCELLABLE else revision)
            for each in records
        ], next_cursor

    def plans(self, query_id: str) -> bytes:
        """Return the JSON of a `PlanList`; NotFound if there is no query of that id."""
        return self._plans(query_id, self.parts.store.state(query_id)[0])

    def _rendered(
        self, query_id: str, version: int, revision: int, displaced: int
    ) -> RenderedQuery:
        with self._one_at_a_time:  # many requests need the same new state at once
            return self._made(query_id, version, revision, displaced)

    @cached_property
    def _made(self) -> Callable[[str, int, int, int], RenderedQuery]:
        # The state may be newer than its numbers: then the next request reads it once more.
        def made(query_id: str, _version: int, _revision: int, displaced: int) -> RenderedQuery:
            store = self.parts.store
            record, (_, in_force) = store.query(query_id), store.schedules.read()
            way = (
                store.schedules.displaced(limit=displaced, query_id=query_id) if displaced else ()
            )
            view = query_view(record, self.parts.infrastructure, in_force.schedule, way)
            return RenderedQuery(record=record, view=view, text=view.model_dump_json().encode())

        return lru_cache(_CACHED)(made)

    @cached_property
    def _plans(self) -> Callable[[str, int], bytes]:
        def made(query_id: str, _version: int) -> bytes:
            store, machines = self.parts.store, self.parts.infrastructure
            slo, stored = store.query(query_id).query.slo, store.plans(query_id)
            view = PlanList(items=[plan_view(each.plan, slo, machines) for each in stored])
            return view.model_dump_json().encode()

        return lru_cache(_CACHED)(made)
