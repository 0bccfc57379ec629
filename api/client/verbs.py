"""The verbs of a service, for blocking and for asynchronous clients alike.

A verb says which calls it makes and what comes of them (`calls`); making them is for the client
that it is asked of.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial, update_wrapper
from os import PathLike
from pathlib import Path
from typing import (
    Any,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from circinus.api.client import calls
from circinus.api.client.calls import Call
from circinus.api.client.exchange import Refused, Talk, Working
from circinus.api.phases import SETTLED, QueryPhase
from circinus.api.query_file import query_of, read_document
from circinus.api.schemas.datasets import DatasetView
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.schemas.progress import QueryView
from circinus.api.schemas.query import DataSource, QueryRequest, SloRequest
from circinus.api.schemas.schedule import ScheduleView
from circinus.pipelines.dataset_files import dataset_id, packed

_NOT_FOUND = 404
_DATASET = re.compile(r"d-[0-9a-f]{32}")

P = ParamSpec("P")
Answer = TypeVar("Answer")
QueryInput: TypeAlias = QueryRequest | Mapping[str, object] | str | PathLike[str]
"""A query: as it is, as a document, or the path of its file."""
Until: TypeAlias = Collection[QueryPhase] | Callable[[QueryView], bool] | None
"""What a query is waited for: one of these phases, or that this holds of it; None: that nothing
more happens to it by itself, as it serves, ended, or waits for machines."""


class QueryFields(TypedDict, total=False):
    """Fields of a query, those of its objectives beside the others; see `QueryRequest`."""

    pipeline: str
    data: int | str | PathLike[str] | DataSource | Mapping[str, object]
    """How many examples of the pipeline, a file of JSON lines or a folder, or the id of a data set
    that was handed over."""
    accuracy: float
    latency_s: float
    latency_statistic: str
    cost_usd_per_hour: float
    cost_usd_per_1000_requests: float
    throughput_per_s: float
    holds_for: str
    request_rate_per_s: float
    weight: float
    priority: int
    tenant: str
    duration_s: float
    limits: Mapping[str, object]
    seed: int
    restrictions: Mapping[str, object]
    device: Mapping[str, object]
    cold: bool
    planning: Mapping[str, object]


class Blocking(Protocol):
    """A client whose verbs give answers."""

    def carry_out(self, talk: Talk[Answer]) -> Answer:
        """Return what a talk comes to."""


class Awaiting(Protocol):
    """A client whose verbs are awaited."""

    def carry_out(self, talk: Talk[Answer]) -> Coroutine[Any, Any, Answer]:
        """Return what a talk comes to."""


class Verb(Generic[P, Answer]):
    """A method of both kinds of clients."""

    def __init__(self, says: Callable[P, Call[Answer] | Talk[Answer]]) -> None:
        self.says = says
        self.__doc__ = says.__doc__

    @overload
    def __get__(self, client: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type[object]) -> Callable[P, Answer]: ...
    @overload
    def __get__(
        self, client: Awaiting, owner: type[object]
    ) -> Callable[P, Coroutine[Any, Any, Answer]]: ...
    def __get__(self, client: Blocking | Awaiting | None, owner: type[object]) -> object:
        """Return the method of a client."""
        if client is None:
            return self

        def ask(*args: P.args, **kwargs: P.kwargs) -> object:
            said = self.says(*args, **kwargs)
            return client.carry_out(_only(said) if isinstance(said, Call) else said)

        return update_wrapper(ask, self.says)


def _only(call: Call[Answer]) -> Talk[Answer]:
    answer: Answer = yield call
    return answer


def submit(
    query: QueryInput | None = None,
    *,
    idempotency_key: str | None = None,
    **fields: Unpack[QueryFields],
) -> Talk[QueryView]:
    """Yield the accepted query; the same key gives the same query again.

    `fields` go before those of the query. A file or folder that its data names is handed over;
    a file's names start at its folder. InvalidInput names every broken rule.
    """
    request, base = yield Working(partial(_read, query, fields))
    data = request.data
    if (named := data.folder or data.jsonl) is not None:
        kept, _ = yield from hand_over(base / named)
        data = DataSource(dataset=kept.id, on_failure=data.on_failure)
        request = request.model_copy(update={"data": data})
    accepted: QueryView = yield calls.submission(request, idempotency_key or uuid.uuid4().hex)
    return accepted


def hand_over(path: Path) -> Talk[tuple[DatasetView, bool]]:
    """Yield the data set of a file of JSON lines or a folder, and whether it was sent.

    Content that the service has is not sent again. InvalidInput names every example at fault.
    """
    kind, content = yield Working(partial(packed, path))
    try:
        return (yield calls.dataset(dataset_id(kind, content))), False
    except Refused as refusal:
        if refusal.problem.status != _NOT_FOUND:
            raise
    return (yield calls.upload(kind, content)), True


def look(query_id: str, until: Until) -> Talk[tuple[QueryView, bool]]:
    """Yield a query, and whether it is as it is waited for."""
    query: QueryView = yield calls.query(query_id)
    if until is None:
        if query.phase is not QueryPhase.WAITING:
            return query, query.phase in SETTLED
        # For capacity, or only for the schedule to be made?
        schedule: ScheduleView = yield calls.schedule(observed=False)
        return query, any(waiting.query_id == query_id for waiting in schedule.waiting)
    return query, until(query) if callable(until) else query.phase in until


def tells_more(event: EventView) -> bool:
    """Return whether an event may change a query: one measurement changes nothing."""
    return event.kind != EventKind.MEASURED


class Verbs:
    """What can be asked of a service; see `api.client.calls`, and `submit` and `hand_over`."""

    health = Verb(calls.health)
    ready = Verb(calls.ready)
    metrics = Verb(calls.metrics)
    submit = Verb(submit)
    query = Verb(calls.query)
    page = Verb(calls.page)
    cancel = Verb(calls.cancel)
    replan = Verb(calls.replan)
    what_if = Verb(calls.what_if)
    plans = Verb(calls.plans)
    plan = Verb(calls.plan)
    explanation = Verb(calls.explanation)
    deployment = Verb(calls.deployment)
    objectives = Verb(calls.objectives)
    set_replicas = Verb(calls.set_replicas)
    drop_replicas = Verb(calls.drop_replicas)
    undeploy = Verb(calls.undeploy)
    pool = Verb(calls.pool)
    choose_pool = Verb(calls.choose_pool)
    choose_query_pool = Verb(calls.choose_query_pool)
    set_pool = Verb(calls.set_pool)
    drop_pool = Verb(calls.drop_pool)
    routes = Verb(calls.routes)
    route = Verb(calls.route)
    set_route = Verb(calls.set_route)
    drop_route = Verb(calls.drop_route)
    ask_route = Verb(calls.ask_route)
    request = Verb(calls.request)
    schedule = Verb(calls.schedule)
    preview = Verb(calls.preview)
    problem = Verb(calls.problem)
    event_page = Verb(calls.event_page)
    hand_over = Verb(hand_over)
    upload = Verb(calls.upload)
    dataset = Verb(calls.dataset)
    datasets = Verb(calls.datasets)
    forget = Verb(calls.forget)
    pipelines = Verb(calls.pipelines)
    method = Verb(calls.method)
    infrastructure = Verb(calls.infrastructure)
    set_machines = Verb(calls.set_machines)
    emulation = Verb(calls.emulation)
    set_emulation = Verb(calls.set_emulation)


def _read(query: QueryInput | None, fields: Mapping[str, Any]) -> tuple[QueryRequest, Path]:
    """Return what is asked for, and where paths of its data start."""
    base, document = Path(), {}
    if isinstance(query, QueryRequest):
        if not fields:
            return query, base
        document = query.model_dump(mode="json", exclude_unset=True)
    elif isinstance(query, Mapping):
        document = dict(query)
    elif query is not None:
        base, document = Path(query).parent, read_document(Path(query))
    slo = {name: value for name, value in fields.items() if name in SloRequest.model_fields}
    document |= {name: value for name, value in fields.items() if name not in slo}
    if slo:
        known = document.get("slo", {})
        document["slo"] = {**known, **slo} if isinstance(known, Mapping) else known
    if "data" in fields:
        document["data"] = _source(fields["data"])
    return query_of(document), base


def _source(data: object) -> object:
    """Return the data of a query document; what stands for none is for its schema to refuse."""
    if isinstance(data, DataSource):
        return data.model_dump(mode="json", exclude_unset=True)
    if isinstance(data, int):
        return {"examples": data}
    if not isinstance(data, str | PathLike):
        return data
    if isinstance(data, str) and _DATASET.fullmatch(data):
        return {"dataset": data}
    path = Path(data).absolute()
    return {"folder" if path.is_dir() else "jsonl": str(path)}
