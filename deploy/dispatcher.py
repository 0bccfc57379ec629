"""Walks a request through the segments of a deployed plan.

Every segment starts when its inputs have arrived, so branches on unlike tiers run at
the same time. Latency is seen from here: from having the request to having its output,
with the waits that stand for thin links. Its parts are those of the path that the
request waited for: of a segment's inputs the one that arrived last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace

from deploy.emulation import emulated_links
from deploy.errors import DeadlineExceeded, InstanceLost
from deploy.latency_memory import Learnt
from deploy.monitor import LatencyWindow
from deploy.places import InstanceType
from deploy.queue_figures import QueueFigures
from deploy.segments import Segment, segments
from deploy.tier_queue import Served, TierQueue
from deploy.workers.client import Reply, WorkerClient
from deploy.workers.execution import INPUT
from pipelines import checks
from pipelines.clock import Clock
from pipelines.errors import CircinusError
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure
from pipelines.payload import Payload, decode, encode, payload_bytes
from pipelines.pipeline import output_of
from pipelines.plan import Plan
from scheduler.dispatch.policy import DispatchPolicy

_POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """How requests are handled.

    Attributes:
        queue_limit: Most requests that wait for one tier, `>= 1`. 64: beyond, with operators of
            tens of milliseconds, waiting takes seconds.
        window: Number of latencies to keep for figures, `>= 1`.
    """

    queue_limit: int = 64
    window: int = 1000

    def __post_init__(self) -> None:
        checks.require(self.queue_limit >= 1, "queue_limit", "must be >= 1", self.queue_limit)
        checks.require(self.window >= 1, "window", "must be >= 1", self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the seconds of a path went.

    Attributes:
        operators_s: Operators, with the waits for share and emulated speed.
        waiting_s: For an instance's turn.
        transfer_s: Waits that stand for links.
    """

    operators_s: float = 0.0
    waiting_s: float = 0.0
    transfer_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """An answer and how long it took.

    `latency_s = path_operator_s + waiting_s + transfer_s + overhead_s`, all of the path that
    the request waited for; with parallel branches `operator_s` can add up to more.

    Attributes:
        output: The pipeline's output.
        latency_s: From having the request to having the output.
        operator_s: Of every operator.
        tier_s: Tier -> seconds that its instances were busy with operators.
        path_operator_s: Operators on the path.
        waiting_s: For an instance's turn.
        transfer_s: Emulated links.
        overhead_s: The rest: encoding, gRPC, event loop.
        retries: Number of times an instance was lost with the request.
    """

    output: Payload
    latency_s: float
    operator_s: Mapping[str, float]
    tier_s: Mapping[str, float]
    path_operator_s: float
    waiting_s: float
    transfer_s: float
    overhead_s: float
    retries: int


@dataclass(frozen=True, slots=True)
class _Data:
    """An encoded payload at the tier where it was made."""

    data: bytes
    size: int
    tier: str
    at: float
    parts: Parts


@dataclass(slots=True, eq=False)
class _Walk:
    """A request on its way."""

    began: float
    timeout_s: float
    made: dict[str, _Data]
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # by operator
    operator_s: dict[str, float] = field(default_factory=dict)
    retries: int = 0
    doing: str = "it started"


class Dispatcher:
    """Sends the requests of one deployed plan to its instances. Used within one event loop.

    Attributes:
        latencies: What its requests took.
        in_hand: Number of requests not answered yet.
    """

    def __init__(
        self,
        graph: PipelineGraph,
        plan: Plan,
        infrastructure: Infrastructure,
        policy: DispatchPolicy,
        clock: Clock,
        settings: DispatchSettings,
    ) -> None:
        self.segments = segments(graph, plan.deployment.placement)
        self.latencies = LatencyWindow(settings.window)
        self.in_hand = 0
        self._graph = graph
        self._links = emulated_links(infrastructure)
        self._clock = clock
        self._queues = {
            tier: TierQueue(
                tier,
                policy,
                clock,
                limit=settings.queue_limit,
                prior_s=plan.tier_service_s.get(tier, 0.0),
            )
            for tier in plan.deployment.tiers
        }

    def imitate(self, infrastructure: Infrastructure) -> None:
        """Let the waits that stand for links be those of an infrastructure from now on."""
        self._links = emulated_links(infrastructure)

    def add(self, tier: str, client: WorkerClient, replica: int = 0) -> None:
        """Take an instance into service.

        Args:
            tier: That it stands for.
            client: Calls it.
            replica: Its number there. A replica keeps what was learnt of it when it is started
                again at another address.
        """
        self._queues[tier].add(client, InstanceType(name=f"replica {replica}"))

    def remove(self, tier: str, address: str) -> None:
        """Take an instance out of service."""
        self._queues[tier].remove(address)

    def figures(self) -> dict[str, QueueFigures]:
        """Give tier -> its queue at this moment."""
        return {tier: queue.figures() for tier, queue in self._queues.items()}

    def learnt(self) -> Learnt:
        """Give what was learnt of latencies, for `recall`."""
        return {tier: queue.learnt() for tier, queue in self._queues.items()}

    def recall(self, learnt: Learnt) -> None:
        """Go on from what an earlier dispatcher of the plan learnt."""
        for tier, known in learnt.items():
            if tier in self._queues:
                self._queues[tier].recall(known)

    async def close(self, *, drain_s: float) -> None:
        """Let the requests in hand finish for `drain_s`, then turn away those that wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self.in_hand > 0:
                    await asyncio.sleep(_POLL_S)
        for queue in self._queues.values():
            await queue.close()

    async def request(self, input: Payload, *, timeout_s: float) -> RequestResult:
        """Give the output for an input.

        Raises:
            InvalidInput: If the input is no payload, or `timeout_s` not `> 0`.
            OperatorFailed: If an operator raised.
            DeadlineExceeded: If it took longer than `timeout_s`.
            InstanceLost: If instances were lost twice with it.
            TooManyRequests: If too many requests wait.
        """
        began = self._clock.now()
        checks.positive("timeout_s", timeout_s)
        origin = self._links.origin or ""
        given = _Data(encode(input), payload_bytes(input), origin, began, Parts())
        walk = _Walk(began, timeout_s, {INPUT: given})
        self.in_hand += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._through(walk)
        except TimeoutError as error:
            self.latencies.failed()
            raise DeadlineExceeded(timeout_s, walk.doing) from error
        except CircinusError:
            self.latencies.failed()
            raise
        finally:
            self.in_hand -= 1
        result = self._result(walk)
        self.latencies.answered(result.latency_s)
        return result

    async def _through(self, walk: _Walk) -> None:
        loop = asyncio.get_running_loop()
        for segment in self.segments:
            task = loop.create_task(self._segment(walk, segment))
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

    async def _segment(self, walk: _Walk, segment: Segment) -> None:
        for name in segment.needs:
            await walk.tasks[name]
        needs = (*segment.needs, *((INPUT,) if segment.takes_input else ()))
        parts = await self._arrival(walk, segment.tier, needs)
        asked = self._clock.now()
        served = await self._served(walk, segment, {n: walk.made[n].data for n in needs})
        reply = served.reply
        walk.operator_s.update(reply.seconds)
        # Encoding and gRPC are part of a hand-over: what they took counts against the time of
        # the emulated link that comes next. So outputs are taken to be made as soon as that.
        made_at = asked + served.waited_s + sum(reply.seconds.values())
        spent = replace(
            parts,
            operators_s=parts.operators_s + sum(reply.seconds.values()),
            waiting_s=parts.waiting_s + served.waited_s,
        )
        for name, data in reply.outputs.items():
            walk.made[name] = _Data(data, reply.sizes[name], segment.tier, made_at, spent)

    async def _arrival(self, walk: _Walk, tier: str, needs: tuple[str, ...]) -> Parts:
        """Wait until all needs are at the tier; give the parts of the last one's path."""
        arrivals = []
        for name in needs:
            need = walk.made[name]
            route = self._links.route(need.tier, tier)
            arrivals.append((need.at, route.delay_s + route.s_per_byte * need.size, need.parts))
        at, transfer_s, parts = max(arrivals, key=lambda arrival: arrival[0] + arrival[1])
        wait = at + transfer_s - self._clock.now()
        if wait > 0:
            walk.doing = f"data travelled to tier {tier}"
            await asyncio.sleep(wait)
        return replace(parts, transfer_s=parts.transfer_s + transfer_s)

    async def _served(self, walk: _Walk, segment: Segment, inputs: Mapping[str, bytes]) -> Served:
        try:
            return await self._tried(walk, segment, inputs)
        except InstanceLost:
            # Once: a request that kills its instance must not kill all of them.
            walk.retries += 1
            return await self._tried(walk, segment, inputs)

    async def _tried(self, walk: _Walk, segment: Segment, inputs: Mapping[str, bytes]) -> Served:
        names = ", ".join(segment.operators)
        walk.doing = f"{names} waited for an instance of tier {segment.tier}"

        def work(client: WorkerClient) -> Awaitable[Reply]:
            walk.doing = f"{names} ran on tier {segment.tier}"
            left = self._time_left_s(walk)
            return client.run(segment.operators, inputs, segment.wants, timeout_s=left)

        try:
            return await self._queues[segment.tier].serve(
                segment.operators[0], work, time_left_s=self._time_left_s(walk)
            )
        except DeadlineExceeded as error:  # told by the worker, just before we would notice
            raise DeadlineExceeded(walk.timeout_s, walk.doing) from error

    def _time_left_s(self, walk: _Walk) -> float:
        left = walk.began + walk.timeout_s - self._clock.now()
        if left <= 0:
            raise DeadlineExceeded(walk.timeout_s, walk.doing)
        return left

    def _result(self, walk: _Walk) -> RequestResult:
        last = max((walk.made[sink] for sink in self._graph.sinks), key=lambda made: made.at)
        outputs = {sink: decode(walk.made[sink].data) for sink in self._graph.sinks}
        output = output_of(self._graph, outputs)
        latency_s = self._clock.now() - walk.began
        parts = last.parts
        known = parts.operators_s + parts.waiting_s + parts.transfer_s
        return RequestResult(
            output=output,
            latency_s=latency_s,
            operator_s=walk.operator_s,
            tier_s=self._tier_s(walk.operator_s),
            path_operator_s=parts.operators_s,
            waiting_s=parts.waiting_s,
            transfer_s=parts.transfer_s,
            overhead_s=latency_s - known,
            retries=walk.retries,
        )

    def _tier_s(self, operator_s: Mapping[str, float]) -> dict[str, float]:
        busy = dict.fromkeys(self._queues, 0.0)
        for segment in self.segments:
            busy[segment.tier] += sum(operator_s[name] for name in segment.operators)
        return busy
