"""Does the live dispatcher do what the simulator says? Worker processes, gRPC, real time.

    circinus study live --latency CSV --model rm2 --qos-ms 350 --pool 1,0,13,0

Starts a worker process per instance, each emulating its type's measured latencies, and sends
Poisson load through `deploy.runtime.pool_dispatcher`; then simulates the very same arrivals. Both
have the policy that the service makes of its name. Phases: direct calls beside dispatched ones;
the load; an overload; the load while two workers die.

A call as a whole should take what was measured: workers sleep so many seconds less what a call
takes besides, the median of direct calls before everything else.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from circinus.deploy.local.launcher import LocalInstance, LocalLauncher
from circinus.deploy.methods import DEFAULT
from circinus.deploy.runtime.instances import InstanceKey, InstanceSpec
from circinus.deploy.runtime.pool_dispatcher import PoolDispatcher
from circinus.deploy.runtime.tier_queue import InstanceType
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.configuration import Configuration
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.infrastructure import Tier
from circinus.pipelines.payload import encode
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES, FloatArray
from circinus.scheduler.simulation.engine import Scenario, simulate
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.studies.dispatch.draws import LoadDraws, Pool, allowable_rate, draw, load_of
from circinus.studies.dispatch.emulated_model import emulated

_REFERENCE = "circinus.studies.dispatch.emulated_model:emulated"
_OPERATOR = "serve"
_CLOCK = SystemClock()
_MEANS = None  # of what a simulated policy is told: emulated seconds do not vary
_WARM_UP = 300
_LATE_FACTOR = 20.0  # of the QoS: then a request is given up
_DRAWN = 80_000
_CALLS, _DIRECT_S = 200, 0.005  # short calls, to see what a call takes besides
_RECOVERY_S, _CALM_S = 5.0, 15.0  # after an overload: to recover, and then to be looked at

Tell = Callable[[str, dict[str, object]], None]
"""Hears of a phase and its figures when it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStudy:
    """What to measure."""

    table: LatencyTable  # latencies of the model
    qos_s: float  # requests should be answered within, `> 0`
    pool: Pool  # instances of each type
    steady_s: float = 180.0  # seconds of load at 80 % of the simulated allowable rate, `> 0`
    overload_s: float = 60.0  # seconds at three times that rate, `> 0`
    killing_s: float = 30.0  # seconds of load during which two workers die, `> 0`
    limit: int = 128  # most requests that wait, `>= 1`
    seed: int = 0  # of all draws
    policy: str = DEFAULT.dispatch  # dispatches, live and simulated, as the service makes it

    def __post_init__(self) -> None:
        for name in ("qos_s", "steady_s", "overload_s", "killing_s"):
            checks.positive(name, getattr(self, name))
        checks.require(self.limit >= 1, "limit", "must be >= 1", self.limit)
        kinds = len(self.table.kinds)
        good = len(self.pool) == kinds and min(self.pool) >= 0 and sum(self.pool) >= 3
        rule = f"must be {kinds} counts >= 0 of together >= 3 ({', '.join(self.table.kinds)})"
        checks.require(good, "pool", rule, self.pool)
        checks.among("policy", self.policy, DISPATCH_POLICIES)


def run(study: LiveStudy, tell: Tell) -> None:
    """Run the phases and tell of each; InvalidInput if the load needs more than is drawn."""
    with TemporaryDirectory() as logs:
        asyncio.run(_measure(study, tell, Path(logs)))


async def _measure(study: LiveStudy, tell: Tell, logs: Path) -> None:
    def done(phase: str, figures: dict[str, object]) -> None:
        tell(phase, {**figures, "load_average": round(os.getloadavg()[0], 1)})

    draws = draw(study.table, study.qos_s, load_of(), _DRAWN, study.seed, sampled=False)
    policy = dispatch_policy(study.policy)
    scenarios = draws.scenarios(study.pool, _MEANS)
    allowable, _ = allowable_rate(policy, scenarios, 1.02 * draws.bound_rps(study.pool))
    rule = f"must have 99 % of some load in time with {study.policy}"
    checks.require(allowable > 0, "pool", rule, study.pool)
    seconds = study.steady_s + study.killing_s + _RECOVERY_S + _CALM_S + 4 * study.overload_s
    rule = f"must be so short that {_DRAWN} requests are enough"
    checks.require(_WARM_UP + allowable * seconds < _DRAWN, "steady_s", rule, study.steady_s)
    told = {"policy": study.policy, "allowable_rps": round(allowable, 2), "pool": study.pool}
    done("simulated", told)
    async with AsyncExitStack() as stack:
        pool = LivePool(draws, scenarios(1.0), study, logs)
        await pool.start(stack)
        await pool.load((0.4 * allowable, _WARM_UP))
        done("overhead", await _overhead_ms(pool))
        rate = 0.8 * allowable
        steady = await pool.load((rate, int(rate * study.steady_s)))
        done("steady", _beside_simulated(steady, scenarios(1.0), policy))
        done("overload", await _overload(pool, allowable, study.overload_s))
        done("killed", await _killing(pool, rate, int(rate * study.killing_s)))


@dataclass(slots=True)
class LoadOutcome:
    """What became of the requests of a phase."""

    requests: slice  # of the draws
    arrived_s: FloatArray  # when each was to be sent, from the phase's start
    sent_s: list[float] = field(default_factory=list)  # when each was
    latency_s: FloatArray = field(init=False)  # NaN where there was no answer
    errors: Counter[str] = field(default_factory=Counter)  # kind of error -> how many
    retries: int = 0  # how many were tried again

    def __post_init__(self) -> None:
        self.latency_s = np.full(len(self.arrived_s), np.nan)

    def figures(self, qos_s: float) -> dict[str, object]:
        """Give what matters."""
        return {
            "rate_rps": _rate(self.arrived_s),
            "requests": len(self.latency_s),
            "answered": int(np.isfinite(self.latency_s).sum()),
            "in_time": round(float((self.latency_s <= qos_s).mean()), 5),
            "p50_ms": _ms(self.latency_s, 0.5),
            "p99_ms": _ms(self.latency_s, 0.99),
            "errors": dict(self.errors),
            "retries": self.retries,
        }


class LivePool:
    """Worker processes of a pool and a dispatcher for them."""

    def __init__(self, draws: LoadDraws, whole: Scenario, study: LiveStudy, logs: Path) -> None:
        self.whole = whole
        self.short = {INPUT: encode([_DIRECT_S] * len(draws.table.kinds))}  # a call's inputs
        self.gaps = draws.gaps
        self.sent = 0  # of the draws
        self.call_s = 0.0
        self.instances: list[LocalInstance] = []
        self.clients: list[WorkerClient] = []
        self._launcher = LocalLauncher(logs=logs, cgroups="whole machines", allow_import=True)
        self.dispatcher = PoolDispatcher(
            dispatch_policy(study.policy),
            _CLOCK,
            qos_s=whole.qos_s,
            timeout_s=_LATE_FACTOR * whole.qos_s,
            queue_limit=study.limit,
            prior_s=float(whole.service_s.mean()),
        )

    async def start(self, stack: AsyncExitStack) -> None:
        """Start a process per instance, one after the other; they end with the stack."""
        stack.push_async_callback(self.dispatcher.queue.close)
        fleet = self.whole.fleet
        rows = zip(fleet.kind.tolist(), fleet.coefficient, fleet.price, strict=True)
        for number, (kind, coefficient, price) in enumerate(rows):
            spec = InstanceSpec(
                key=InstanceKey("live", "pool", "pool", number),
                pipeline_reference=_REFERENCE,
                operators=emulated.graph.operators,
                configuration=Configuration(((_OPERATOR, "kind", kind),)),
                tier=Tier(name="pool"),
                share=1.0,
            )
            instance = await self._launcher.start(spec)
            stack.push_async_callback(instance.stop)
            client = WorkerClient(instance.address)
            stack.push_async_callback(client.close)
            type = InstanceType(
                name=f"kind{kind}", kind=kind, coefficient=float(coefficient), price=float(price)
            )
            self.dispatcher.queue.add(client, type)
            stack.callback(asyncio.create_task(self._watch(instance)).cancel)
            self.instances.append(instance)
            self.clients.append(client)
        self.call_s = await self.direct_s() - _DIRECT_S

    async def load(self, *parts: tuple[float, int]) -> LoadOutcome:
        """Send the next requests at their times, so many at a rate; give what became of them."""
        rates, counts = zip(*parts, strict=True)
        first, self.sent = self.sent, self.sent + sum(counts)
        gaps = self.gaps[first : self.sent] / np.repeat(rates, counts)
        outcome = LoadOutcome(slice(first, self.sent), np.cumsum(gaps))
        began = _CLOCK.now()
        async with asyncio.TaskGroup() as tasks:
            for place, at in enumerate(outcome.arrived_s.tolist()):
                wait = began + at - _CLOCK.now()
                if wait > 0:
                    await asyncio.sleep(wait)
                outcome.sent_s.append(_CLOCK.now() - began)
                tasks.create_task(self._one(first + place, place, outcome))
        return outcome

    async def _one(self, request: int, place: int, outcome: LoadOutcome) -> None:
        seconds = np.maximum(self.whole.service_s[request] - self.call_s, 0.0)
        inputs = {INPUT: encode(seconds.tolist())}
        size = float(self.whole.size[request])
        try:
            answer = await self.dispatcher.request(_OPERATOR, inputs, size=size)
        except CircinusError as error:
            outcome.errors[type(error).__name__] += 1
        else:
            outcome.latency_s[place] = answer.latency_s
            outcome.retries += answer.retries

    async def _watch(self, instance: LocalInstance) -> None:
        await instance.ended()
        self.dispatcher.queue.remove(instance.address)

    async def direct_s(self) -> float:
        """Give the median seconds of short calls past the dispatcher."""
        clients, names = cycle(self.clients), (_OPERATOR,)
        return await _median_s(lambda: next(clients).run(names, self.short, names, timeout_s=5))


async def _median_s(call: Callable[[], Awaitable[object]]) -> float:
    taken = []
    for _ in range(_CALLS):
        began = _CLOCK.now()
        await call()
        taken.append(_CLOCK.now() - began)
    return float(np.median(taken))


async def _overhead_ms(pool: LivePool) -> dict[str, object]:
    """Give what a call takes beyond the operator's seconds, direct and dispatched."""
    direct = await pool.direct_s()
    dispatched = await _median_s(lambda: pool.dispatcher.request(_OPERATOR, pool.short, size=5.0))
    seconds = {"direct_p50_ms": direct, "dispatched_p50_ms": dispatched}
    seconds |= {"added_p50_ms": dispatched - direct, "call_ms": pool.call_s}
    return {name: round(value * 1e3, 3) for name, value in seconds.items()}


def _beside_simulated(
    outcome: LoadOutcome, whole: Scenario, policy: CompiledPolicy
) -> dict[str, object]:
    """Give what became of the load, and of the same arrivals simulated."""
    arrived = outcome.arrived_s
    of_each = ("size", "service_s", "predicted_s")
    met = {name: getattr(whole, name)[outcome.requests] for name in of_each}
    simulated = simulate(replace(whole, arrived_s=arrived, **met), policy)
    latency = simulated.finished_s - arrived
    both = [0.5, 0.99]
    p50, p99 = np.nanquantile(outcome.latency_s, both) / np.nanquantile(latency, both)
    lag = np.quantile(np.array(outcome.sent_s) - arrived, both) * 1e3
    return {
        **outcome.figures(whole.qos_s),
        "simulated_in_time": round(simulated.in_time, 5),
        "simulated_p50_ms": _ms(latency, 0.5),
        "simulated_p99_ms": _ms(latency, 0.99),
        "p50_ratio": round(float(p50), 4),
        "p99_ratio": round(float(p99), 4),
        "sender_lag_ms": [round(float(x), 2) for x in lag],
    }


async def _overload(pool: LivePool, allowable: float, seconds: float) -> dict[str, object]:
    """Three times the allowable rate, then 0.8 of it: how soon are requests in time again?"""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    most, rate = int(3 * allowable * seconds), 0.8 * allowable
    calm_count = int(rate * (_RECOVERY_S + _CALM_S))
    outcome = await pool.load((3 * allowable, most), (rate, calm_count))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rush, calm = outcome.arrived_s[:most], outcome.arrived_s[most:] - outcome.arrived_s[most - 1]
    good = outcome.latency_s <= pool.whole.qos_s
    goodput, again = float(good[:most].sum() / rush[-1]), good[most:]
    by_second = [again[(calm >= s) & (calm < s + 1)].mean() for s in range(8)]
    return {
        "offered_rps": _rate(rush),
        "goodput_rps": round(goodput, 2),
        "of_allowable": round(3 * goodput / _rate(rush), 4),
        "in_time_from_5_s_on": round(float(again[calm >= _RECOVERY_S].mean()), 4),
        "in_time_by_second": [round(float(share), 3) for share in by_second],
        "errors": dict(outcome.errors),
        "memory_grew_mb": round((after - before) / 1024, 1),
    }


async def _killing(pool: LivePool, rate: float, count: int) -> dict[str, object]:
    """Two workers die in the middle of a request; the others carry the load."""

    async def kill() -> None:
        for place in (-1, -2):
            await asyncio.sleep(count / rate / 3)
            while pool.instances[place].address not in pool.dispatcher.queue.figures().busy:
                await asyncio.sleep(0.001)
            pool.instances[place].process.send_signal(signal.SIGKILL)

    killer = asyncio.create_task(kill())
    outcome = await pool.load((rate, count))
    killer.cancel()  # a worker that never was busy cannot be killed at work
    await asyncio.gather(killer, return_exceptions=True)
    lost = np.isnan(outcome.latency_s).sum() - sum(outcome.errors.values())
    return {
        "rate_rps": _rate(outcome.arrived_s),
        "killed": sum(each.process.returncode is not None for each in pool.instances),
        **outcome.figures(pool.whole.qos_s),
        "without_any_answer": int(lost),
    }


def _ms(seconds: FloatArray, level: float) -> float:
    """Give a quantile of those that are not NaN, in milliseconds."""
    return round(float(np.nanquantile(seconds, level)) * 1e3, 2)


def _rate(arrived_s: FloatArray) -> float:
    return round(len(arrived_s) / float(arrived_s[-1]), 2)
