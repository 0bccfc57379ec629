"""The service's view of the objects' queries: read whole once a tick, by a list of few pages.

A request for each object would be a thousand a second for a thousand objects. Unchanged pages cost
an empty answer each (requests carry their ETag), and little is stored of a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

from circinus.api.client import Client, Refused
from circinus.api.operator.observed import observed_facts
from circinus.api.operator.scaling import scale_facts
from circinus.api.phases import CANCELLABLE, LIVE, UNFINISHED, QueryPhase
from circinus.api.schemas.deployments import ObjectivesView
from circinus.api.schemas.progress import QueryPage, QueryView
from circinus.api.schemas.query import QueryRequest

_NOT_FOUND = 404
_PAGE = 200  # queries: the most that the service returns


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownQuery:
    """What an object's status is made of; some hundred bytes, where a view has 20 kB."""

    id: str
    key: str  # with which it was submitted: `UID/GENERATION` of the object; else another's
    phase: QueryPhase
    plan_id: str | None  # None: no plan was chosen
    message: str  # in words, of the phase; may be empty
    planning: Mapping[str, str]  # how it is planned
    replicas: int | None = None  # as requested; None: they follow the rate of requests

    @classmethod
    def of(cls, view: QueryView) -> KnownQuery:
        """Return the stored fields of a query."""
        message = view.message or "" if view.shortfall is None else view.shortfall.sentence
        if view.progress is not None:
            failures = [str(failure) for failure in view.progress.failures]
            message = ". ".join([message.rstrip("."), *(f for f in failures if f not in message)])
        return cls(
            id=view.id,
            key=view.idempotency_key or "",
            phase=view.phase,
            plan_id=view.plan_id,
            message=message,
            planning=view.planning.model_dump(mode="json", exclude_none=True),
            replicas=view.replicas,
        )

    @property
    def uid(self) -> str:
        """The object's, if it is an object's."""
        return self.key.rpartition("/")[0]


_Page = tuple[tuple[KnownQuery, ...], str | None]


@dataclass(slots=True, kw_only=True, eq=False)
class QueryBook:
    """The unfinished queries of all objects, as of the last `read`, and our changes since.

    May lack finished queries, and be a tick old: actions on it must be repeatable. Every method
    that calls the service raises Refused if that names a problem, Unavailable if it cannot answer
    now. Safe to share between threads; one at a time reads.
    """

    service: Client
    _by_uid: dict[str, tuple[KnownQuery, ...]] = field(default_factory=dict, init=False)
    _known: dict[str, KnownQuery] = field(default_factory=dict, init=False)  # of the last reading
    _noted: dict[str, KnownQuery] = field(default_factory=dict, init=False)  # since it began
    # how queries fare by their requests, as of the last notable change
    _fares: dict[str, ObjectivesView] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def read(self) -> frozenset[str]:
        """Read all of them; return the uids of the objects whose queries changed."""
        with self._lock:
            self._noted = {}
        listed = {query.id: query for query in self._listed()}
        moved = self._read_fares()
        with self._lock:
            self._known = listed
            # Changes made meanwhile are newer, so they win.
            merged = {**self._noted, **listed, **self._noted}
            now = _by_uid(query for query in merged.values() if query.phase in UNFINISHED)
            before, self._by_uid = self._by_uid, now
        fared = {listed[query_id].uid for query_id in moved if query_id in listed} - {""}
        return frozenset(
            {uid for uid in before.keys() | now.keys() if before.get(uid) != now.get(uid)} | fared
        )

    def fares(self, query_id: str) -> ObjectivesView | None:
        """Return how a query fares by its requests; None: unknown."""
        return self._fares.get(query_id)

    def _read_fares(self) -> frozenset[str]:
        """Read how all queries fare; return those with a notable change."""
        now = {each.query_id: each for each in self.service.objectives().items}
        known = self._fares
        moved = frozenset(q for q in now.keys() | known.keys() if _moved(known.get(q), now.get(q)))
        self._fares = {q: each if q in moved else known[q] for q, each in now.items()}
        return moved

    def of(self, uid: str) -> tuple[KnownQuery, ...]:
        """Return the unfinished queries of an object, newest first."""
        return self._by_uid.get(uid, ())

    def find(self, query_id: str) -> KnownQuery | None:
        """Read one query; None: there is none of that id."""
        try:
            return KnownQuery.of(self.service.query(query_id))
        except Refused as refusal:
            if refusal.problem.status != _NOT_FOUND:
                raise
            return None

    def submit(self, request: QueryRequest, key: str) -> KnownQuery:
        """Return the query of a key, which is made if there is none; InvalidInput as `Client`."""
        return self._note(self.service.submit(request, idempotency_key=key))

    def stop(self, query: KnownQuery) -> bool:
        """Cancel or retire a query; return whether there was something to stop."""
        if query.phase in CANCELLABLE:
            self._note(self.service.cancel(query.id))
            return True
        if query.phase in LIVE:
            self._note(self.service.undeploy(query.id))
            return True
        return False

    def _note(self, view: QueryView) -> KnownQuery:
        query = KnownQuery.of(view)
        with self._lock:
            self._noted = {query.id: query, **self._noted, query.id: query}
            rest = tuple(q for q in self._by_uid.get(query.uid, ()) if q.id != query.id)
            current = (query, *rest) if query.phase in UNFINISHED else rest
            self._by_uid[query.uid] = current
            if not current:
                del self._by_uid[query.uid]
        return query

    def _listed(self) -> Iterator[KnownQuery]:
        cursor, more = None, True
        while more:
            params = {"limit": str(_PAGE), "cursor": cursor, "unfinished": "true"}
            queries, cursor = self.service.call("GET", "/v1/queries", self._page, params=params)
            yield from queries
            more = cursor is not None

    def _page(self, text: bytes) -> _Page:
        page = QueryPage.model_validate_json(text)
        return tuple(map(self._interned, map(KnownQuery.of, page.items))), page.next_cursor

    def _interned(self, query: KnownQuery) -> KnownQuery:
        """Return what is known if it is equal: the client remembers many pages of the same."""
        known = self._known.get(query.id)
        return known if known is not None and known == query else query


def _moved(before: ObjectivesView | None, now: ObjectivesView | None) -> bool:
    if before is None or now is None:
        return before is not now
    facts = observed_facts(None, before)
    scales = [scale_facts(each.query_id, each) for each in (before, now)]
    return observed_facts(facts, now) is not facts or scales[0] != scales[1]


def _by_uid(queries: Iterator[KnownQuery]) -> dict[str, tuple[KnownQuery, ...]]:
    grouped: dict[str, list[KnownQuery]] = {}
    for query in queries:
        if query.uid:
            grouped.setdefault(query.uid, []).append(query)
    return {uid: tuple(each) for uid, each in grouped.items()}
