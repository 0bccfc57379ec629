"""One inference call to a deployed query."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from api.phases import LIVE, UNFINISHED, Phase
from api.services.catalogue import Catalogue
from api.services.deployer import Deployer, serves
from api.services.examples import ExampleSource
from api.services.observing import KnownData, RequestWindows, Scored
from api.store.records import QueryRecord
from api.store.store import Conflict, Store
from deploy.dispatcher import RequestResult
from pipelines import checks
from pipelines.dataset import Example
from pipelines.errors import Unavailable
from pipelines.payload import Payload

_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleChoice:
    """One of the examples of a pipeline.

    Attributes:
        index: Which, from 0.
        count: How many are made.
        seed: Of the examples.
    """

    index: int
    count: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCall:
    """What a client sends.

    Attributes:
        input: What the source operators get; ignored with an example.
        example: Take the input from the pipeline's examples, and score the output; None: no.
        timeout_s: Longest wait, `> 0`.
    """

    input: Payload
    example: ExampleChoice | None
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a client gets.

    Attributes:
        result: Of the dispatcher.
        plan_id: Plan that answered.
        score: Of the output, in [0, 1]; None without an example.
    """

    result: RequestResult
    plan_id: str
    score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Sends calls to deployments. Used within one event loop, which it never blocks.

    Attributes:
        store: With the queries.
        catalogue: With the pipelines.
        examples: Of the pipelines.
        deployer: Runs the deployments.
        windows: Remember what requests gave.
    """

    store: Store
    catalogue: Catalogue
    examples: ExampleSource
    deployer: Deployer
    windows: RequestWindows = field(default_factory=RequestWindows)

    async def send(self, query_id: str, call: InferenceCall) -> Answer:
        """Give the answer of the query's deployed plan.

        Raises:
            NotFound: If there is no such query.
            Conflict: If the query has no deployment, and it is not known whether it will get one.
            Unavailable: If it is not serving now.
            InvalidInput: If the input or the example is none for the pipeline.
            OperatorFailed: If an operator or the metric raised.
        """
        record = await asyncio.to_thread(self.store.query, query_id)
        self._require_serving(record)
        name = str(record.spec["pipeline"])
        example = await self._example(name, call.example)
        input = call.input if example is None else example.input
        # It may have been taken down since the query was read.
        if not serves(self.deployer, query_id):
            reason = f"query {query_id} has no deployment at this moment"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S)
        plan_id = self.deployer.status(query_id).plan_id
        result = await self.deployer.request(query_id, input, timeout_s=call.timeout_s)
        scored = None
        if example is not None and call.example is not None:
            pipeline = await asyncio.to_thread(self.catalogue.pipeline, name)
            score = await asyncio.to_thread(pipeline.score_of, result.output, example.expected)
            data = KnownData(call.example.count, call.example.seed)
            scored = Scored(index=call.example.index, data=data, score=score)
        self.windows.note(query_id, plan_id, result, scored)
        return Answer(
            result=result, plan_id=plan_id, score=None if scored is None else scored.score
        )

    async def _example(self, pipeline: str, choice: ExampleChoice | None) -> Example | None:
        if choice is None:
            return None
        rule = f"must be in [0, {choice.count})"
        checks.require(0 <= choice.index < choice.count, "example.index", rule, choice.index)
        dataset = await asyncio.to_thread(
            self.examples.examples, pipeline, choice.count, choice.seed
        )
        rule = f"must be in [0, {len(dataset)}): there are no more examples"
        checks.require(choice.index < len(dataset), "example.index", rule, choice.index)
        return dataset.examples[choice.index]

    def _require_serving(self, record: QueryRecord) -> None:
        if record.phase is Phase.SERVING:
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
