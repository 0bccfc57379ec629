"""Does the live dispatcher do what the simulator says? Worker processes, gRPC, real time.

    python -m studies.live_dispatch --latency CSV --model rm2 --qos-ms 350 --pool 1,0,13,0

Starts a worker process per instance, each emulating its type's measured latencies, and sends
Poisson load through `deploy.pool_dispatcher`; then simulates the very same arrivals. Phases:
direct calls beside dispatched ones; the load; an overload; the load while two workers die.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from deploy.pool_dispatcher import PoolDispatcher, PoolSettings
from deploy.tier_queue import InstanceType
from deploy.workers.client import WorkerClient
from deploy.workers.execution import INPUT
from deploy.workers.options import WorkerOptions
from pipelines.clock import SystemClock
from pipelines.errors import CircinusError
from pipelines.payload import encode
from scheduler.dispatch.plan_ahead import PlanAhead
from scheduler.dispatch.policy import FloatArray
from scheduler.simulation.batches import kairos_batches
from scheduler.simulation.engine import simulate
from scheduler.simulation.measurements import parse_latencies
from scheduler.simulation.scenario import Scenario
from studies.dispatch_draws import Draws, Pool, allowable_rate, draw

_REFERENCE = "studies.emulated_model:emulated"
_OPERATOR = "serve"
_CLOCK = SystemClock()
_POLICY = PlanAhead(xi=0.98)  # the way through gRPC is not quite even
_WARM_UP = 300
_LATE_FACTOR = 20.0  # of the QoS: then a request is given up


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

    def __init__(self, draws: Draws, pool: Pool, limit: int) -> None:
        self.draws = draws
        self.kind = np.repeat(np.arange(len(pool)), pool)
        fleet = draws.scenarios(pool, 0.9)(1.0).fleet
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
        self.dispatcher = PoolDispatcher(_POLICY, _CLOCK, settings)
        self.processes: list[Process] = []
        self.clients: list[WorkerClient] = []
        self.watchers: list[asyncio.Task[None]] = []

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
        inputs = {INPUT: encode(self.draws.service_s[request].tolist())}
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

    async def overhead_ms(self, calls: int = 200) -> dict[str, float]:
        """Give what a call takes beyond the operator's seconds, direct and dispatched."""
        inputs = {INPUT: encode([0.005] * len(self.draws.table.kinds))}
        direct, dispatched = [], []
        for call in range(calls):
            client = self.clients[call % len(self.clients)]
            began = _CLOCK.now()
            await client.run((_OPERATOR,), inputs, (_OPERATOR,), timeout_s=5)
            direct.append(_CLOCK.now() - began)
            began = _CLOCK.now()
            await self.dispatcher.request(_OPERATOR, inputs, size=5.0)
            dispatched.append(_CLOCK.now() - began)
        return {
            "direct_p50_ms": round(float(np.median(direct)) * 1e3, 3),
            "dispatched_p50_ms": round(float(np.median(dispatched)) * 1e3, 3),
            "added_p50_ms": round(float(np.median(dispatched) - np.median(direct)) * 1e3, 3),
        }


async def measure(draws: Draws, pool: Pool, arguments: argparse.Namespace) -> None:
    """Run the phases and print a line of JSON for each."""
    scenarios = draws.scenarios(pool, 0.9)
    allowable, _ = allowable_rate(_POLICY, scenarios, 1.02 * draws.bound(pool).rate_rps)
    _tell("simulated", {"allowable_rps": round(allowable, 2), "pool": pool})
    pooled = Pooled(draws, pool, arguments.limit)
    try:
        await pooled.start()
        warm = np.cumsum(draws.gaps[:_WARM_UP]) / (0.4 * allowable)
        await pooled.load(0, warm)
        overhead: dict[str, object] = {**await pooled.overhead_ms()}
        _tell("overhead", overhead)
        first = _WARM_UP
        first = await _steady(pooled, scenarios, first, 0.8 * allowable, arguments)
        first = await _overload(pooled, first, allowable, arguments)
        await _killing(pooled, first, 0.8 * allowable)
    finally:
        await pooled.stop()


def _arrivals(draws: Draws, first: int, rate: float, seconds: float) -> FloatArray:
    count = int(rate * seconds)
    return np.cumsum(draws.gaps[first : first + count]) / rate


async def _steady(
    pooled: Pooled,
    scenarios: Callable[[float], Scenario],
    first: int,
    rate: float,
    arguments: argparse.Namespace,
) -> int:
    draws = pooled.draws
    arrived = _arrivals(draws, first, rate, arguments.seconds)
    outcome = await pooled.load(first, arrived)
    live = outcome.figures(draws.qos_s)
    answered = [float(np.nanquantile(outcome.latency_s, level)) for level in (0.5, 0.99)]
    whole = scenarios(1.0)
    span = slice(first, first + len(arrived))
    same = Scenario(
        arrived_s=arrived,
        size=whole.size[span],
        service_s=whole.service_s[span],
        predicted_s=whole.predicted_s[span],
        qos_s=whole.qos_s,
        fleet=whole.fleet,
    )
    run = simulate(same, _POLICY)
    latency = run.finished_s - arrived
    p50, p99 = (float(np.quantile(latency, level)) * 1e3 for level in (0.5, 0.99))
    lag = np.quantile(np.array(outcome.sent_s) - arrived, [0.5, 0.99]) * 1e3
    _tell(
        "steady",
        {
            "rate_rps": round(rate, 2),
            **live,
            "simulated": {
                "in_time": round(run.in_time, 5),
                "p50_ms": round(p50, 2),
                "p99_ms": round(p99, 2),
            },
            "p50_ratio": round(answered[0] * 1e3 / p50, 4),
            "p99_ratio": round(answered[1] * 1e3 / p99, 4),
            "sender_lag_ms": [round(float(x), 2) for x in lag],
        },
    )
    return first + len(arrived)


async def _overload(
    pooled: Pooled, first: int, allowable: float, arguments: argparse.Namespace
) -> int:
    """Three times the allowable rate, then 0.8 of it: how soon are requests in time again?"""
    draws, qos_s = pooled.draws, pooled.draws.qos_s
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rush = _arrivals(draws, first, 3 * allowable, arguments.overload)
    calm = _arrivals(draws, first + len(rush), 0.8 * allowable, 20.0)
    outcome = await pooled.load(first, np.concatenate([rush, rush[-1] + calm]))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    latency = np.array(outcome.latency_s)
    good = latency <= qos_s
    goodput = good[: len(rush)].sum() / rush[-1]
    after_s, calm_good = calm, good[len(rush) :]
    by_second = [calm_good[(after_s >= s) & (after_s < s + 1)].mean() for s in range(8)]
    _tell(
        "overload",
        {
            "offered_rps": round(3 * allowable, 1),
            "goodput_rps": round(float(goodput), 2),
            "of_allowable": round(float(goodput / allowable), 4),
            "in_time_from_5_s_on": round(float(calm_good[after_s >= 5].mean()), 4),
            "in_time_by_second": [round(float(share), 3) for share in by_second],
            "errors": dict(outcome.errors),
            "memory_grew_mb": round((after - before) / 1024, 1),
        },
    )
    return first + len(rush) + len(calm)


async def _killing(pooled: Pooled, first: int, rate: float) -> None:
    """Two workers die in the middle of a request; the others carry the load."""
    draws = pooled.draws
    arrived = _arrivals(draws, first, rate, 30.0)

    async def kill() -> None:
        for place in (-1, -2):
            await asyncio.sleep(10.0)
            address = pooled.clients[place].address
            while address not in pooled.dispatcher.queue.figures().busy:
                await asyncio.sleep(0.001)
            pooled.processes[place].send_signal(signal.SIGKILL)

    killer = asyncio.create_task(kill())
    outcome = await pooled.load(first, arrived)
    await killer
    answered = int(np.isfinite(outcome.latency_s).sum())
    lost = len(arrived) - answered - sum(outcome.errors.values())
    figures = outcome.figures(draws.qos_s)
    _tell("killed", {"rate_rps": round(rate, 2), **figures, "without_any_answer": lost})


def _tell(phase: str, figures: dict[str, object]) -> None:
    print(json.dumps({"phase": phase, **figures}), flush=True)


def main(words: Sequence[str]) -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m studies.live_dispatch")
    parser.add_argument("--latency", type=Path, required=True, help="CSV of latencies")
    parser.add_argument("--model", required=True)
    parser.add_argument("--qos-ms", type=float, required=True)
    parser.add_argument("--pool", required=True, help="counts of each type: a,b,c,d")
    parser.add_argument("--seconds", type=float, default=180.0, help="of the steady load")
    parser.add_argument("--overload", type=float, default=60.0, help="seconds of the overload")
    parser.add_argument("--limit", type=int, default=128, help="most requests that wait")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(words)
    with arguments.latency.open() as file:
        table = parse_latencies(file, arguments.model)
    pool = tuple(int(count) for count in arguments.pool.split(","))
    draws = draw(
        table, arguments.qos_ms / 1e3, kairos_batches, 80_000, arguments.seed, sampled=False
    )
    asyncio.run(measure(draws, pool, arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
