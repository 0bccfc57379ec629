"""Runs a request through the segments of a plan.

Every segment starts when its inputs have arrived, so branches on unlike tiers run at
the same time. Latency is measured from here: from having the request to having its output,
with the waits that stand for thin links. Its parts are those of the path that the
request waited for: of a segment's inputs the one that arrived last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import inf
from sys import float_info

from circinus.deploy.runtime.calls import AttemptedCall, Callee, CallResult, Calls
from circinus.deploy.runtime.segments import Segment
from circinus.deploy.runtime.tier_queue import LEAST_LEFT_S, TierQueue
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import DeadlineExceeded, InstanceLost
from circinus.deploy.workers.execution import INPUT
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload, decode, encoded, encoded_together

_STALE_S = 1.0  # what was learnt so long ago turns no request away: only one can test it
_NEWEST = 0.1  # weight of the newest request in what is still to do after a segment


@dataclass(frozen=True, kw_only=True)
class RequestResult:
    """An answer and its seconds.

    `latency_s = path_operator_s + waiting_s + transfer_s + overhead_s`, all of the path that
    the request waited for; with parallel branches `operator_s` can add up to more.
    """

    encoded: bytes  # the pipeline's output, as workers send it
    latency_s: float  # from having the request to having the output
    operator_s: Mapping[str, float]  # of each, with the waits for share and emulated speed
    tier_s: Mapping[str, float]  # tier -> seconds that its instances were busy with operators
    path_operator_s: float  # operators on the path
    waiting_s: float  # for an instance's turn
    transfer_s: float  # emulated links
    overhead_s: float  # the rest: encoding, gRPC, event loop
    retries: int  # 1 if an instance was lost with the request, else 0
    # operator -> what it used of endpoints, all attempts; those that called none are left out
    used: Mapping[str, Usage] = field(default_factory=dict)

    @cached_property
    def output(self) -> Payload:
        """The pipeline's output; reading tens of megabytes of text takes seconds."""
        return decode(self.encoded)

    @property
    def usd(self) -> float:
        """US dollars that its calls to endpoints cost."""
        return sum(used.usd for used in self.used.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTerms:
    """How long a client waits, and whether it takes an answer that comes after the deadline."""

    timeout_s: float  # until the client gives up, `> 0`
    serve_late: bool = False  # else it may be turned away once it cannot be in time any more
    arrived: float | None = None  # on the dispatcher's clock; None: at this moment

    def __post_init__(self) -> None:
        checks.positive("timeout_s", self.timeout_s)


@dataclass(frozen=True, slots=True)
class _Data:
    """An encoded payload at the tier where it was made, and where the seconds of its path went."""

    data: bytes
    size: int
    tier: str
    at: float
    operators_s: float = 0.0
    waiting_s: float = 0.0
    transfer_s: float = 0.0


@dataclass(slots=True, eq=False)
class RequestWalk:
    """A request on its way."""

    began: float
    ends: float  # when the client gives up
    due: float  # when it should be answered; infinite: whenever
    timeout_s: float  # of the client
    outputs: dict[str, _Data]  # by operator, and the input
    size: float = 1.0  # of its input
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # by operator
    operator_s: dict[str, float] = field(default_factory=dict)
    used: dict[str, Usage] = field(default_factory=dict)  # of endpoints, by operator
    answered: dict[str, float] = field(default_factory=dict)  # when, by a segment's first operator
    retries: int = 0
    doing: str = "it started"


@dataclass(frozen=True, slots=True)
class _Rest:
    """Seconds from a segment's answer to the request's, without waits: learnt, and when last."""

    seconds: float
    at: float


@dataclass(slots=True, eq=False)
class PlanRunner:
    """Runs requests on the instances of one deployed plan. Used within one event loop."""

    links: Infrastructure  # whose emulated links are waited for
    segments: tuple[Segment, ...]
    sinks: tuple[str, ...]  # operators whose outputs are the answer
    queues: Mapping[str, TierQueue]  # by slice
    callees: Mapping[str, Callee]  # operators on remote tiers
    calls: Calls
    clock: Clock
    # what is still to do once a segment is done, by its first operator
    _rest: dict[str, _Rest] = field(default_factory=dict, init=False)

    async def run(self, walk: RequestWalk) -> RequestResult:
        """Run a request until its output is there.

        InstanceLost if it lost two instances, or one after its deadline. Sending a request twice
        to be sure is left out on purpose: where machines are used to the full it takes the time
        that others need.
        """
        if len(self.segments) == 1:  # nothing runs beside it
            await self._run_segment(walk, self.segments[0])
        else:
            await self._run_segments(walk)
        return self._result(walk)

    async def _run_segments(self, walk: RequestWalk) -> None:
        loop = asyncio.get_running_loop()
        for segment in self.segments:
            task = loop.create_task(self._run_segment(walk, segment))
            walk.tasks.update(dict.fromkeys(segment.operators, task))
        tasks = set(walk.tasks.values())
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_segment(self, walk: RequestWalk, segment: Segment) -> None:
        for name in segment.needs:
            await walk.tasks[name]
        last, transfer_s = await self._inputs_there(walk, segment)
        began = self.clock.now()
        try:
            result = await self._serve(walk, segment)
        except InstanceLost:
            # Once, or a request that kills its instance would kill all of them; and only while
            # the answer can be in time: beyond that it takes the time that others need.
            walk.retries += 1
            if walk.retries > 1 or self.clock.now() >= walk.due:
                raise
            result = await self._serve(walk, segment)
        walk.answered[segment.operators[0]] = self.clock.now()
        operators_s, waited_s = result.seconds, result.waited_s
        for name, data in result.reply.outputs.items():
            walk.outputs[name] = _Data(
                data,
                result.reply.sizes[name],
                segment.tier,
                # Encoding and gRPC are part of a hand-over: outputs are taken to be made so soon
                # that these count against the time of the emulated link that comes next.
                began + waited_s + operators_s,
                last.operators_s + operators_s,
                last.waiting_s + waited_s,
                last.transfer_s + transfer_s,
            )

    async def _inputs_there(self, walk: RequestWalk, segment: Segment) -> tuple[_Data, float]:
        """Wait until all inputs are at the tier; return the last one and its transfer seconds."""
        arrivals = []
        for name in segment.inputs:
            data = walk.outputs[name]
            route = self.links.route(data.tier, segment.tier)
            arrivals.append((data, route.delay_s + route.s_per_byte * data.size))
        last, transfer_s = max(arrivals, key=lambda arrival: arrival[0].at + arrival[1])
        wait = last.at + transfer_s - self.clock.now()
        if wait > 0:
            walk.doing = f"data travelled to tier {segment.tier}"
            await asyncio.sleep(wait)
        return last, transfer_s

    async def _serve(self, walk: RequestWalk, segment: Segment) -> CallResult:
        names = ", ".join(segment.operators)
        inputs = {name: walk.outputs[name].data for name in segment.inputs}
        walk.doing = f"{names} waited for an instance of tier {segment.tier}"
        callee = self.callees.get(segment.operators[0])
        if callee is not None:
            return await self._call(walk, segment, inputs, callee)

        def work(client: WorkerClient) -> Awaitable[RunReply]:
            walk.doing = f"{names} ran on tier {segment.tier}"
            left = self._time_left_s(walk)
            due_in_s = None if walk.due == inf else self.due_in_s(walk.due, segment)
            return client.run(
                segment.operators, inputs, segment.wants, timeout_s=left, due_in_s=due_in_s
            )

        try:
            reply, waited_s = await self.queues[segment.slice].serve(
                segment.operators[0],
                work,
                time_left_s=self.due_in_s(walk.due, segment),
                size=walk.size,
            )
        except DeadlineExceeded as error:  # reported by the worker, just before we would notice
            raise DeadlineExceeded(walk.timeout_s, walk.doing) from error
        walk.operator_s.update(reply.seconds)
        return CallResult(reply, sum(reply.seconds.values()), waited_s)

    async def _call(
        self, walk: RequestWalk, segment: Segment, inputs: Mapping[str, bytes], callee: Callee
    ) -> CallResult:
        def send(client: WorkerClient, number: int, timeout_s: float) -> Awaitable[RunReply]:
            return client.run(
                segment.operators, inputs, segment.wants, timeout_s=timeout_s, attempt=number
            )

        call = AttemptedCall(
            callee=callee,
            send=send,
            size=walk.size,
            due_in_s=lambda: self.due_in_s(walk.due, segment),
            ends_in_s=lambda: walk.ends - self.clock.now(),
            doing=lambda what: setattr(walk, "doing", what),
        )
        result = await self.calls.make(self.queues[segment.slice], call)
        walk.operator_s[callee.operator] = result.seconds
        for operator, by_endpoint in result.used.items():
            walk.used[operator] = reduce(Usage.plus, by_endpoint.values(), NOTHING_USED)
        return result

    def _time_left_s(self, walk: RequestWalk) -> float:
        left = walk.ends - self.clock.now()
        if left <= 0:
            raise DeadlineExceeded(walk.timeout_s, walk.doing)
        return left

    def due_in_s(self, due: float, segment: Segment) -> float:
        """Return the seconds within which a segment must be done for the answer to be in time."""
        rest = self._rest.get(segment.operators[0])
        now = self.clock.now()
        rest_s = 0.0 if rest is None or now - rest.at > _STALE_S else rest.seconds
        return max(due - now - rest_s, LEAST_LEFT_S)

    def _result(self, walk: RequestWalk) -> RequestResult:
        sinks = {sink: walk.outputs[sink] for sink in self.sinks}
        last = max(sinks.values(), key=lambda output: output.at)
        encoded_output = last.data
        if len(sinks) > 1:
            encoded_output = encoded_together({name: each.data for name, each in sinks.items()})
        latency_s = self.clock.now() - walk.began
        self._learn_rest(walk, last)
        tier_s = dict.fromkeys((segment.tier for segment in self.segments), 0.0)
        for segment in self.segments:
            tier_s[segment.tier] += sum(walk.operator_s[name] for name in segment.operators)
        return RequestResult(
            encoded=encoded_output,
            latency_s=latency_s,
            operator_s=walk.operator_s,
            tier_s=tier_s,
            path_operator_s=last.operators_s,
            waiting_s=last.waiting_s,
            transfer_s=last.transfer_s,
            overhead_s=latency_s - (last.operators_s + last.waiting_s + last.transfer_s),
            retries=walk.retries,
            used=walk.used,
        )

    def _learn_rest(self, walk: RequestWalk, last: _Data) -> None:
        now = self.clock.now()
        for segment in self.segments:
            name = segment.operators[0]
            waited_s = last.waiting_s - walk.outputs[segment.wants[-1]].waiting_s
            rest_s = max(now - walk.answered[name] - waited_s, 0.0)
            before = self._rest.get(name)
            if before is not None and now - before.at <= _STALE_S:
                rest_s = before.seconds + _NEWEST * (rest_s - before.seconds)
            self._rest[name] = _Rest(rest_s, now)


def walk_of(
    input: Payload, terms: RequestTerms, origin: str, now: float, deadline_s: float | None
) -> RequestWalk:
    """Return a request that starts now; it is late `deadline_s` after its arrival, None: never.

    InvalidInput if the input is no payload.
    """
    arrived = now if terms.arrived is None else terms.arrived
    bound_s = inf if deadline_s is None or terms.serve_late else deadline_s
    outputs = {INPUT: _Data(*encoded(input), origin, now)}
    return RequestWalk(now, arrived + terms.timeout_s, arrived + bound_s, terms.timeout_s, outputs)


def emulated_links(infrastructure: Infrastructure) -> Infrastructure:
    """Return the infrastructure whose links cost what has to be waited for, so the same routes.

    A link that is not emulated costs nothing here, as the network itself takes its time.
    """
    links = tuple(
        link if link.emulated else replace(link, delay_s=0.0, bandwidth_bytes_per_s=float_info.max)
        for link in infrastructure.links
    )
    return replace(infrastructure, links=links)
