"""Does the live dispatcher match the simulator? Worker processes, gRPC, real time.

Live and simulated meet the same arrivals and have the policy that the service makes of its name.
Latencies count from a request's arrival, also where the sender was late with it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from circinus.deploy.methods import DEFAULT
from circinus.deploy.runtime.dispatcher import Dispatcher
from circinus.deploy.runtime.walk import RequestTerms
from circinus.pipelines import checks
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.pool.search import Pool
from circinus.scheduler.simulation.draws import allowable_rate, draw
from circinus.scheduler.simulation.engine import Scenario, simulate
from circinus.scheduler.simulation.loads import load_of
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.studies.dispatch.emulated_model import MOST_KINDS, request_payload
from circinus.studies.dispatch.live_pool import (
    DIRECT_S,
    LivePool,
    LoadOutcome,
    PhaseObserver,
    RequestStream,
    median_s,
    quantile_ms,
    rate_of,
)

_MEANS = None  # predictions of a simulated policy: emulated seconds do not vary
_WARM_UP = 300
_DRAWN = 80_000
_RECOVERY_S, _CALM_S = 5.0, 15.0  # after an overload: to recover, and then to be looked at


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


def run(study: LiveStudy, tell: PhaseObserver) -> None:
    """Run the phases and report each; InvalidInput if the load needs more than is drawn."""
    with TemporaryDirectory() as logs:
        asyncio.run(_measure(study, tell, Path(logs)))


async def _measure(study: LiveStudy, tell: PhaseObserver, logs: Path) -> None:
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
    summary = {"policy": study.policy, "allowable_rps": round(allowable, 2), "pool": study.pool}
    done("simulated", summary)
    requests = RequestStream(draws, scenarios(1.0))
    async with AsyncExitStack() as stack:
        pool = LivePool(requests.whole.fleet.kind.tolist(), study.qos_s, logs)
        await pool.start(stack)
        prior_s = float(requests.whole.service_s.mean())
        dispatcher = await pool.serve_with(study.policy, limit=study.limit, prior_s=prior_s)
        await pool.load(dispatcher, requests.next((0.4 * allowable, _WARM_UP)))
        done("overhead", await _overhead_ms(pool, dispatcher))
        rate = 0.8 * allowable
        load = requests.next((rate, int(rate * study.steady_s)))
        steady = await pool.load(dispatcher, load)
        done("steady", _beside_simulated(steady, policy, study.limit))
        most, calm = int(3 * allowable * study.overload_s), int(rate * (_RECOVERY_S + _CALM_S))
        load = requests.next((3 * allowable, most), (rate, calm))
        done("overload", await _overload(pool, dispatcher, load, most))
        load = requests.next((rate, int(rate * study.killing_s)))
        done("killed", await _killing(pool, dispatcher, load))


async def _overhead_ms(pool: LivePool, dispatcher: Dispatcher) -> dict[str, object]:
    """Return what a call takes beyond the operator's seconds, direct and dispatched."""
    short, terms = request_payload(5.0, [DIRECT_S] * MOST_KINDS), RequestTerms(timeout_s=5.0)
    direct = await pool.direct_s()
    dispatched = await median_s(lambda: dispatcher.request(short, terms))
    seconds = {"direct_p50_ms": direct, "dispatched_p50_ms": dispatched}
    seconds |= {"added_p50_ms": dispatched - direct, "call_ms": pool.call_s}
    return {name: round(value * 1e3, 3) for name, value in seconds.items()}


def _beside_simulated(
    outcome: LoadOutcome, policy: CompiledPolicy, limit: int
) -> dict[str, object]:
    """Return what became of the load, and of the same arrivals simulated."""
    simulated = simulate(outcome.scenario, policy, limit=limit)
    latency_s = simulated.finished_s - outcome.scenario.arrived_s
    both = [0.5, 0.99]
    p50, p99 = np.nanquantile(outcome.latency_s, both) / np.nanquantile(latency_s, both)
    return {
        **outcome.figures(),
        "simulated_in_time": round(simulated.in_time, 5),
        "simulated_p50_ms": quantile_ms(latency_s, 0.5),
        "simulated_p99_ms": quantile_ms(latency_s, 0.99),
        "p50_ratio": round(float(p50), 4),
        "p99_ratio": round(float(p99), 4),
        "sender_lag_ms": outcome.sender_lag_ms(),
    }


async def _overload(
    pool: LivePool, dispatcher: Dispatcher, load: Scenario, most: int
) -> dict[str, object]:
    """Three times the allowable rate, then 0.8 of it: how soon are requests in time again?"""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await pool.load(dispatcher, load)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rush, calm = load.arrived_s[:most], load.arrived_s[most:] - load.arrived_s[most - 1]
    good = outcome.in_time
    goodput, again = float(good[:most].sum() / rush[-1]), good[most:]
    by_second = [again[(calm >= s) & (calm < s + 1)].mean() for s in range(8)]
    return {
        "offered_rps": rate_of(rush),
        "goodput_rps": round(goodput, 2),
        "of_allowable": round(3 * goodput / rate_of(rush), 4),
        "in_time_from_5_s_on": round(float(again[calm >= _RECOVERY_S].mean()), 4),
        "in_time_by_second": [round(float(share), 3) for share in by_second],
        "errors": dict(outcome.errors),
        "memory_grew_mb": round((after - before) / 1024, 1),
    }


async def _killing(pool: LivePool, dispatcher: Dispatcher, load: Scenario) -> dict[str, object]:
    """Two workers die in the middle of a request; the others carry the load."""

    async def kill() -> None:
        for instance in (pool.instances[-1], pool.instances[-2]):
            await asyncio.sleep(float(load.arrived_s[-1]) / 3)
            while not pool.busy(instance):
                await asyncio.sleep(0.001)
            instance.process.send_signal(signal.SIGKILL)

    killer = asyncio.create_task(kill())
    outcome = await pool.load(dispatcher, load)
    killer.cancel()  # a worker that never was busy cannot be killed at work
    await asyncio.gather(killer, return_exceptions=True)
    lost = np.isnan(outcome.latency_s).sum() - sum(outcome.errors.values())
    return {
        "killed": sum(each.process.returncode is not None for each in pool.instances),
        **outcome.figures(),
        "without_any_answer": int(lost),
    }
