"""Serving replicas: the plans they should serve, the state each has applied, and their reports.

A replica polls, and the answer is held until something changes. Each poll has the state that it
serves: so the service knows when no replica sends requests any more to ended instances.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope

from circinus.api.http.bodies import JSON, read_body
from circinus.api.http.data_plane import while_connected
from circinus.api.schemas.following import (
    FOLLOWED,
    REPORTED,
    FollowedView,
    ServedView,
    served_view,
)
from circinus.api.schemas.violations import validated
from circinus.api.serving.edge import ExactRoute, FunctionEndpoint
from circinus.deploy.runtime.deployment import DeploymentStatus
from circinus.deploy.runtime.following import ServedDeployment
from circinus.deploy.runtime.learning import ObservedWorkload
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.report import JUDGED_ANSWERS, DeploymentReport, LatestAnswers
from circinus.deploy.runtime.telemetry import ArrivalSample, ServiceSample, latest
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.io.infrastructure_file import infrastructure_to_dict
from circinus.pipelines.model.infrastructure import Infrastructure

_HOLD_S = 5.0  # longest that a question waits for news
_LOOK_S = 0.25  # between two looks at what serves; a plan that is replaced is looked at at once
_SILENT_S = 3.0  # without polls, after which a replica is gone
_HELD_S = 2.0  # until all have reported on that time: they do so every second
_FORGOTTEN_S = 5.0  # figures without a new report
_LARGEST_REPORT = 2**25  # bytes
_RETRY_AFTER_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport:
    """What a replica reports of a deployment: sums, and what is new since its last report."""

    report: DeploymentReport  # with the new answers alone
    arrivals: tuple[ArrivalSample, ...] = ()  # the new ones, each so many seconds ago
    arrival_count: int = 0  # since the replica began to serve the plan
    services: tuple[ServiceSample, ...] = ()  # the new ones
    service_count: int = 0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Answers, failures, arrivals and service samples so far."""
        return self.report.answered, self.report.failed, self.arrival_count, self.service_count

    def new_since(self, before: ReplicaReport | None) -> tuple[int, ...]:
        """Return how many of each count are new; all, if `before` is none or another plan's."""
        if before is None or before.report.plan_id != self.report.plan_id:
            return self.counts
        pairs = zip(self.counts, before.counts, strict=True)
        return tuple(max(now - then, 0) for now, then in pairs)


_REPORTS = TypeAdapter[dict[str, ReplicaReport]](dict[str, ReplicaReport])


def replica_reports(
    orchestrator: Orchestrator, before: Mapping[str, ReplicaReport] | None = None
) -> dict[str, ReplicaReport]:
    """Return query id -> what its requests got here, with samples since the report before."""
    now, reports = orchestrator.clock.now(), {}
    for query, dispatcher in orchestrator.dispatchers().items():
        report, trace = dispatcher.report(), dispatcher.telemetry.trace
        counted = ReplicaReport(
            report=report, arrival_count=trace.arrival_count, service_count=trace.service_count
        )
        answered, _, arrived, served = counted.new_since((before or {}).get(query))
        arrivals = latest(trace.arrivals, arrived)
        reports[query] = replace(
            counted,
            report=replace(report, answers=report.answers.latest(answered)),
            arrivals=tuple(each._replace(at=now - each.at) for each in arrivals),
            services=tuple(latest(trace.services, served)),
        )
    return reports


def reports_to_json(reports: Mapping[str, ReplicaReport]) -> bytes:
    """Return reports as JSON."""
    return _REPORTS.dump_json(dict(reports))


def reports_from_json(document: bytes) -> dict[str, ReplicaReport]:
    """Return reports of JSON; InvalidInput if they are none."""
    return validated(_REPORTS.validate_json, document)


@dataclass(slots=True, eq=False)
class _Replica:
    applied: int  # number of the latest state that it serves
    asks: int = 0  # questions that wait
    polled_at: float = 0.0  # the last time
    reported_at: float = 0.0
    reports: dict[str, ReplicaReport] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Answered:
    """What all replicas answered of a plan: sums only grow, whichever of them ends."""

    plan_id: str
    requests: int = 0
    failed: int = 0
    answers: LatestAnswers = field(default_factory=LatestAnswers)


@dataclass(slots=True, eq=False)
class Replicas:
    """The serving replicas of an orchestrator, as its `Followers`. Used within one event loop."""

    orchestrator: Orchestrator
    clock: Clock
    expected: int = 0  # expected followers, `>= 0`: they may not have connected yet
    leaves_s: float = 10.0  # longest that the end of anything waits for them
    run: str = field(default_factory=lambda: secrets.token_hex(6))
    _number: int = field(default=0, init=False)  # of the state
    _state: object = field(default=None, init=False)  # equals while it does
    _views: dict[str, tuple[object, ServedView]] = field(default_factory=dict, init=False)
    _document: bytes = field(default=b"", init=False)
    _looked: float = field(default=0.0, init=False)
    _replicas: dict[str, _Replica] = field(default_factory=dict, init=False)  # by their ids
    _answered: dict[str, _Answered] = field(default_factory=dict, init=False)  # by query
    # query -> arrivals that the dispatcher of here has not ingested yet
    _arrivals: dict[str, list[ArrivalSample]] = field(default_factory=dict, init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def version(self) -> str:
        """Name of the state as it was last looked at."""
        return f"{self.run}-{self._number}"

    async def after(self, since: str, follower: str, applied: str) -> bytes | None:
        """Return the state as JSON once it is not `since` any more; None: it is so for long.

        The caller is a follower with the state `applied` in force. Unavailable before the desired
        plans are known, and at the end.
        """
        known = self._replicas.setdefault(follower, _Replica(-1))
        known.applied, known.asks = self._number_of(applied), known.asks + 1
        ends = self.clock.now() + _HOLD_S
        try:
            self._notify()
            while True:
                self._look(_LOOK_S)
                if since != self.version:
                    return self._document
                left_s = ends - self.clock.now()
                if left_s <= 0:
                    return None
                await self._change(min(left_s, _LOOK_S))
        finally:
            known.asks -= 1
            known.polled_at = self.clock.now()

    async def left(self) -> None:
        """See `Followers`."""
        ends = self.clock.now() + self.leaves_s
        if self._closed or self.orchestrator.awaited() is None:
            return
        self._look(0.0)
        number = self._number
        while self.clock.now() < ends and not self._all_are_at(number):
            await self._change(_LOOK_S)

    def note(self, replica: str, reports: Mapping[str, ReplicaReport]) -> None:
        """Add a replica's report on requests: sums, and samples since its last one."""
        known = self._replicas.setdefault(replica, _Replica(-1, polled_at=self.clock.now()))
        for query, each in reports.items():
            if self.orchestrator.plan_serving(query) == each.report.plan_id:
                self._take_in(query, each, each.new_since(known.reports.get(query)))
        known.reported_at, known.reports = self.clock.now(), dict(reports)

    def _take_in(self, query: str, each: ReplicaReport, new: tuple[int, ...]) -> None:
        answered, failed, arrived, served = new
        sums = self._answered_of(query, each.report.plan_id)
        sums.requests, sums.failed = sums.requests + answered, sums.failed + failed
        now = self.orchestrator.clock.now()
        answers = each.report.answers.latest(answered).on_clock(now)
        sums.answers = replace(sums.answers, at=now).plus(answers)
        self._ingest(query, each, arrived, served)

    def _answered_of(self, query: str, plan_id: str) -> _Answered:
        sums = self._answered.get(query)
        if sums is None or sums.plan_id != plan_id:
            sums = self._answered[query] = _Answered(plan_id)
        return sums

    def _ingest(self, query: str, each: ReplicaReport, arrived: int, served: int) -> None:
        """Train the dispatcher here; an arrival waits for the reports of others on its time."""
        now, waiting = self.clock.now(), self._arrivals.setdefault(query, [])
        waiting += (it._replace(at=now - it.at) for it in latest(each.arrivals, arrived))
        due = sorted(it for it in waiting if it.at < now - _HELD_S)
        self._arrivals[query] = [it for it in waiting if it.at >= now - _HELD_S]
        if (dispatcher := self.orchestrator.dispatchers().get(query)) is not None:
            dispatcher.ingest(due, latest(each.services, served))

    def reports(self) -> dict[str, DeploymentReport]:
        """Return query id -> what its requests got from all dispatchers, the one here first."""
        return {q: self._together(q, own) for q, own in self.orchestrator.reports().items()}

    def status(self, query_id: str) -> DeploymentStatus:
        """Return how a query's deployment fares; InvalidInput if there is none."""
        status = self.orchestrator.status(query_id)
        if status.report is None:
            return status
        return replace(status, report=self._together(query_id, status.report))

    def workload(self, query_id: str) -> ObservedWorkload | None:
        """Return the latest requests to a query; None: no plan serves it.

        The dispatcher here learnt of all requests, but not of all answers.
        """
        if (own := self.orchestrator.dispatchers().get(query_id)) is None:
            return None
        answers = self._together(query_id, own.report()).answers.latest(JUDGED_ANSWERS)
        return replace(own.workload(), elsewhere_s=answers.elsewhere_s())

    def _together(self, query: str, own: DeploymentReport) -> DeploymentReport:
        total = own
        for replica in self._alive():
            each = replica.reports.get(query)
            fresh = self.clock.now() - replica.reported_at < _FORGOTTEN_S
            if each is not None and fresh and each.report.plan_id == own.plan_id:
                moment = replace(each.report, answered=0, failed=0, answers=LatestAnswers())
                total = total.plus(moment)
        sums = self._answered.get(query)
        if sums is None or sums.plan_id != own.plan_id:
            return total
        return replace(
            total,
            answered=own.answered + sums.requests,
            failed=own.failed + sums.failed,
            answers=own.answers.plus(replace(sums.answers, at=own.answers.at)),
        )

    def close(self) -> None:
        """Answer the waiting calls, and no later ones; block nothing."""
        self._closed = True
        self._notify()

    def _alive(self) -> Iterator[_Replica]:
        now = self.clock.now()
        for name, known in tuple(self._replicas.items()):
            if known.asks or now - known.polled_at < _SILENT_S:
                yield known
            else:
                del self._replicas[name]

    def _all_are_at(self, number: int) -> bool:
        if self._closed:
            return True
        alive = tuple(self._alive())
        return len(alive) >= self.expected and all(each.applied >= number for each in alive)

    def _number_of(self, version: str) -> int:
        run, _, number = version.rpartition("-")
        return int(number) if run == self.run and number.isdecimal() else -1

    def _look(self, at_most_every_s: float) -> None:
        """See whether anything changed; Unavailable if there is nothing to see."""
        now, awaited = self.clock.now(), self.orchestrator.awaited()
        if self._closed or awaited is None:
            reason = "it is not known yet what should be served"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S)
        if self._number and now - self._looked < at_most_every_s:
            return
        self._looked, emulated = now, self.orchestrator.emulated
        serving = self.orchestrator.serving()
        self._answered = {q: each for q, each in self._answered.items() if q in serving}
        self._arrivals = {q: each for q, each in self._arrivals.items() if q in serving}
        served = {q: s for q, s in self.orchestrator.served().items() if not _calls(s)}
        each = {query: deployment.known for query, deployment in served.items()}
        if (state := (each, awaited, emulated)) != self._state:
            self._state, self._number = state, self._number + 1
            self._views = {
                query: view
                if (view := self._views.get(query)) and view[0] == each[query]
                else (each[query], served_view(deployment))
                for query, deployment in served.items()
            }
            self._document = self._rendered(awaited, emulated)
            self._notify()

    def _rendered(self, awaited: Iterable[str], emulated: Infrastructure) -> bytes:
        view = FollowedView(
            version=self.version,
            deployments={query: view for query, (_, view) in self._views.items()},
            awaited=sorted(awaited),
            emulated=infrastructure_to_dict(emulated),
        )
        return view.model_dump_json().encode()

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _change(self, longest_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._news.wait()


def _calls(served: ServedDeployment) -> bool:
    """Return whether a plan calls endpoints: leave for that is had in one place alone."""
    return bool(served.desired.plan.deployment.remote)


def replica_routes(replicas: Replicas) -> list[BaseRoute]:
    """Return the routes at which replicas poll and report."""

    async def deployments(scope: Scope, receive: Receive) -> Response:
        query = QueryParams(scope["query_string"])
        since, applied = query.get("since", ""), query.get("applied", "")
        waiting = replicas.after(since, _name_of(query), applied)
        document = await while_connected(receive, waiting)
        if document is None:
            return Response(status_code=204)
        return Response(document, media_type=JSON)

    async def reports(scope: Scope, receive: Receive) -> Response:
        query = QueryParams(scope["query_string"])
        body = await read_body(Headers(scope=scope), receive, _LARGEST_REPORT)
        replicas.note(_name_of(query), reports_from_json(body))
        return Response(status_code=204)

    return [
        ExactRoute(FOLLOWED, FunctionEndpoint(deployments), methods=["GET"]),
        ExactRoute(REPORTED, FunctionEndpoint(reports), methods=["POST"]),
    ]


def _name_of(query: QueryParams) -> str:
    name = query.get("follower", "")
    checks.require(0 < len(name) <= 100, "follower", "must be a name of at most 100", name)
    return name
