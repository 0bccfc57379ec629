"""Does the live dispatcher do what the simulator says? Worker processes, gRPC, real time.

    circinus study live --latency CSV --model rm2 --qos-ms 350 --pool 1,0,13,0

Starts a worker process per instance, each emulating its type's measured latencies, and sends
Poisson load through `deploy.pool_dispatcher`; then simulates the very same arrivals. Both have the
policy that the service makes of its name. Phases: direct calls beside dispatched ones; the load;
an overload; the load while two workers die.

A call as a whole should take what was measured: workers sleep so many seconds less what a call
takes besides, the median of direct calls before everything else.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from deploy.methods import DEFAULT
from deploy.places import InstanceType
from deploy.pool_dispatcher import PoolDispatcher, PoolSettings
from deploy.workers.client import WorkerClient
from deploy.workers.execution import INPUT
from deploy.workers.options import WorkerOptions
from pipelines import checks
from pipelines.clock import SystemClock
from pipelines.errors import CircinusError
from pipelines.payload import encode
from scheduler.dispatch.kernel import CompiledPolicy
from scheduler.dispatch.policies import dispatch_policy
from scheduler.dispatch.policy import DISPATCH_POLICIES, FloatArray
from scheduler.simulation.engine import simulate
from scheduler.simulation.measurements import LatencyTable
from scheduler.simulation.scenario import Scenario
from studies.dispatch_draws import Draws, Pool, allowable_rate, draw
from studies.dispatch_load import load_of

_REFERENCE = "studies.emulated_model:emulated"
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
    """What to measure.

    Attributes:
        table: Latencies of the model.
        qos_s: Requests should be answered within, `> 0`.
        pool: Instances of each type.
        steady_s: Seconds of load at 80 % of the simulated allowable rate, `> 0`.
        overload_s: Seconds at three times that rate, `> 0`.
        killing_s: Seconds of load during which two workers die, `> 0`.
        limit: Most requests that wait, `>= 1`.
        seed: Of all draws.
        policy: Of `DISPATCH_POLICIES`: dispatches, live and simulated, as the service makes it.
    """

    table: LatencyTable
    qos_s: float
    pool: Pool
    steady_s: float = 180.0
    overload_s: float = 60.0
    killing_s: float = 30.0
    limit: int = 128
    seed: int = 0
    policy: str = DEFAULT.dispatch

    def __post_init__(self) -> None:
        for name in ("qos_s", "steady_s", "overload_s", "killing_s"):
            checks.positive(name, getattr(self, name))
        checks.require(self.limit >= 1, "limit", "must be >= 1", self.limit)
        kinds = len(self.table.kinds)
        good = len(self.pool) == kinds and min(self.pool) >= 0 and sum(self.pool) >= 3
        rule = f"must be {kinds} counts >= 0 of together >= 3 ({', '.join(self.table.kinds)})"
        checks.require(good, "pool", rule, self.pool)
        rule = f"must be among {', '.join(DISPATCH_POLICIES)}"
        checks.require(self.policy in DISPATCH_POLICIES, "policy", rule, self.policy)


def run(study: LiveStudy, tell: Tell) -> None:
    """Run the phases; `tell` is called after each.

    Raises:
        InvalidInput: If the load would need more requests than are drawn.
    """
    draws = draw(study.table, study.qos_s, load_of(), _DRAWN, study.seed, sampled=False)
    asyncio.run(_measure(draws, study, tell))


@dataclass(slots=True)
class Outcome:
    """What became of the requests of a phase.

    Attributes:
        sent_s: When each was sent, from the phase's start.
        latency_s: NaN where there was no answer.
        errors: Kind of error -> how many.
        retries: How many were tried again.
    """

    sent_s: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    retries: int = 0

    def figures(self, qos_s: float) -> dict[str, object]:
        """Give what matters."""
        latency = np.array(self.latency_s)
        answered = latency[np.isfinite(latency)]
        return {
            "requests": len(latency),
            "answered": len(answered),
            "in_time": round(float((latency <= qos_s).mean()), 5),
            "p50_ms": round(float(np.quantile(answered, 0.5)) * 1e3, 2),
            "p99_ms": round(float(np.quantile(answered, 0.99)) * 1e3, 2),
            "errors": dict(self.errors),
            "retries": self.retries,
        }


class Pooled:
    """Worker processes of a pool and a dispatcher for them."""

    def __init__(self, draws: Draws, pool: Pool, limit: int, policy: CompiledPolicy) -> None:
        self.draws = draws
        self.policy = policy
        self.kind = np.repeat(np.arange(len(pool)), pool)
        fleet = draws.scenarios(pool, _MEANS)(1.0).fleet
        self.types = [
            InstanceType(
                name=f"kind{kind}",
                kind=int(kind),
                coefficient=float(fleet.coefficient[j]),
                price=float(fleet.price[j]),
            )
            for j, kind in enumerate(self.kind)
        ]
        mean = float(draws.service_s.mean())
        settings = PoolSettings(
            qos_s=draws.qos_s,
            timeout_s=_LATE_FACTOR * draws.qos_s,
            queue_limit=limit,
            prior_s=mean,
        )
        self.dispatcher = PoolDispatcher(policy, _CLOCK, settings)
        self.processes: list[Process] = []
        self.clients: list[WorkerClient] = []
        self.watchers: list[asyncio.Task[None]] = []
        self.call_s = 0.0

    async def start(self) -> None:
        """Start a process per instance, one after the other."""
        for kind, type in zip(self.kind.tolist(), self.types, strict=True):
            options = WorkerOptions(
                pipeline=_REFERENCE,
                allow_import=True,
                operators=(_OPERATOR,),
                configuration={_OPERATOR: {"kind": kind}},
                tier="pool",
                parent=os.getpid(),
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "deploy.workers.server", *options.arguments(),
                stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
            )  # fmt: skip
            self.processes.append(process)
            if process.stdout is None:
                raise RuntimeError("a worker has no standard output.")
            address = json.loads(await process.stdout.readline())["address"]
            client = WorkerClient(address)
            await client.settle(timeout_s=30)
            self.clients.append(client)
            self.dispatcher.add(client, type)
            self.watchers.append(asyncio.create_task(self._watch(process, address)))
        self.call_s = float(np.median(await self._direct_s())) - _DIRECT_S

    async def stop(self) -> None:
        """End all processes."""
        for watcher in self.watchers:
            watcher.cancel()
        await asyncio.gather(*self.watchers, return_exceptions=True)
        await self.dispatcher.queue.close()
        for client in self.clients:
            await client.close()
        for process in self.processes:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in self.processes))

    async def load(self, first: int, arrived_s: FloatArray) -> Outcome:
        """Send requests at their times; give what became of them."""
        outcome = Outcome(latency_s=[float("nan")] * len(arrived_s))
        began = _CLOCK.now()
        tasks = []
        for place, at in enumerate(arrived_s.tolist()):
            wait = began + at - _CLOCK.now()
            if wait > 0:
                await asyncio.sleep(wait)
            outcome.sent_s.append(_CLOCK.now() - began)
            task = asyncio.create_task(self._one(first + place, place, outcome))
            tasks.append(task)
        await asyncio.gather(*tasks)
        return outcome

    async def _one(self, request: int, place: int, outcome: Outcome) -> None:
        seconds = np.maximum(self.draws.service_s[request] - self.call_s, 0.0)
        inputs = {INPUT: encode(seconds.tolist())}
        size = float(self.draws.table.batches[self.draws.rows[request]])
        try:
            answer = await self.dispatcher.request(_OPERATOR, inputs, size=size)
        except CircinusError as error:
            outcome.errors[type(error).__name__] += 1
        else:
            outcome.latency_s[place] = answer.latency_s
            outcome.retries += answer.retries

    async def _watch(self, process: Process, address: str) -> None:
        await process.wait()
        self.dispatcher.remove(address)

    async def overhead_ms(self) -> dict[str, float]:
        """Give what a call takes beyond the operator's seconds, direct and dispatched."""
        direct = await self._direct_s()
        dispatched = []
        for _ in range(_CALLS):
            began = _CLOCK.now()
            await self.dispatcher.request(_OPERATOR, self._short(), size=5.0)
            dispatched.append(_CLOCK.now() - began)
        return {
            "direct_p50_ms": round(float(np.median(direct)) * 1e3, 3),
            "dispatched_p50_ms": round(float(np.median(dispatched)) * 1e3, 3),
            "added_p50_ms": round(float(np.median(dispatched) - np.median(direct)) * 1e3, 3),
            "call_ms": round(self.call_s * 1e3, 3),
        }

    async def _direct_s(self) -> list[float]:
        """Give the seconds of short calls past the dispatcher."""
        taken = []
        for call in range(_CALLS):
            client = self.clients[call % len(self.clients)]
            began = _CLOCK.now()
            await client.run((_OPERATOR,), self._short(), (_OPERATOR,), timeout_s=5)
            taken.append(_CLOCK.now() - began)
        return taken

    def _short(self) -> dict[str, bytes]:
        return {INPUT: encode([_DIRECT_S] * len(self.draws.table.kinds))}


async def _measure(draws: Draws, study: LiveStudy, tell: Tell) -> None:
    policy = dispatch_policy(study.policy)
    scenarios = draws.scenarios(study.pool, _MEANS)
    allowable, _ = allowable_rate(policy, scenarios, 1.02 * draws.bound(study.pool).rate_rps)
    rule = f"must have 99 % of some load in time with {study.policy}"
    checks.require(allowable > 0, "pool", rule, study.pool)
    seconds = study.steady_s + study.killing_s + _RECOVERY_S + _CALM_S + 4 * study.overload_s
    rule = f"must be so short that {_DRAWN} requests are enough"
    checks.require(_WARM_UP + allowable * seconds < _DRAWN, "steady_s", rule, study.steady_s)
    told = {"policy": study.policy, "allowable_rps": round(allowable, 2), "pool": study.pool}
    tell("simulated", {**told, **_load()})
    pooled = Pooled(draws, study.pool, study.limit, policy)
    try:
        await pooled.start()
        warm = np.cumsum(draws.gaps[:_WARM_UP]) / (0.4 * allowable)
        await pooled.load(0, warm)
        tell("overhead", {**await pooled.overhead_ms(), **_load()})
        rate, at = 0.8 * allowable, _WARM_UP
        arrived = _arrivals(draws, at, rate, study.steady_s)
        tell("steady", await _steady(pooled, scenarios(1.0), at, arrived))
        at += len(arrived)
        rush = _arrivals(draws, at, 3 * allowable, study.overload_s)
        calm = _arrivals(draws, at + len(rush), rate, _RECOVERY_S + _CALM_S)
        tell("overload", await _overload(pooled, at, rush, calm))
        at += len(rush) + len(calm)
        arrived = _arrivals(draws, at, rate, study.killing_s)
        tell("killed", await _killing(pooled, at, arrived))
    finally:
        await pooled.stop()


def _load() -> dict[str, object]:
    return {"load_average": round(os.getloadavg()[0], 1)}


def _arrivals(draws: Draws, first: int, rate: float, seconds: float) -> FloatArray:
    count = int(rate * seconds)
    return np.cumsum(draws.gaps[first : first + count]) / rate


def _rate(arrived_s: FloatArray) -> float:
    return round(len(arrived_s) / float(arrived_s[-1]), 2)


async def _steady(
    pooled: Pooled, whole: Scenario, first: int, arrived: FloatArray
) -> dict[str, object]:
    """Load that the pool can take, and the same arrivals simulated."""
    outcome = await pooled.load(first, arrived)
    answered = [float(np.nanquantile(outcome.latency_s, level)) for level in (0.5, 0.99)]
    span = slice(first, first + len(arrived))
    same = replace(
        whole,
        arrived_s=arrived,
        size=whole.size[span],
        service_s=whole.service_s[span],
        predicted_s=whole.predicted_s[span],
    )
    simulated = simulate(same, pooled.policy)
    latency = simulated.finished_s - arrived
    p50, p99 = (float(np.nanquantile(latency, level)) for level in (0.5, 0.99))
    lag = np.quantile(np.array(outcome.sent_s) - arrived, [0.5, 0.99]) * 1e3
    return {
        "rate_rps": _rate(arrived),
        **outcome.figures(pooled.draws.qos_s),
        "simulated_in_time": round(simulated.in_time, 5),
        "simulated_p50_ms": round(p50 * 1e3, 2),
        "simulated_p99_ms": round(p99 * 1e3, 2),
        "p50_ratio": round(answered[0] / p50, 4),
        "p99_ratio": round(answered[1] / p99, 4),
        "sender_lag_ms": [round(float(x), 2) for x in lag],
        **_load(),
    }


async def _overload(
    pooled: Pooled, first: int, rush: FloatArray, calm: FloatArray
) -> dict[str, object]:
    """Three times the allowable rate, then 0.8 of it: how soon are requests in time again?"""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await pooled.load(first, np.concatenate([rush, rush[-1] + calm]))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    good = np.array(outcome.latency_s) <= pooled.draws.qos_s
    goodput = float(good[: len(rush)].sum() / rush[-1])
    again = good[len(rush) :]
    by_second = [again[(calm >= s) & (calm < s + 1)].mean() for s in range(8)]
    return {
        "offered_rps": _rate(rush),
        "goodput_rps": round(goodput, 2),
        "of_allowable": round(3 * goodput / _rate(rush), 4),
        "in_time_from_5_s_on": round(float(again[calm >= _RECOVERY_S].mean()), 4),
        "in_time_by_second": [round(float(share), 3) for share in by_second],
        "errors": dict(outcome.errors),
        "memory_grew_mb": round((after - before) / 1024, 1),
        **_load(),
    }


async def _killing(pooled: Pooled, first: int, arrived: FloatArray) -> dict[str, object]:
    """Two workers die in the middle of a request; the others carry the load."""

    async def kill() -> None:
        for place in (-1, -2):
            await asyncio.sleep(float(arrived[-1]) / 3)
            address = pooled.clients[place].address
            while address not in pooled.dispatcher.queue.figures().busy:
                await asyncio.sleep(0.001)
            pooled.processes[place].send_signal(signal.SIGKILL)

    killer = asyncio.create_task(kill())
    outcome = await pooled.load(first, arrived)
    killer.cancel()  # a worker that never was busy cannot be killed at work
    await asyncio.gather(killer, return_exceptions=True)
    answered = int(np.isfinite(outcome.latency_s).sum())
    ended = sum(process.returncode is not None for process in pooled.processes)
    return {
        "rate_rps": _rate(arrived),
        "killed": ended,
        **outcome.figures(pooled.draws.qos_s),
        "without_any_answer": len(arrived) - answered - sum(outcome.errors.values()),
        **_load(),
    }
