"""Queries on their way: taken in, listed a page at a time, retired, and what they cost."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from circinus.api.phases import QueryPhase
from circinus.api.schemas.query import QueryRequest, to_query
from circinus.api.store.documents import from_document
from circinus.api.store.records import Conflict, JsonObject, NewQuery, StoredQuery
from circinus.api.store.store import Store
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.methods import parts_of
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import Fault, InvalidInput, Unavailable
from circinus.pipelines.fitting import fitted
from circinus.planner.search.bill import Bill, Cost

LARGEST_PAGE = 200
_LONGEST_KEY = 200
_RETRY_AFTER_S = 5.0
_MARK = "before:"
_LARGEST_SERIAL = 2**63 - 1
_MOST_BILLS = 100
"""Of the newest queries so many are looked at: older ones were planned by other means."""
_PLANNED = frozenset(QueryPhase) - {
    QueryPhase.QUEUED,
    QueryPhase.PLANNING,
    QueryPhase.FAILED,
    QueryPhase.CANCELLED,
}


class QueueFull(Unavailable):
    """More queries wait for planning than the operator allows."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} queries wait for planning already", retry_after_s=_RETRY_AFTER_S
        )


def submit(parts: ServiceParts, request: QueryRequest, key: str | None) -> StoredQuery:
    """Queue a query; with an idempotency key that is known, give the one that came with it first.

    How it is planned is stored with it: a service that is told otherwise later plans it so all
    the same.

    Raises:
        InvalidInput: If the key is malformed, the request names files (a service reads none) or
            too many examples, the pipeline is not offered, or the restrictions do not fit it.
        Conflict: If the idempotency key came with another query before.
        QueueFull: If too many wait already.
    """
    settings = parts.settings
    query = to_query(request, method=settings.chosen_method)
    _check(request, key)
    parts.examples.check(request.data.examples or 0, field="data.examples")
    fitted(query, parts.pipeline(query.pipeline).graph, parts.infrastructure)
    if parts.store.count(frozenset({QueryPhase.QUEUED})) >= settings.queue_limit:
        raise QueueFull(settings.queue_limit)
    spec = request.model_dump(mode="json", exclude_none=True)
    new = NewQuery(
        id=f"q-{secrets.token_hex(6)}",
        spec={**spec, "planning": parts_of(query.planning)},
        # As it came: sent again to a service that plans otherwise, it is the same query.
        fingerprint=fingerprint(spec),
        idempotency_key=key,
        at=parts.clock.timestamp(),
        tenant=query.tenant,
    )
    return parts.store.submit(new)[0]


def _check(request: QueryRequest, key: str | None) -> None:
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isprintable()):
        rule = f"must have 1 to {_LONGEST_KEY} printable characters"
        raise InvalidInput.of("Idempotency-Key", rule, key)
    paths = {"data.folder": request.data.folder, "data.jsonl": request.data.jsonl}
    named = {field: path for field, path in paths.items() if path is not None}
    if named:
        rule = "must be left out: a service reads no files, name a number of examples"
        raise InvalidInput([Fault.of(field, rule, path) for field, path in named.items()])


def fingerprint(spec: JsonObject) -> str:
    """Give a hash that is equal for equal documents, whatever the order of their fields."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some queries, newest first; `next_cursor` is for the page after, None: this is the last."""

    records: tuple[StoredQuery, ...]
    next_cursor: str | None


def page_of(
    store: Store,
    *,
    limit: int,
    cursor: str | None,
    phase: QueryPhase | None,
    tenant: str | None = None,
    key_prefix: str | None = None,
) -> Page:
    """Give a page of at most `limit` queries, chosen as by `Store.queries`.

    `cursor` is of the page before; None: from the newest.

    Raises:
        InvalidInput: If the cursor is none that a page gave.
    """
    before = None if cursor is None else _decoded(cursor)
    phases = None if phase is None else frozenset({phase})
    # One more than asked for tells whether there is a page after this one.
    records = store.queries(
        limit=limit + 1, before=before, phases=phases, tenant=tenant, key_prefix=key_prefix
    )
    more = len(records) > limit
    shown = records[:limit]
    return Page(records=shown, next_cursor=_encoded(shown[-1].serial) if more else None)


def _encoded(serial: int) -> str:
    return base64.urlsafe_b64encode(f"{_MARK}{serial}".encode()).decode("ascii").rstrip("=")


def _decoded(cursor: str) -> int:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
        serial = int(text.removeprefix(_MARK))
    except (ValueError, binascii.Error) as error:
        raise InvalidInput.of("cursor", "must be a next_cursor of a page", cursor) from error
    if not text.startswith(_MARK) or not 0 <= serial <= _LARGEST_SERIAL:
        raise InvalidInput.of("cursor", "must be a next_cursor of a page", cursor)
    return serial


def undeploy(store: Store, query_id: str, *, clock: Clock) -> StoredQuery:
    """Retire a query and free its capacity; retiring it again changes nothing.

    Raises:
        NotFound: If there is none of that id.
        Conflict: If it is not planned yet, or has no plans.
    """
    store.move(query_id, QueryPhase.RETIRED, at=clock.timestamp(), message="undeployed")
    record = store.query(query_id)
    if record.phase is not QueryPhase.RETIRED:
        rule = "must be waiting, deploying or serving to be undeployed"
        raise Conflict("phase", rule, record.phase)
    return record


def retire_expired(store: Store, live: Iterable[StoredQuery], *, now: float) -> tuple[str, ...]:
    """Retire the queries that were served as long as they asked for; give their ids."""
    expired = tuple(record.id for record in live if _is_over(record, now))
    for query_id in expired:
        store.move(query_id, QueryPhase.RETIRED, at=now, message="its duration is over")
    return expired


def _is_over(record: StoredQuery, now: float) -> bool:
    duration_s, since = record.query.duration_s, record.entered(QueryPhase.SERVING)
    return duration_s is not None and since is not None and now >= since + duration_s


def earlier_bills(store: Store, pipeline: str) -> tuple[Cost, ...]:
    """Give what planning the newest queries of a pipeline cost, those that ended by themselves."""
    records = store.queries(limit=_MOST_BILLS, phases=_PLANNED)
    paid = [_paid(record) for record in records if record.spec.get("pipeline") == pipeline]
    return tuple(cost for cost in paid if cost.runs > 0)


def _paid(record: StoredQuery) -> Cost:
    # Of a whole result only the bill is read: there are a hundred of them.
    bill = (record.result or {}).get("bill")
    return from_document(Bill, bill).paid if isinstance(bill, dict) else Cost()
