"""Sends requests to a pool of unlike instances of one model, each within its deadline.

What is lost with an instance is tried once more if its deadline allows, and is answered with
an error otherwise. Sending a request twice to be sure (hedging) is left out on purpose: in a pool
that is used to the full it takes the time that others need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from circinus.deploy.runtime.tier_queue import TierQueue
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import DeadlineExceeded, InstanceLost
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.scheduler.dispatch.policy import DispatchPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAnswer:
    """Seconds from having the request to its answer, and 1 if an instance was lost with it."""

    latency_s: float
    retries: int


@dataclass(slots=True, eq=False)
class PoolDispatcher:
    """Requests to a pool, whose instances are in its `queue`. Used within one event loop."""

    policy: DispatchPolicy
    clock: Clock
    _: KW_ONLY
    qos_s: float  # within which a request should be answered, `> 0`
    timeout_s: float  # after which one is given up, `>= qos_s`: late answers are still answers
    queue_limit: int = 128  # most requests that wait, `>= 1`
    prior_s: float = 0.1  # seconds of a request before anything was learnt, `> 0`
    queue: TierQueue = field(init=False)

    def __post_init__(self) -> None:
        checks.positive("qos_s", self.qos_s)
        checks.positive("prior_s", self.prior_s)
        late = self.timeout_s >= self.qos_s
        checks.require(late, "timeout_s", f"must be >= {self.qos_s}", self.timeout_s)
        checks.at_least("queue_limit", self.queue_limit, 1)
        limit, prior_s = self.queue_limit, self.prior_s
        self.queue = TierQueue("pool", self.policy, self.clock, limit=limit, prior_s=prior_s)

    async def request(
        self, operator: str, inputs: Mapping[str, bytes], *, size: float = 1.0
    ) -> PoolAnswer:
        """Give the answer to a request, or DeadlineExceeded after `timeout_s`.

        Unavailable if too many wait, or it was given up so that others are in time; InstanceLost
        if its instance was lost after its deadline, or the next one too.
        """
        began, retries = self.clock.now(), 0

        async def work(client: WorkerClient) -> RunReply:
            left = began + self.timeout_s - self.clock.now()
            if left <= 0:
                raise DeadlineExceeded(self.timeout_s, "it waited for an instance")
            return await client.run((operator,), inputs, (operator,), timeout_s=left)

        while True:
            left_s = max(began + self.qos_s - self.clock.now(), 1e-6)
            try:
                await self.queue.serve(operator, work, time_left_s=left_s, size=size)
            except InstanceLost:
                if retries or self.clock.now() - began >= self.qos_s:
                    raise
                retries = 1
            else:
                latency_s = self.clock.now() - began
                return PoolAnswer(latency_s=latency_s, retries=retries)
