"""Inference calls to deployed queries, and what they gave lately: seconds, and known scores."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from circinus.api.phases import LIVE, UNFINISHED, QueryPhase
from circinus.api.schemas.explanation import ReplanData
from circinus.api.schemas.query import DataSource
from circinus.api.schemas.service import ExampleReference
from circinus.api.store.records import Conflict
from circinus.api.use_cases.deployer import Deployer
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.scheduling import Served
from circinus.deploy.runtime.dispatcher import RequestResult, RequestTerms
from circinus.pipelines import checks
from circinus.pipelines.dataset import Example
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.payload import Payload, content_hash
from circinus.planner.answers.drift import ObservedRequests

_RETRY_AFTER_S = 1.0
_KEPT_HASHES = 8  # data sets whose inputs are told from others
WINDOW = 200
"""Latest requests that are judged by, and examples among them."""


@dataclass(slots=True)
class _Window:
    plan_id: str
    results: deque[RequestResult] = field(default_factory=lambda: deque(maxlen=WINDOW))
    scores: dict[ExampleReference, float] = field(default_factory=dict)  # the latest last


class RequestWindows:
    """The latest requests of every query's deployed plan. Used within one event loop."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def note(
        self,
        query_id: str,
        plan_id: str,
        result: RequestResult,
        example: ExampleReference | None = None,
        score: float | None = None,
    ) -> None:
        """Take in an answer, with what it scored in [0, 1] where what is right is known.

        Answers of another plan of the query are forgotten; of each example the latest one counts.
        """
        window = self._windows.get(query_id)
        if window is None or window.plan_id != plan_id:
            window = self._windows[query_id] = _Window(plan_id)
        window.results.append(result)
        if example is not None and score is not None:
            # An example that comes again tells nothing new of the others.
            window.scores.pop(example, None)
            window.scores[example] = score
            if len(window.scores) > WINDOW:
                del window.scores[next(iter(window.scores))]

    def queries(self) -> tuple[tuple[str, str], ...]:
        """Give (query id, plan id) of all that got requests."""
        return tuple((query_id, window.plan_id) for query_id, window in self._windows.items())

    def seen(self, query_id: str) -> ObservedRequests:
        """Give what the latest requests of a query gave, which must have had some."""
        window = self._windows[query_id]
        tiers = {tier for result in window.results for tier in result.tier_s}
        return ObservedRequests(
            latency_s=np.array([result.latency_s for result in window.results]),
            tier_s={
                tier: float(np.mean([result.tier_s.get(tier, 0.0) for result in window.results]))
                for tier in tiers
            },
            # What is no link's wait here is the network's own, in a cluster.
            moved_s=float(np.mean([r.transfer_s + r.overhead_s for r in window.results])),
            scores=np.array(list(window.scores.values())),
        )

    def data(self, query_id: str) -> ReplanData | None:
        """Give the examples that the latest known output came from; None: there was none."""
        latest = next(reversed(self._windows[query_id].scores), None)
        return None if latest is None else ReplanData(examples=latest.count, seed=latest.seed)

    def forget(self, query_id: str) -> None:
        """Start anew for a query."""
        self._windows.pop(query_id, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """What a client gets: by which plan, and its score in [0, 1]; None without an example.

    `planned_on` says whether an example is one of the query's own data, by its content.
    """

    result: RequestResult
    plan_id: str
    score: float | None
    planned_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRoute:
    """What is known of a query whose requests are answered."""

    pipeline: str
    data: DataSource  # that it was planned on


@dataclass(slots=True, kw_only=True)
class Requests:
    """Sends calls to deployments. Used within one event loop, which it never blocks.

    Whoever deploys tells what is served: the store is asked only for what does not serve, to say
    why.
    """

    parts: ServiceParts
    deployer: Deployer
    windows: RequestWindows = field(default_factory=RequestWindows)
    _routes: Mapping[str, RequestRoute] = field(default_factory=dict, init=False)  # by query
    # of the inputs that a query was planned on: pipeline, data, seed -> their hashes
    _hashes: dict[tuple[str, str | int | None, int], frozenset[str]] = field(
        default_factory=dict, init=False, repr=False
    )

    def serve(self, served: Mapping[str, Served]) -> None:
        """Learn what is served, by query; what was served before is forgotten."""
        self._routes = {
            query_id: RequestRoute(pipeline=one.plan.pipeline, data=one.data)
            for query_id, one in served.items()
        }

    def forget(self, query_id: str) -> None:
        """Serve a query no more that was retired: its instances have yet to be stopped."""
        self._routes = {query: route for query, route in self._routes.items() if query != query_id}

    async def send(
        self, query_id: str, given: Payload, chosen: ExampleReference | None, terms: RequestTerms
    ) -> AnsweredRequest:
        """Give the answer of the query's deployed plan, on the client's terms.

        The source operators get what is `given`, or the input of the `chosen` example, whose
        expected output then scores the answer.

        Raises:
            NotFound: If there is no such query.
            Conflict: If the query has no deployment, and it is not known whether it will get one.
            Unavailable: If it is not serving now.
            InvalidInput: If the input or the example is none for the pipeline.
            TooManyRequests: If it cannot be answered in time, and the terms do not take it late.
            OperatorFailed: If an operator or the metric raised.
        """
        route = self._routes.get(query_id)
        if route is None or self.deployer.serving(query_id) is None:
            route = await asyncio.to_thread(self._stored, query_id)
        name = route.pipeline
        example = None if chosen is None else await self._example(name, chosen)
        plan_id = self.deployer.serving(query_id)
        if plan_id is None:  # it is just being deployed, or was taken down
            reason = f"query {query_id} has no deployment at this moment"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S)
        input = given if example is None else example.input
        result = await self.deployer.request(query_id, input, terms)
        score, known = None, False
        if example is not None:
            known = await asyncio.to_thread(self._is_planned_on, route, example)
            pipeline = await asyncio.to_thread(self.parts.catalogue.pipeline, name)
            score = await asyncio.to_thread(pipeline.score_of, result.output, example.expected)
        self.windows.note(query_id, plan_id, result, chosen, score)
        return AnsweredRequest(result=result, plan_id=plan_id, score=score, planned_on=known)

    async def _example(self, pipeline: str, chosen: ExampleReference) -> Example:
        make = self.parts.examples
        dataset = await asyncio.to_thread(make, pipeline, chosen.count, chosen.seed)
        rule = f"must be in [0, {len(dataset)}): there are no more examples"
        checks.require(chosen.index < len(dataset), "example.index", rule, chosen.index)
        return dataset.examples[chosen.index]

    def _is_planned_on(self, route: RequestRoute, example: Example) -> bool:
        data, pipeline = route.data, route.pipeline
        which = (pipeline, data.dataset or data.examples, data.seed)
        known = self._hashes.get(which)
        if known is None:
            own = self.parts.data(data, pipeline).examples
            known = frozenset(content_hash(one.input) for one in own)
            if len(self._hashes) >= _KEPT_HASHES:  # two threads may clear: nothing is lost by it
                self._hashes.clear()
            self._hashes[which] = known
        return content_hash(example.input) in known

    def _stored(self, query_id: str) -> RequestRoute:
        """Give what the store knows of a query; Conflict if it has and gets no deployment."""
        record = self.parts.store.query(query_id)
        route = RequestRoute(pipeline=record.query.pipeline, data=record.request.data)
        if record.phase is QueryPhase.SERVING:
            return route
        comes_back = record.phase in LIVE or (record.replans and record.phase in UNFINISHED)
        if not comes_back:
            raise Conflict("phase", "must be serving to answer requests", record.phase.value)
        # A query that was replanned is served by its old plan until the new one is up.
        if self.deployer.serving(query_id) is None:
            reason = f"query {query_id} is {record.phase.value}"
            raise Unavailable(
                f"{reason}: {record.message}" if record.message else reason,
                retry_after_s=_RETRY_AFTER_S,
            )
        return route
