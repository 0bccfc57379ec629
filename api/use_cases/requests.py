"""Inference calls to deployed queries, and what they gave lately: seconds, and known scores."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from circinus.api.phases import LIVE, UNFINISHED, QueryPhase
from circinus.api.schemas.service import ExampleReference
from circinus.api.store.records import Conflict, StoredQuery
from circinus.api.use_cases.deployer import Deployer, serves
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.runtime.dispatcher import RequestResult
from circinus.pipelines import checks
from circinus.pipelines.dataset import Example
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.payload import Payload
from circinus.planner.answers.drift import ObservedRequests

_RETRY_AFTER_S = 1.0
WINDOW = 200
"""Latest requests that are judged by, and examples among them."""


@dataclass(frozen=True, slots=True)
class Examples:
    """So many examples that a pipeline makes or loads, with that seed."""

    count: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What the output for an example scored, in [0, 1]; `index` is its place in `data`, from 0."""

    index: int
    data: Examples
    score: float


@dataclass(slots=True)
class _Window:
    plan_id: str
    results: deque[RequestResult] = field(default_factory=lambda: deque(maxlen=WINDOW))
    scored: dict[tuple[Examples, int], Scored] = field(default_factory=dict)  # the latest last

    def score(self, scored: Scored) -> None:
        # An example that comes again tells nothing new of the others.
        key = (scored.data, scored.index)
        self.scored.pop(key, None)
        self.scored[key] = scored
        if len(self.scored) > WINDOW:
            del self.scored[next(iter(self.scored))]


class RequestWindows:
    """The latest requests of every query's deployed plan. Used within one event loop."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def note(
        self,
        query_id: str,
        plan_id: str,
        result: RequestResult,
        scored: Scored | None = None,
    ) -> None:
        """Take in an answer; those of another plan of the query are forgotten.

        Of each example the latest answer counts.

        Args:
            query_id: Whose.
            plan_id: That answered.
            result: What it gave.
            scored: Its score; None: what is right is not known.
        """
        window = self._windows.get(query_id)
        if window is None or window.plan_id != plan_id:
            window = self._windows[query_id] = _Window(plan_id)
        window.results.append(result)
        if scored is not None:
            window.score(scored)

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
            scores=np.array([scored.score for scored in window.scored.values()]),
        )

    def data(self, query_id: str) -> Examples | None:
        """Give the examples that the latest known output came from; None: there was none."""
        latest = next(reversed(self._windows[query_id].scored.values()), None)
        return None if latest is None else latest.data

    def forget(self, query_id: str) -> None:
        """Start anew for a query."""
        self._windows.pop(query_id, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """What a client gets: by which plan, and its score in [0, 1]; None without an example."""

    result: RequestResult
    plan_id: str
    score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Sends calls to deployments. Used within one event loop, which it never blocks."""

    parts: ServiceParts
    deployer: Deployer
    windows: RequestWindows = field(default_factory=RequestWindows)

    async def send(
        self, query_id: str, given: Payload, chosen: ExampleReference | None, *, timeout_s: float
    ) -> AnsweredRequest:
        """Give the answer of the query's deployed plan.

        Args:
            query_id: Whose plan.
            given: What the source operators get; ignored with an example.
            chosen: Example to take the input from, and to score the output by; None: none.
            timeout_s: Longest wait, `> 0`.

        Raises:
            NotFound: If there is no such query.
            Conflict: If the query has no deployment, and it is not known whether it will get one.
            Unavailable: If it is not serving now.
            InvalidInput: If the input or the example is none for the pipeline.
            OperatorFailed: If an operator or the metric raised.
        """
        record = await asyncio.to_thread(self.parts.store.query, query_id)
        self._require_serving(record)
        name = record.query.pipeline
        example = None if chosen is None else await self._example(name, chosen)
        # It may have been taken down since the query was read.
        if not serves(self.deployer, query_id):
            reason = f"query {query_id} has no deployment at this moment"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S)
        plan_id = self.deployer.status(query_id).plan_id
        input = given if example is None else example.input
        result = await self.deployer.request(query_id, input, timeout_s=timeout_s)
        scored = None
        if example is not None and chosen is not None:
            pipeline = await asyncio.to_thread(self.parts.catalogue.pipeline, name)
            score = await asyncio.to_thread(pipeline.score_of, result.output, example.expected)
            data = Examples(chosen.count, chosen.seed)
            scored = Scored(index=chosen.index, data=data, score=score)
        self.windows.note(query_id, plan_id, result, scored)
        return AnsweredRequest(
            result=result, plan_id=plan_id, score=None if scored is None else scored.score
        )

    async def _example(self, pipeline: str, chosen: ExampleReference) -> Example:
        source = self.parts.examples.examples
        dataset = await asyncio.to_thread(source, pipeline, chosen.count, chosen.seed)
        rule = f"must be in [0, {len(dataset)}): there are no more examples"
        checks.require(chosen.index < len(dataset), "example.index", rule, chosen.index)
        return dataset.examples[chosen.index]

    def _require_serving(self, record: StoredQuery) -> None:
        if record.phase is QueryPhase.SERVING:
            return
        comes_back = record.phase in LIVE or (record.replans and record.phase in UNFINISHED)
        if not comes_back:
            raise Conflict("phase", "must be serving to answer requests", record.phase.value)
        # A query that was replanned is served by its old plan until the new one is up.
        if not serves(self.deployer, record.id):
            reason = f"query {record.id} is {record.phase.value}"
            raise Unavailable(
                f"{reason}: {record.message}" if record.message else reason,
                retry_after_s=_RETRY_AFTER_S,
            )
