"""Sends requests to a pool of unlike instances of one model, each within its deadline.

What is lost with an instance is tried once more if its deadline allows, and is answered with
an error otherwise. Sending a request twice to be sure (hedging) is left out on purpose: in a pool
that is used to the full it takes the time that others need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.errors import DeadlineExceeded, InstanceLost
from deploy.places import InstanceType
from deploy.tier_queue import TierQueue
from deploy.workers.client import Reply, WorkerClient
from pipelines import checks
from pipelines.clock import Clock
from scheduler.dispatch.policy import DispatchPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """How a pool serves.

    Attributes:
        qos_s: A request should be answered within, `> 0`.
        timeout_s: A request is given up after, `>= qos_s`: late answers are still answers.
        queue_limit: Most requests that wait, `>= 1`.
        prior_s: Seconds of a request before anything was learnt, `> 0`.
    """

    qos_s: float
    timeout_s: float
    queue_limit: int = 128
    prior_s: float = 0.1

    def __post_init__(self) -> None:
        checks.positive("qos_s", self.qos_s)
        checks.positive("prior_s", self.prior_s)
        late = self.timeout_s >= self.qos_s
        checks.require(late, "timeout_s", f"must be >= {self.qos_s}", self.timeout_s)
        checks.require(self.queue_limit >= 1, "queue_limit", "must be >= 1", self.queue_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, and when.

    Attributes:
        reply: Of the instance.
        latency_s: From having the request to having the answer.
        waited_s: Of it, for an instance's turn.
        retries: 1 if an instance was lost with it.
    """

    reply: Reply
    latency_s: float
    waited_s: float
    retries: int


class PoolDispatcher:
    """Requests to a pool. Used within one event loop.

    Attributes:
        queue: Of the pool; its figures.
    """

    def __init__(self, policy: DispatchPolicy, clock: Clock, settings: PoolSettings) -> None:
        self.queue = TierQueue(
            "pool", policy, clock, limit=settings.queue_limit, prior_s=settings.prior_s
        )
        self._clock = clock
        self._settings = settings

    async def request(
        self, operator: str, inputs: Mapping[str, bytes], *, size: float = 1.0
    ) -> Answer:
        """Give the answer to a request.

        Raises:
            Unavailable: If too many wait, or it was given up so that others are in time.
            InstanceLost: If its instance was lost after its deadline, or the next one too.
            DeadlineExceeded: If it took longer than `timeout_s`.
        """
        began = self._clock.now()
        try:
            return await self._tried(operator, inputs, size, began, retries=0)
        except InstanceLost:
            if self._clock.now() - began >= self._settings.qos_s:
                raise
            return await self._tried(operator, inputs, size, began, retries=1)

    async def _tried(
        self,
        operator: str,
        inputs: Mapping[str, bytes],
        size: float,
        began: float,
        *,
        retries: int,
    ) -> Answer:
        async def work(client: WorkerClient) -> Reply:
            left = began + self._settings.timeout_s - self._clock.now()
            if left <= 0:
                raise DeadlineExceeded(self._settings.timeout_s, "it waited for an instance")
            return await client.run((operator,), inputs, (operator,), timeout_s=left)

        left_s = max(began + self._settings.qos_s - self._clock.now(), 1e-6)
        served = await self.queue.serve(operator, work, time_left_s=left_s, size=size)
        return Answer(
            reply=served.reply,
            latency_s=self._clock.now() - began,
            waited_s=served.waited_s,
            retries=retries,
        )

    def add(self, client: WorkerClient, type: InstanceType) -> None:
        """Take an instance into service."""
        self.queue.add(client, type)

    def remove(self, address: str) -> None:
        """Take an instance out of service."""
        self.queue.remove(address)
