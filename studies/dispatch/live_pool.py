"""Real worker processes that emulate unlike instances, and the product's dispatcher for them.

The dispatcher is that of a deployed plan with one operator, and knows of the instances only
which are alike. One rule: a call as a whole takes the requested seconds, so workers sleep so many
seconds less what a call takes besides, the median of direct calls before everything else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path

import numpy as np

from circinus.deploy.local.launcher import LocalInstance, LocalLauncher
from circinus.deploy.runtime.dispatcher import Dispatcher
from circinus.deploy.runtime.heap import freeze_heap
from circinus.deploy.runtime.instances import InstanceKey, InstanceSpec
from circinus.deploy.runtime.places import InstanceType
from circinus.deploy.runtime.walk import RequestTerms
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import encode
from circinus.pipelines.model.plan import Deployment, Plan
from circinus.pipelines.model.slo import Estimate
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.dispatch.policy import FloatArray
from circinus.scheduler.simulation.draws import LoadDraws
from circinus.scheduler.simulation.engine import Scenario
from circinus.studies.dispatch.emulated_model import MOST_KINDS, emulated, request_payload

PhaseObserver = Callable[[str, dict[str, object]], None]
"""Receives a phase and its figures when it is over."""

DIRECT_S = 0.005  # short calls, to see what a call takes besides
_TIER = "pool"
_LATE_FACTOR = 20.0  # of the QoS: then a request is abandoned
_REFERENCE = "circinus.studies.dispatch.emulated_model:emulated"
_CLOCK = SystemClock()
_CALLS = 200


@dataclass(slots=True)
class LoadOutcome:
    """What became of the requests of a scenario."""

    scenario: Scenario
    sent_s: list[float] = field(default_factory=list)  # when each was
    latency_s: FloatArray = field(init=False)  # from its arrival; NaN where there was no answer
    errors: Counter[str] = field(default_factory=Counter)  # kind of error -> how many
    retries: int = 0  # how many were tried again

    def __post_init__(self) -> None:
        self.latency_s = np.full(len(self.scenario.arrived_s), np.nan)

    @property
    def in_time(self) -> np.ndarray:  # (N,)
        """Whether each was answered in time."""
        return np.asarray(self.latency_s <= self.scenario.qos_s)

    def figures(self) -> dict[str, object]:
        """Return what matters."""
        return {
            "rate_rps": rate_of(self.scenario.arrived_s),
            "requests": len(self.latency_s),
            "answered": int(np.isfinite(self.latency_s).sum()),
            "in_time": round(float(self.in_time.mean()), 5),
            "p50_ms": quantile_ms(self.latency_s, 0.5),
            "p99_ms": quantile_ms(self.latency_s, 0.99),
            "errors": dict(self.errors),
            "retries": self.retries,
        }

    def sender_lag_ms(self) -> list[float]:
        """Return how late requests were sent: median and 99th percentile."""
        lag_s = np.array(self.sent_s) - self.scenario.arrived_s
        return [quantile_ms(lag_s, level) for level in (0.5, 0.99)]


class LivePool:
    """Worker processes, and a dispatcher with a policy."""

    def __init__(self, kinds: Sequence[int], qos_s: float, logs: Path) -> None:
        self.kinds = kinds  # the type of each instance, by number
        self.qos_s = qos_s
        self.call_s = 0.0
        self.instances: list[LocalInstance] = []
        self.clients: dict[str, WorkerClient] = {}  # by address, of those that live
        self.dispatcher: Dispatcher | None = None
        self._short = encode(request_payload(1.0, [DIRECT_S] * MOST_KINDS))
        self._launcher = LocalLauncher(logs=logs, cgroups="whole machines", allow_import=True)

    async def start(self, stack: AsyncExitStack) -> None:
        """Start a process per instance, one after the other; they end with the stack."""
        stack.push_async_callback(self._retire)
        for number, kind in enumerate(self.kinds):
            spec = InstanceSpec(
                key=InstanceKey("live", "pool", _TIER, number),
                pipeline_reference=_REFERENCE,
                operators=emulated.graph.operators,
                configuration=Configuration((("serve", "kind", kind),)),
                tier=Tier(name=_TIER),
                share=1.0,
            )
            instance = await self._launcher.start(spec)
            stack.push_async_callback(instance.stop)
            client = WorkerClient(instance.address)
            stack.push_async_callback(client.close)
            stack.callback(asyncio.create_task(self._watch(instance)).cancel)
            self.instances.append(instance)
            self.clients[instance.address] = client
        freeze_heap()
        self.call_s = await self.direct_s() - DIRECT_S

    async def serve_with(self, policy: str, *, limit: int, prior_s: float) -> Dispatcher:
        """Return a dispatcher that knows nothing yet, in place of the one before."""
        await self._retire()
        made = Dispatcher(
            emulated, _plan(prior_s), _INFRASTRUCTURE, dispatch_policy(policy), _CLOCK, limit
        )
        made.deadline_s = self.qos_s
        for kind, instance in zip(self.kinds, self.instances, strict=True):
            if instance.address in self.clients:
                client, type = self.clients[instance.address], InstanceType(name=f"type {kind}")
                made.queues[_TIER].add(client, type)
        self.dispatcher = made
        return made

    async def load(self, dispatcher: Dispatcher, scenario: Scenario) -> LoadOutcome:
        """Send the requests of a scenario at their times; return what became of them."""
        outcome = LoadOutcome(scenario)
        began = _CLOCK.now()
        async with asyncio.TaskGroup() as tasks:
            for place, at in enumerate(scenario.arrived_s.tolist()):
                wait = began + at - _CLOCK.now()
                if wait > 0:
                    await asyncio.sleep(wait)
                outcome.sent_s.append(_CLOCK.now() - began)
                tasks.create_task(self._one(dispatcher, place, began + at, outcome))
        return outcome

    async def direct_s(self) -> float:
        """Return the median seconds of short calls past the dispatcher."""
        clients, names, inputs = cycle(self.clients.values()), ("serve",), {INPUT: self._short}
        return await median_s(lambda: next(clients).run(names, inputs, names, timeout_s=5))

    def busy(self, instance: LocalInstance) -> bool:
        """Return whether an instance is at work."""
        dispatcher = self.dispatcher
        return dispatcher is not None and (
            instance.address in dispatcher.queues[_TIER].figures().busy
        )

    async def _one(
        self, dispatcher: Dispatcher, place: int, arrived: float, outcome: LoadOutcome
    ) -> None:
        scenario = outcome.scenario
        seconds = np.maximum(scenario.service_s[place] - self.call_s, 0.0).tolist()
        terms = RequestTerms(timeout_s=_LATE_FACTOR * self.qos_s, arrived=arrived)
        try:
            input = request_payload(float(scenario.size[place]), seconds)
            answer = await dispatcher.request(input, terms)
        except CircinusError as error:
            outcome.errors[type(error).__name__] += 1
        else:
            outcome.latency_s[place] = _CLOCK.now() - arrived
            outcome.retries += answer.retries

    async def _watch(self, instance: LocalInstance) -> None:
        await instance.ended()
        self.clients.pop(instance.address, None)
        if self.dispatcher is not None:
            self.dispatcher.queues[_TIER].remove(instance.address)

    async def _retire(self) -> None:
        if self.dispatcher is not None:
            await self.dispatcher.close(drain_s=_LATE_FACTOR * self.qos_s)
            self.dispatcher = None


@dataclass(slots=True)
class RequestStream:
    """The requests that were drawn, in the order in which they are sent."""

    draws: LoadDraws
    whole: Scenario
    sent: int = 0

    def next(self, *parts: tuple[float, int]) -> Scenario:
        """Return the next ones, so many at a rate."""
        rates, counts = zip(*parts, strict=True)
        first, self.sent = self.sent, self.sent + sum(counts)
        of = slice(first, self.sent)
        gaps = self.draws.gaps[of] / np.repeat(rates, counts)
        columns = {
            name: getattr(self.whole, name)[of] for name in ("size", "service_s", "predicted_s")
        }
        return replace(self.whole, arrived_s=np.cumsum(gaps), **columns)


async def median_s(call: Callable[[], Awaitable[object]]) -> float:
    """Return the median seconds of a call, made a few hundred times one after the other."""
    taken = []
    for _ in range(_CALLS):
        began = _CLOCK.now()
        await call()
        taken.append(_CLOCK.now() - began)
    return float(np.median(taken))


def quantile_ms(seconds: FloatArray, level: float) -> float:
    """Return a quantile of those that are not NaN, in milliseconds; NaN of none."""
    known = seconds[np.isfinite(seconds)]
    return round(float(np.quantile(known, level)) * 1e3, 2) if len(known) else float("nan")


def rate_of(arrived_s: FloatArray) -> float:
    """Return requests per second."""
    return round(len(arrived_s) / float(arrived_s[-1]), 2)


_INFRASTRUCTURE = Infrastructure(name="live", tiers=(Tier(name=_TIER),))


def _plan(service_s: float) -> Plan:
    """Return the plan of the emulated pipeline on the pool, with the seconds of a request."""
    deployment = Deployment(
        placement={"serve": _TIER}, allocation={"serve": 1.0}, replicas={"serve": 1}
    )
    estimate = Estimate(value=service_s, low=service_s, high=service_s, confidence=0.95, inputs=1)
    return Plan(
        pipeline=emulated.name,
        configuration=Configuration((("serve", "kind", 0),)),
        deployment=deployment,
        demand=deployment.demand(emulated.graph),
        accuracy=Estimate(value=1.0, low=1.0, high=1.0, confidence=0.95, inputs=1),
        latency_s=estimate,
        cost_usd_per_hour=0.0,
        tier_service_s={_TIER: service_s},
    )
