"""Queries on their way: taken in, listed a page at a time, retired, and what they cost."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable, MutableMapping
from hashlib import blake2b

from circinus.api.phases import CANCELLABLE, UNFINISHED, QueryPhase
from circinus.api.schemas.progress import PageRequest
from circinus.api.schemas.query import QueryRequest, to_query
from circinus.api.store.records import (
    Conflict,
    NewQuery,
    NotFound,
    QueryState,
    StoredQuery,
    from_document,
)
from circinus.api.store.store import Store
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.methods import parts_of
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import Query, fitted
from circinus.planner.search.bill import Bill, Cost
from circinus.profiler.spending import require_bounded

LONGEST_KEY = 200
_MARK = "before:"
_LARGEST_SERIAL = 2**63 - 1
_MOST_BILLS = 100
"""Of the newest queries so many are looked at: older ones were planned by other means."""
_PLANNED = frozenset(QueryPhase) - CANCELLABLE - {QueryPhase.FAILED, QueryPhase.CANCELLED}


def submit(parts: ServiceParts, request: QueryRequest, key: str | None) -> StoredQuery:
    """Queue a query; with a known idempotency key, return the one first submitted with it.

    Its planning method is stored with it, and holds also when the service's changes later.

    Raises:
        InvalidInput: If the key is malformed, the request names files (a service reads none) or
            too many examples, the pipeline is not offered, or the restrictions do not fit it.
        Conflict: If the idempotency key belongs to another query.
        QueueFull: If it is a new one and too many wait already.
    """
    settings = parts.settings
    query = to_query(request, method=settings.chosen_method)
    _check(request, key)
    _check_data(parts, request)
    require_affordable(query, parts.infrastructure, parts.pipeline(query.pipeline))
    spec = request.document
    # As submitted: sent again to a service that plans otherwise, it is the same query.
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    new = NewQuery(
        id=f"q-{secrets.token_hex(6)}",
        spec={**spec, "planning": parts_of(query.planning)},
        fingerprint=blake2b(text.encode(), digest_size=16).hexdigest(),
        idempotency_key=key,
        at=parts.clock.timestamp(),
        tenant=query.tenant,
    )
    return parts.store.submit(new, queue_limit=settings.queue_limit)[0]


def _check(request: QueryRequest, key: str | None) -> None:
    good = key is None or (0 < len(key) <= LONGEST_KEY and key.isprintable())
    rule = f"must have 1 to {LONGEST_KEY} printable characters"
    checks.require(good, "Idempotency-Key", rule, key)
    rule = "must be left out: labels for a judge are taken by `circinus plan`"
    judge = None if request.metric is None else request.metric.judge
    checks.require(request.metric is None, "metric", rule, judge)
    paths = request.data.model_dump(include={"folder", "jsonl"}, exclude_none=True)
    if paths:
        rule = "must be left out: a service reads no files; hand them over as a data set"
        raise InvalidInput(
            [Violation.of(f"data.{name}", rule, path) for name, path in paths.items()]
        )


def _check_data(parts: ServiceParts, request: QueryRequest) -> None:
    """Raise InvalidInput unless there are the inputs that a query names."""
    data, pipeline = request.data, parts.pipeline(request.pipeline)
    rule = "must be scored by a metric: a judge needs labels, which `circinus plan` takes"
    checks.require(pipeline.judge is None, "pipeline", rule, pipeline.name)
    rule = "must score single outputs: `circinus plan` and `circinus.plan` take metrics over a set"
    checks.require(pipeline.over_set is None, "pipeline", rule, pipeline.name)
    if data.dataset is None:
        parts.require_few(data.examples or 0, "data.examples")
        rule = "must bring examples: hand over data of your own, and name its data set"
        checks.require(pipeline.examples is not None, "pipeline", rule, pipeline.name)
        return
    try:
        parts.datasets.get(data.dataset)
    except NotFound as error:
        rule = "must have been handed over: POST /v1/datasets"
        raise InvalidInput.of("data.dataset", rule, data.dataset) from error


def page_of(store: Store, page: PageRequest) -> tuple[tuple[QueryState, ...], str | None]:
    """Return the states on a page, newest first, and the cursor of the next; None: it is the last.

    InvalidInput if the cursor is not from a page.
    """
    # One more than the limit shows whether there is a page after this one.
    states = store.states(
        limit=page.limit + 1,
        before=None if page.cursor is None else _decoded(page.cursor),
        phases=_phases(page),
        tenant=page.tenant,
        key_prefix=page.key_prefix,
    )
    listed = states[: page.limit]
    if len(states) == len(listed):
        return listed, None
    last = f"{_MARK}{listed[-1].serial}"
    return listed, base64.urlsafe_b64encode(last.encode()).decode("ascii").rstrip("=")


def _phases(page: PageRequest) -> frozenset[QueryPhase] | None:
    if page.phase is None:
        return UNFINISHED if page.unfinished else None
    return frozenset({page.phase}) & (UNFINISHED if page.unfinished else frozenset(QueryPhase))


def _decoded(cursor: str) -> int:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
        serial = int(text.removeprefix(_MARK)) if text.startswith(_MARK) else -1
    except ValueError:  # base64's own is one too
        serial = -1
    good = 0 <= serial <= _LARGEST_SERIAL
    checks.require(good, "cursor", "must be a next_cursor of a page", cursor)
    return serial


def undeploy(store: Store, query_id: str, *, clock: Clock) -> StoredQuery:
    """Retire a query and free its capacity; retiring it again changes nothing.

    NotFound if there is none of that id, Conflict if it is not planned yet or has no plans.
    """
    store.move(query_id, QueryPhase.RETIRED, at=clock.timestamp(), message="undeployed")
    record = store.query(query_id)
    if record.phase is not QueryPhase.RETIRED:
        rule = "must be waiting, deploying or serving to be undeployed"
        raise Conflict("phase", rule, record.phase)
    return record


def retire_expired(
    store: Store, live: Iterable[StoredQuery], deadlines: MutableMapping[str, float], clock: Clock
) -> tuple[str, ...]:
    """Retire the queries that were served as long as requested; return their ids.

    `deadlines` are monotonic seconds by query, set here at the first look at a query that serves.
    A system clock that is set ahead meanwhile retires none.
    """
    expired = tuple(record.id for record in live if _is_over(record, deadlines, clock))
    for query_id in expired:
        at = clock.timestamp()
        store.move(query_id, QueryPhase.RETIRED, at=at, message="its duration is over")
        del deadlines[query_id]
    return expired


def _is_over(record: StoredQuery, deadlines: MutableMapping[str, float], clock: Clock) -> bool:
    duration_s, since = record.query.duration_s, record.entered(QueryPhase.SERVING)
    if duration_s is None or since is None:
        return False
    left_s = since + duration_s - clock.timestamp()
    return clock.now() >= deadlines.setdefault(record.id, clock.now() + left_s)


def earlier_bills(store: Store, pipeline: str) -> tuple[Cost, ...]:
    """Return what planning the newest queries of a pipeline cost, those that ended by themselves.

    Queries that reused what others had run are left out, as the next one may have to run it, and
    those whose planning broke off, as it may have.
    """
    records = store.queries(limit=_MOST_BILLS, phases=_PLANNED)
    bills = [
        _bill(record)
        for record in records
        if record.spec.get("pipeline") == pipeline and not record.crashes
    ]
    return tuple(bill.paid for bill in bills if bill.paid.runs > 0 and not bill.shared_runs)


def _bill(record: StoredQuery) -> Bill:
    # Of a whole result only the bill is read: there are a hundred of them.
    bill = (record.result or {}).get("bill")
    return from_document(Bill, bill) if isinstance(bill, dict) else Bill()


def require_affordable(query: Query, infrastructure: Infrastructure, pipeline: Pipeline) -> None:
    """Raise InvalidInput where calls that planning may make are to unknown or unbounded endpoints.

    Those without a bound are refused where `limits.profiling_usd` caps what they cost. Else as
    `fitted`.
    """
    operators = list(fitted(query, pipeline.graph, infrastructure).graph.operators)
    if pipeline.judge is not None:
        operators.append(pipeline.judge.operator.spec)
    require_bounded(operators, infrastructure.endpoints, query.limits.profiling_usd)
