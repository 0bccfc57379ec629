"""Sends the requests of one deployed plan to its instances, and counts what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf

from circinus.deploy.runtime.calls import Callee, CallGate, Calls, UnlimitedCalls
from circinus.deploy.runtime.learning import Learnt, ObservedWorkload, classes_of, seconds_of
from circinus.deploy.runtime.report import (
    JUDGED_ANSWERS,
    DeploymentReport,
    QueueFigures,
    ServedBill,
)
from circinus.deploy.runtime.segments import Segment, segments
from circinus.deploy.runtime.telemetry import ArrivalSample, ServiceSample, Telemetry, Traffic
from circinus.deploy.runtime.tier_queue import TierQueue
from circinus.deploy.runtime.walk import (
    PlanRunner,
    RequestResult,
    RequestTerms,
    emulated_links,
    walk_of,
)
from circinus.deploy.workers.errors import DeadlineExceeded, TooManyRequests
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, InvalidInput, OperatorFailed
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Plan
from circinus.scheduler.dispatch.policy import DispatchPolicy

_POLL_S = 0.01


@dataclass(slots=True, eq=False)
class Dispatcher:
    """Sends the requests of one deployed plan to its instances. Used within one event loop."""

    pipeline: Pipeline
    plan: Plan
    links: Infrastructure  # whose emulated links are waited for
    policy: DispatchPolicy
    clock: Clock
    queue_limit: int
    gate: CallGate = field(default_factory=UnlimitedCalls)  # of its calls to endpoints
    segments: tuple[Segment, ...] = field(init=False)
    queues: dict[str, TierQueue] = field(init=False)  # by slice
    telemetry: Telemetry = field(init=False)
    in_hand: int = field(default=0, init=False)  # requests not answered yet
    calls: Calls = field(init=False)
    deadline_s: float | None = field(default=None, init=False)  # see `DesiredDeployment`
    _runner: PlanRunner = field(init=False)

    def __post_init__(self) -> None:
        remote = [tier.name for tier in self.links.tiers if tier.remote]
        placement = self.plan.deployment.placement
        deployment = self.plan.deployment
        self.segments = segments(self.pipeline.graph, placement, remote, deployment.slices)
        endpoints = {each.name: each for each in self.links.endpoints}
        callees = {
            name: Callee.of(self.pipeline.by_name[name], self.plan.configuration, endpoints)
            for name, tier in placement.items()
            if tier in remote
        }
        self.calls = Calls(self.gate, self.clock)
        tiers, prior_s = deployment.tiers, self.plan.tier_service_s
        self.telemetry = Telemetry(self.plan.id, tuple(tiers), Traffic(self.clock.now()))
        self.queues = {
            name: TierQueue(
                *(name, self.policy, self.clock),
                limit=self.queue_limit,
                prior_s=prior_s.get(name, 0.0),
                trace=self.telemetry.trace,
            )
            for name in deployment.groups
        }
        self._runner = PlanRunner(
            links=emulated_links(self.links),
            segments=self.segments,
            sinks=tuple(self.pipeline.graph.sinks),
            queues=self.queues,
            callees=callees,
            calls=self.calls,
            clock=self.clock,
        )

    def emulate(self, infrastructure: Infrastructure) -> None:
        """Wait for the emulated links of an infrastructure from now on."""
        self._runner.links = emulated_links(infrastructure)

    def learnt(self) -> Learnt:
        """Return the latencies so far, for `recall`."""
        return {tier: queue.latencies.dump() for tier, queue in self.queues.items()}

    def recall(self, learnt: Learnt) -> None:
        """Go on from the latencies of an earlier dispatcher of the plan."""
        for tier in learnt.keys() & self.queues.keys():
            self.queues[tier].latencies.recall(learnt[tier])

    def report(self) -> DeploymentReport:
        """Return the report on all requests until now."""
        return self.telemetry.report(self.clock.now(), self._figures())

    def _figures(self) -> dict[str, QueueFigures]:
        """Return slice -> its queue at this moment, with what was used of its endpoints."""
        queues = {tier: queue.figures() for tier, queue in self.queues.items()}
        for segment in self.segments:
            for used in self.calls.used.get(segment.operators[0], {}).values():
                figures = queues[segment.slice]
                queues[segment.slice] = replace(figures, endpoints=figures.endpoints.plus(used))
        return queues

    def bill(self) -> ServedBill | None:
        """Return the bill of its calls; None: the plan calls nothing."""
        if not self._runner.callees:
            return None
        return self.calls.bill(self.plan.id, self.telemetry.answered, self.telemetry.errors)

    def workload(self) -> ObservedWorkload:
        """Return the sizes of the latest requests, and what they take on types of machines."""
        monitor = self.telemetry.monitor
        sizes, classes = classes_of(monitor.sizes())
        kinds: defaultdict[str, list[str]] = defaultdict(list)
        for segment in self.segments:
            kinds[segment.slice].append(segment.operators[0])
        seconds = {
            tier.name: seconds_of(
                self.queues[tier.name].latencies,
                kinds[tier.name],
                [each.name for each in tier.types],
                sizes,
            )
            for tier in self.links.tiers
            if tier.name in self.queues
        }
        answers = self.telemetry.answers(self.clock.now()).latest(JUDGED_ANSWERS)
        return ObservedWorkload(
            plan_id=self.plan.id,
            sizes=sizes,
            classes=classes,
            rate_per_s=monitor.rate_rps,
            seconds=seconds,
            elsewhere_s=answers.elsewhere_s(),
        )

    def ingest(self, arrivals: Iterable[ArrivalSample], services: Iterable[ServiceSample]) -> None:
        """Learn from requests that another dispatcher sent to the same instances.

        They arrived by this one's clock, and in order.
        """
        self.telemetry.ingest(arrivals)
        for tier, kind, size, name, seconds in services:
            if tier in self.queues:
                self.queues[tier].latencies.observe((kind, size), name, seconds)

    def _add_arrival(self, size: float, now: float) -> None:
        waiting = sum(queue.waiting for queue in self.queues.values())
        self.telemetry.add_arrival(ArrivalSample(now, size, waiting))

    def shed_infeasible(
        self, arrived: float, *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Raise TooManyRequests if a request would be turned away the moment that it is made.

        But not where `unless` holds, which is called only then: nothing is counted of it yet. It
        costs less than reading the request. Some are turned away later all the same.
        """
        if self.deadline_s is None:
            return
        first = self.segments[0]
        # Of a request that has a size nothing is known before it is read.
        sized = self.pipeline.request_size is not None
        due_s = inf if sized else self._runner.due_in_s(arrived + self.deadline_s, first)
        try:
            self.queues[first.slice].shed_infeasible(first.operators[0], due_s, unless=unless)
        except TooManyRequests:
            now = self.clock.now()
            self.telemetry.traffic.arrived(now)
            if not sized:  # else how large it is was never read
                self._add_arrival(1.0, now)
            self.telemetry.add_failure(now, refused=True)
            raise

    async def close(self, *, drain_s: float) -> None:
        """Wait up to `drain_s` for the requests in hand, then turn away those that wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self.in_hand > 0:
                    await asyncio.sleep(_POLL_S)
                await self.calls.idle()  # of requests that went away: they are paid, too
        for queue in self.queues.values():
            await queue.close()

    async def request(self, input: Payload, terms: RequestTerms) -> RequestResult:
        """Return the output for an input; OperatorFailed if an operator or `request_size` raised.

        InvalidInput if the input is no payload or one of them refuses it,
        TooManyRequests if too many wait, or it cannot be in time and others can, DeadlineExceeded
        after `terms.timeout_s`, InstanceLost as `PlanRunner.run`.
        """
        began = self.clock.now()
        walk = walk_of(input, terms, self.links.origin or "", began, self.deadline_s)
        self.in_hand += 1
        self.telemetry.traffic.arrived(began)
        try:
            walk.size = self.pipeline.size_of(input)
            self._add_arrival(walk.size, began)
            async with asyncio.timeout(max(walk.ends - began, 0.0)):
                result = await self._runner.run(walk)
        except (TimeoutError, CircinusError) as error:
            refused = isinstance(error, TooManyRequests)
            self.telemetry.add_failure(self.clock.now(), refused=refused)
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(terms.timeout_s, walk.doing) from error
            if isinstance(error, OperatorFailed) and error.violations:
                raise InvalidInput(error.violations) from error
            raise
        finally:
            self.in_hand -= 1
        self._add_answer(result, began if terms.arrived is None else terms.arrived)
        return result

    def _add_answer(self, result: RequestResult, arrived: float) -> None:
        now = self.clock.now()
        sojourn_s, moved_s = now - arrived, result.transfer_s + result.overhead_s
        in_time = self.deadline_s is None or sojourn_s <= self.deadline_s
        tier_s = (result.tier_s[tier] for tier in self.telemetry.tiers)
        row = (now, result.latency_s, sojourn_s, moved_s, result.usd, *tier_s)
        self.telemetry.add_answer(row, in_time=in_time)
