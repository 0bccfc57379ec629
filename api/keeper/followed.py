"""Tells dispatchers of other processes what serves here, and knows how far each of them is.

A dispatcher asks again and again, and is answered when something changed. What it asks with says
what it goes by now: so it is known when nobody sends requests any more to what serves no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from circinus.api.http.bodies import JSON, read_body
from circinus.api.http.data_plane import while_connected
from circinus.api.http.errors import answer_of
from circinus.api.keeper.figures import Counts, QueryFigures, ToldAnswers, figures_from
from circinus.api.schemas.following import (
    FOLLOWED,
    REPORTED,
    FollowedView,
    ServedView,
    served_view,
)
from circinus.deploy.runtime.following import ServedDeployment
from circinus.deploy.runtime.hearing import Came, latest
from circinus.deploy.runtime.observed import AnswersSeen
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, Unavailable
from circinus.pipelines.io.infrastructure_file import infrastructure_to_dict
from circinus.pipelines.model.infrastructure import Infrastructure

_HOLD_S = 5.0  # longest that a question waits for news
_LOOK_S = 0.25  # between two looks at what serves; a plan that is replaced is looked at at once
_SILENT_S = 3.0  # who asks no more is gone
_HELD_S = 2.0  # until all have told of that time: they do so every second
_FORGOTTEN_S = 5.0  # figures that nobody told anew
_LARGEST_REPORT = 2**25  # bytes
_RETRY_AFTER_S = 0.5


@dataclass(slots=True, eq=False)
class _Follower:
    applied: int  # number of the latest state that it goes by
    asks: int = 0  # questions that wait
    seen: float = 0.0
    told: float = 0.0  # when it told its figures
    figures: dict[str, QueryFigures] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Followed:
    """What serves, for those who follow: `Followers` of an orchestrator. In one event loop."""

    orchestrator: Orchestrator
    clock: Clock
    expected: int = 0  # followers that there should be, `>= 0`: they may not have come yet
    leaves_s: float = 10.0  # longest that the end of anything waits for them
    run: str = field(default_factory=lambda: secrets.token_hex(6))
    _number: int = field(default=0, init=False)  # of the state
    _known: object = field(default=None, init=False)  # equals while it does
    _views: dict[str, tuple[object, ServedView]] = field(default_factory=dict, init=False)
    _document: bytes = field(default=b"", init=False)
    _looked: float = field(default=0.0, init=False)
    _followers: dict[str, _Follower] = field(default_factory=dict, init=False)  # by their ids
    _journals: dict[str, ToldAnswers] = field(default_factory=dict, init=False)  # by query
    # query -> what came and the dispatcher of here has not heard yet
    _came: dict[str, list[Came]] = field(default_factory=dict, init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def version(self) -> str:
        """Name of the state as it was last looked at."""
        return f"{self.run}-{self._number}"

    async def after(self, since: str, follower: str, applied: str) -> bytes | None:
        """Return the state as JSON once it is not `since` any more; None: it stayed so for long.

        A follower asks, who goes by the state `applied`. Unavailable before it is known what
        should serve, and when nobody will know any more.
        """
        known = self._followers.setdefault(follower, _Follower(-1))
        known.applied, known.asks = self._number_of(applied), known.asks + 1
        ends = self.clock.now() + _HOLD_S
        try:
            self._tell()
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
            known.seen = self.clock.now()

    async def left(self) -> None:
        """See `Followers`."""
        ends = self.clock.now() + self.leaves_s
        if self._closed or self.orchestrator.awaited() is None:
            return
        self._look(0.0)
        number = self._number
        while self.clock.now() < ends and not self._all_are_at(number):
            await self._change(_LOOK_S)

    def note(self, follower: str, figures: Mapping[str, QueryFigures]) -> None:
        """Take what requests got from a follower: sums, and the answers since the last time."""
        known = self._followers.setdefault(follower, _Follower(-1, seen=self.clock.now()))
        for query, each in figures.items():
            if self.orchestrator.plan_serving(query) == each.plan_id:
                new = each.counts.since(known.figures.get(query), each.plan_id)
                self.journal(query, each.plan_id).add(each.taken, new.answered)
                self._hear(query, each, new)
        known.told, known.figures = self.clock.now(), dict(figures)

    def _hear(self, query: str, told: QueryFigures, new: Counts) -> None:
        """Let the dispatcher of here learn; what came waits for what others tell of that time."""
        now, waits = self.clock.now(), self._came.setdefault(query, [])
        waits += (each._replace(at=now - each.at) for each in latest(told.came, new.came))
        due = sorted(each for each in waits if each.at < now - _HELD_S)
        self._came[query] = [each for each in waits if each.at >= now - _HELD_S]
        self.orchestrator.hear(query, due, latest(told.took, new.took))

    def journal(self, query: str, plan_id: str) -> ToldAnswers:
        """Return where the answers of a query's plan are noted."""
        found = self._journals.get(query)
        if found is None or found.plan_id != plan_id:
            found = self._journals[query] = ToldAnswers(plan_id)
        return found

    def figures(self) -> dict[str, list[QueryFigures]]:
        """Return query id -> what it got from each follower, if it serves the plan of here."""
        found: dict[str, list[QueryFigures]] = {}
        for query, each, _ in self._fresh():
            found.setdefault(query, []).append(each)
        return found

    def answers(self) -> dict[str, list[AnswersSeen]]:
        """Return query id -> the latest answers of each follower that serves the plan of here.

        They called no endpoints, see `after`, so they cost nothing beside machines.
        """
        found: dict[str, list[AnswersSeen]] = {}
        for query, each, told_s in self._fresh():
            ago_s, latency_s = np.array(each.answers).reshape(-1, 2).T
            seen = AnswersSeen(ago_s=ago_s + told_s, latency_s=latency_s, usd=np.zeros(len(ago_s)))
            found.setdefault(query, []).append(seen)
        return found

    def close(self) -> None:
        """Answer those who wait, and nobody any more; hold nothing up."""
        self._closed = True
        self._tell()

    def _fresh(self) -> Iterable[tuple[str, QueryFigures, float]]:
        """Yield figures with their query, and how many seconds ago they were told."""
        for known in self._alive():
            told_s = self.clock.now() - known.told
            for query, each in known.figures.items():
                here = self.orchestrator.plan_serving(query)
                if told_s < _FORGOTTEN_S and here == each.plan_id:
                    yield query, each, told_s

    def _alive(self) -> Iterable[_Follower]:
        now = self.clock.now()
        for name, known in tuple(self._followers.items()):
            if known.asks or now - known.seen < _SILENT_S:
                yield known
            else:
                del self._followers[name]

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
        self._looked, imitated = now, self.orchestrator.imitated
        serving = self.orchestrator.serving()
        self._journals = {q: each for q, each in self._journals.items() if q in serving}
        self._came = {q: each for q, each in self._came.items() if q in serving}
        served = {q: s for q, s in self.orchestrator.served().items() if not _calls(s)}
        each = {query: deployment.known for query, deployment in served.items()}
        if (known := (each, awaited, imitated)) != self._known:
            self._known, self._number = known, self._number + 1
            self._views = {
                query: kept
                if (kept := self._views.get(query)) and kept[0] == each[query]
                else (each[query], served_view(deployment))
                for query, deployment in served.items()
            }
            self._document = self._shown(awaited, imitated)
            self._tell()

    def _shown(self, awaited: Iterable[str], imitated: Infrastructure) -> bytes:
        view = FollowedView(
            version=self.version,
            deployments={query: view for query, (_, view) in self._views.items()},
            awaited=sorted(awaited),
            emulated=infrastructure_to_dict(imitated),
        )
        return view.model_dump_json().encode()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _change(self, longest_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._news.wait()


def _calls(served: ServedDeployment) -> bool:
    """Return whether a plan calls endpoints: leave for that is had in one place alone."""
    return bool(served.desired.plan.deployment.remote)


@dataclass(frozen=True, slots=True)
class FollowedApp:
    """Answers dispatchers; all others are for `app` to answer. Behind the guard."""

    app: ASGIApp
    followed: Followed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        asked = (scope.get("method"), scope.get("path"))
        try:
            if asked == ("GET", FOLLOWED):
                response = await self._deployments(scope, receive)
            elif asked == ("POST", REPORTED):
                response = await self._figures(scope, receive)
            else:
                await self.app(scope, receive, send)
                return
        except CircinusError as error:
            response = answer_of(error, scope)
        await response(scope, receive, send)

    async def _deployments(self, scope: Scope, receive: Receive) -> Response:
        asked = QueryParams(scope["query_string"])
        given = (asked.get("since", ""), _name_of(asked), asked.get("applied", ""))
        document = await while_connected(receive, self.followed.after(*given))
        if document is None:
            return Response(status_code=204)
        return Response(document, media_type=JSON)

    async def _figures(self, scope: Scope, receive: Receive) -> Response:
        asked = QueryParams(scope["query_string"])
        body = await read_body(Headers(scope=scope), receive, _LARGEST_REPORT)
        self.followed.note(_name_of(asked), figures_from(body))
        return Response(status_code=204)


def _name_of(asked: QueryParams) -> str:
    name = asked.get("follower", "")
    checks.require(0 < len(name) <= 100, "follower", "must be a name of at most 100", name)
    return name
