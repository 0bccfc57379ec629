"""Requests for examples, which are scored, and errors where nothing serves.

Requests with inputs of their own are answered where deployments run, see `api.http.data_plane`;
the others are answered here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from circinus.api.phases import LIVE, UNFINISHED, QueryPhase
from circinus.api.schemas.deployments import ExampleReference
from circinus.api.schemas.explanation import ReplanData
from circinus.api.schemas.query import DataSource, QueryRequest
from circinus.api.store.records import Conflict
from circinus.api.use_cases.datasets import ExampleSource
from circinus.api.use_cases.deployer import Deployer
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.runtime.report import JUDGED_ANSWERS, DeploymentReport, LatestAnswers
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import OperatorFailed, Unavailable
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.payload import Payload, content_hash
from circinus.pipelines.model.profile import FloatArray
from circinus.planner.answers.drift import ObservedRequests

_RECENT, _RECENT_S, _RECENT_SCORES = 20, 5.0, 60
_RETRY_AFTER_S = 1.0
_METRICS = 2  # that run at once: they are pipeline authors' code, and may hang


@dataclass(slots=True)
class _Window:
    judged: int = 0  # answers of the plan that are judged no more
    scores: dict[ExampleReference, float] = field(default_factory=dict)  # the latest last


class RequestWindows:
    """The observations of the deployed plan of every query. Used within one event loop.

    The serving process stores seconds; scores are stored here, where examples are known.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], _Window] = {}  # (query, plan): the last answers late

    def note(self, query_id: str, plan_id: str, example: ExampleReference, score: float) -> None:
        """Store the score of a request in [0, 1], where the right output is known; 0: it failed.

        Of each example the latest one counts.
        """
        scores = self._windows.setdefault((query_id, plan_id), _Window()).scores
        # A repeated example has no information on the others.
        scores.pop(example, None)
        scores[example] = score
        if len(scores) > JUDGED_ANSWERS:
            del scores[next(iter(scores))]

    def observed(self, query_id: str, report: DeploymentReport) -> ObservedRequests | None:
        """Return the observations of the latest requests of a query; None: there was none."""
        answers, scores = self._latest(query_id, report)
        return _observed(answers, answers.latency_s, scores)

    def recent(self, query_id: str, report: DeploymentReport) -> ObservedRequests | None:
        """Return those of the last `_RECENT_S`, or the last `_RECENT`; None: there are too few.

        Latencies are without waiting: a queue that has formed is no change. None, too, where what
        is known does not go back that far, as whatever ends sooner is no change.
        """
        answers, scores = self._latest(query_id, report)
        # With the one before these, which shows that nothing of that time is missing.
        answers = answers.latest(max(_RECENT, len(answers.within(_RECENT_S)) + 1))
        if len(answers) < _RECENT or answers.ago_s[0] < _RECENT_S:
            return None
        busy_s = sum((answers.tier_s(tier) for tier in answers.tiers), answers.moved_s)
        return _observed(answers, np.minimum(answers.latency_s, busy_s), scores[-_RECENT_SCORES:])

    def _latest(self, query_id: str, report: DeploymentReport) -> tuple[LatestAnswers, FloatArray]:
        window = self._windows.get((query_id, report.plan_id), _Window())
        new = min(report.answered - window.judged, JUDGED_ANSWERS)
        return report.answers.latest(max(new, 0)), np.array(list(window.scores.values()))

    def scores(self, query_id: str, plan_id: str) -> FloatArray:
        """Return what the latest known outputs of a plan scored, shape (k,), maybe none."""
        window = self._windows.get((query_id, plan_id), _Window())
        return np.array(list(window.scores.values()))

    def data(self, query_id: str, plan_id: str) -> ReplanData | None:
        """Return the data that most of the latest known outputs are of; None: there was none."""
        latest = [*self._windows.get((query_id, plan_id), _Window()).scores][-_RECENT_SCORES:]
        sets = Counter((example.count, example.seed) for example in reversed(latest))
        for (count, seed), _ in sets.most_common(1):
            return ReplanData(examples=count, seed=seed)
        return None

    def forget(self, query_id: str, report: DeploymentReport, *, scores: bool = True) -> None:
        """Judge a query by the answers after its latest ones, and maybe by the scores so far."""
        known = {} if scores else self._windows.get((query_id, report.plan_id), _Window()).scores
        self._windows[query_id, report.plan_id] = _Window(report.answered, known)

    def keep(self, plans: Collection[tuple[str, str]]) -> None:
        """Drop the observations of all but these queries and plans of theirs."""
        self._windows = {key: window for key, window in self._windows.items() if key in plans}


def _observed(
    answers: LatestAnswers, latency_s: FloatArray, scores: FloatArray
) -> ObservedRequests | None:
    if not len(answers) and not len(scores):
        return None
    if not len(answers):  # a plan that only fails
        return ObservedRequests(latency_s=latency_s, tier_s={}, moved_s=0.0, scores=scores)
    return ObservedRequests(
        latency_s=latency_s,
        tier_s={tier: float(answers.tier_s(tier).mean()) for tier in answers.tiers},
        # What is no link's wait here is the network's own, in a cluster.
        moved_s=float(answers.moved_s.mean()),
        scores=scores,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """The answer to a client: its plan, and its score in [0, 1]; None without an example.

    `planned_on`: whether the example is one of the query's own data, by its content; None: the
    input is no example.
    """

    result: RequestResult
    plan_id: str
    score: float | None
    planned_on: bool | None = None


@dataclass(slots=True, kw_only=True)
class Requests:
    """Sends requests to deployments. Used within one event loop, which it never blocks."""

    parts: ServiceParts
    deployer: Deployer
    examples: ExampleSource
    clock: Clock = field(default_factory=SystemClock)  # that arrivals are on
    windows: RequestWindows = field(default_factory=RequestWindows)
    # Threads of their own: those of the event loop are for all requests.
    _metrics: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_METRICS, "metric"), init=False, repr=False
    )

    async def send(
        self, query_id: str, payload: Payload, chosen: ExampleReference | None, terms: RequestTerms
    ) -> AnsweredRequest:
        """Return the answer of the query's deployed plan, on the client's terms.

        The source operators receive the `payload`, or the input of the `chosen` example, whose
        expected output then scores the answer.

        Raises:
            NotFound: If there is no such query.
            Conflict: If the query has no deployment, and it is not known whether it will get one.
            Unavailable: If it is not serving now.
            InvalidInput: If the input or the example does not fit the pipeline.
            TooManyRequests: If it cannot be answered in time, and the terms do not take it late.
            OperatorFailed: If an operator or the metric raised, or making the example did.
        """
        until = terms.timeout_s + (self.clock.now() if terms.arrived is None else terms.arrived)
        plan_id = (await self.deployer.serving()).get(query_id)
        query = await asyncio.to_thread(self._answerable, query_id, serves=plan_id is not None)
        if plan_id is None:  # it is just being deployed, or was taken down
            reason = f"query {query_id} has no deployment at this moment"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S)
        if chosen is None:
            result = await self.deployer.request(query_id, payload, terms)
            return AnsweredRequest(result=result, plan_id=plan_id, score=None)
        example, known = await self._example(query, chosen, until)
        try:
            result = await self.deployer.request(query_id, example.input, terms)
        except OperatorFailed:
            self.windows.note(query_id, plan_id, chosen, 0.0)
            raise
        score = await self._score(query.pipeline, result.output, example.expected, until)
        self.windows.note(query_id, plan_id, chosen, score)
        return AnsweredRequest(result=result, plan_id=plan_id, score=score, planned_on=known)

    async def _example(
        self, query: QueryRequest, chosen: ExampleReference, until: float
    ) -> tuple[Example, bool]:
        """Return an example, and whether the query was planned on it."""
        self.parts.require_few(chosen.count, "example.count")
        name = query.pipeline
        source = DataSource(examples=chosen.count, seed=chosen.seed)
        theirs = await asyncio.to_thread(self.parts.example_set, source, name, inputs_only=False)
        example = await self.examples.example(theirs, chosen.index, self._left_s(until))
        data = query.data
        if (data.dataset, data.examples, data.seed) == (None, source.examples, source.seed):
            return example, True
        own = await asyncio.to_thread(self.parts.example_set, data, name, inputs_only=True)
        hashes = await self.examples.hashes(own, self._left_s(until))
        return example, await asyncio.to_thread(content_hash, example.input) in hashes

    async def _score(self, name: str, output: Payload, expected: Payload, until: float) -> float:
        pipeline = await asyncio.to_thread(self.parts.catalogue.pipeline, name)
        scored = asyncio.get_running_loop().run_in_executor(
            self._metrics, pipeline.score_of, output, expected
        )
        try:
            return await asyncio.wait_for(scored, self._left_s(until))
        except TimeoutError as error:
            reason = "the pipeline's metric took longer than the request had"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S) from error

    def _left_s(self, until: float) -> float:
        return max(until - self.clock.now(), 0.0)

    def _answerable(self, query_id: str, *, serves: bool) -> QueryRequest:
        """Return a query that is or may soon be served; Conflict if it gets no deployment."""
        record = self.parts.store.query(query_id)
        if record.phase is QueryPhase.SERVING:
            return record.request
        comes_back = record.phase in LIVE or (record.replans and record.phase in UNFINISHED)
        if not comes_back:
            raise Conflict("phase", "must be serving to answer requests", record.phase.value)
        # A query that was replanned is served by its old plan until the new one is up.
        if not serves:
            reason = f"query {query_id} is {record.phase.value}"
            raise Unavailable(
                f"{reason}: {record.message}" if record.message else reason,
                retry_after_s=_RETRY_AFTER_S,
            )
        return record.request
