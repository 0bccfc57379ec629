"""An endpoint over unlike units, run by worker processes that are killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from math import cos, pi
from pathlib import Path

import numpy as np
import psutil
import pytest

from circinus.deploy.routes.probing import ProbeSettings
from circinus.deploy.routes.routed import RoutedEndpoint
from circinus.deploy.routes.workloads import UnitWorkload
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.workers.errors import DeadlineExceeded
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.scheduler.dispatch.matching import MinCostMatching
from circinus.scheduler.routing.regimes import Regime, RegimeSettings
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute
from tests.deploy.routed_pipelines import doubled
from tests.deploy.serving import launcher, pipeline_of, within

REFERENCE = "tests.deploy.routed_pipelines:doubled"
NO_PROBES = ProbeSettings(probes=0)
PATIENCE_S = 60.0


def workload(hardware: str, price: float = 1.0, **figures: float | None) -> UnitWorkload:
    told: dict[str, object] = {"most_per_s": 20.0, "latency_s": 0.2, **figures}
    unit = DeploymentUnit(
        name=hardware,
        model="double",
        hardware=hardware,
        framework="python",
        price_usd_per_hour=price,
        **told,  # type: ignore[arg-type]  # figures are numbers
    )
    knobs = {"double": {"hardware": hardware}}
    return UnitWorkload(unit=unit, pipeline_reference=REFERENCE, knobs=knobs)


@asynccontextmanager
async def routed(
    logs: Path,
    *workloads: UnitWorkload,
    demand_per_s: float = 10.0,
    probes: ProbeSettings = NO_PROBES,
    settle_s: float = 1.0,
) -> AsyncIterator[RoutedEndpoint]:
    """A route that is served; on the way out nothing of it may be left."""

    def start(of: UnitWorkload) -> Orchestrator:
        policy = MinCostMatching()
        parts = (of.infrastructure, starts, pipeline_of, policy, SystemClock())
        return Orchestrator(*parts, queue_limit=1000)

    starts = launcher(logs)
    endpoint = RoutedEndpoint(
        route=EndpointRoute(
            name="doubling",
            demand_per_s=demand_per_s,
            latency_s=0.5,
            units=tuple(each.unit for each in workloads),
        ),
        workloads=workloads,
        pipeline=doubled,
        start=start,
        clock=SystemClock(),
        settings=RegimeSettings(settle_s=settle_s),
        probes=probes,
    )
    endpoint.open()
    try:
        yield endpoint
    finally:
        await endpoint.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.05)


def processes(unit: str) -> list[psutil.Process]:
    """The worker processes of a unit, also those that do not serve yet."""
    found = psutil.Process().children(recursive=True)
    with_lines = [(each, _line_of(each)) for each in found]
    return [p for p, line in with_lines if "deploy.workers.server" in line and f'"{unit}"' in line]


def _line_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


async def watch(endpoint: RoutedEndpoint, regimes: list[tuple[float, str]]) -> None:
    """Note each regime, and when it was seen first."""
    clock = asyncio.get_running_loop().time
    began = clock()
    while True:
        regime = endpoint.status().state.regime.value
        if not regimes or regimes[-1][1] != regime:
            regimes.append((round(clock() - began, 1), regime))
        await asyncio.sleep(0.05)


def running(endpoint: RoutedEndpoint) -> dict[str, int]:
    return {unit.name: unit.running for unit in endpoint.status().units}


def run(scene: Awaitable[None]) -> None:
    async def told() -> None:
        await scene

    asyncio.run(told())


def test_knobs_that_the_pipeline_has_not_are_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        wrong = replace(workload("quick"), knobs={"double": {"hardware": "none"}})
        with pytest.raises(InvalidInput, match=r"double\.hardware must be one of"):
            async with routed(tmp_path, wrong):
                pass

    run(scene())


def test_an_operator_s_error_is_the_client_s_and_no_reason_to_try_other_units(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with routed(tmp_path, workload("broken"), workload("quick", 5.0)) as endpoint:
            with pytest.raises(OperatorFailed, match="no such device"):
                await endpoint.request(3, within(PATIENCE_S))
            assert [unit.sent for unit in endpoint.status().units] == [1, 0]

    run(scene())


def test_a_request_waits_for_the_first_worker_as_long_as_its_client_does(tmp_path: Path) -> None:
    async def scene() -> None:
        async with routed(tmp_path, workload("quick")) as endpoint:
            with pytest.raises(DeadlineExceeded, match="no unit ran"):
                await endpoint.request(3, within(0.05))
            name, result = await endpoint.request(3, within(PATIENCE_S))
            assert (name, result.output) == ("quick", 6)

    run(scene())


def test_a_unit_whose_outputs_do_not_agree_takes_no_traffic_and_the_others_are_told_apart(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        units = (workload("slow", 2.0), workload("faulty", 0.1), workload("broken", 0.1))
        async with routed(tmp_path, *units, probes=ProbeSettings(probes=8)) as endpoint:
            await until(lambda: all(unit.proof is not None for unit in endpoint.status().units))
            for value in range(20):
                assert (await endpoint.request(value, within(PATIENCE_S)))[0] == "slow"
            slow, faulty, broken = endpoint.status().units
            assert (slow.why, faulty.part, broken.part) == ("", 0.0, 0.0)
            assert faulty.why == ("outputs do not agree: score 0.500, that of slow is 1.000")
            assert "a probe failed" in broken.why
            assert "no such device" in broken.why
            # it is no lack of capacity: cost mode is over the units that do agree
            assert endpoint.status().state.regime is Regime.COST
            await until(lambda: running(endpoint) == {"slow": 1, "faulty": 0, "broken": 0})

    run(scene())


def test_another_demand_or_fewer_to_be_had_change_numbers_and_lose_nothing(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        cheap, dear = workload("quick", 1.0), workload("slow", 5.0)
        async with routed(tmp_path, cheap, dear) as endpoint:
            await until(lambda: running(endpoint) == {"quick": 1, "slow": 0})
            rest = (endpoint.settings, endpoint.method)
            endpoint.change(replace(endpoint.route, demand_per_s=30.0), *rest)
            await until(lambda: running(endpoint) == {"quick": 2, "slow": 0})

            fewer = (replace(cheap.unit, available=1), dear.unit)
            endpoint.change(replace(endpoint.route, demand_per_s=30.0, units=fewer), *rest)
            await until(lambda: running(endpoint) == {"quick": 1, "slow": 2})
            status = endpoint.status()
            assert status.state.regime is Regime.CAPACITY
            assert status.state.why == "cannot be had: quick (1 of 2)"
            assert [unit.part for unit in status.units] == pytest.approx([1 / 3, 2 / 3])

    run(scene())


@dataclass
class CosineLoad:
    """Requests that come at a rate between `low_per_s` and `high_per_s`, whatever is answered."""

    endpoint: RoutedEndpoint
    low_per_s: float
    high_per_s: float
    cycle_s: float
    taken: list[tuple[float, float, bool]] = field(default_factory=list)  # when, seconds, answered
    began: float = 0.0

    async def run(self, lasts_s: float) -> None:
        clock = asyncio.get_running_loop().time
        self.began = clock()
        async with asyncio.TaskGroup() as group:
            at_s = 0.0
            while at_s < lasts_s:
                group.create_task(self._send(at_s))
                wave = (1 - cos(2 * pi * at_s / self.cycle_s)) / 2
                at_s += 1 / (self.low_per_s + (self.high_per_s - self.low_per_s) * wave)
                await asyncio.sleep(max(self.began + at_s - clock(), 0.0))

    async def _send(self, at_s: float) -> None:
        clock, answered = asyncio.get_running_loop().time, True
        try:
            await self.endpoint.request(1, within(20.0))
        except Exception:  # noqa: BLE001 - any answer but the right one is none
            answered = False
        self.taken.append((at_s, clock() - self.began - at_s, answered))

    def within(self, seconds: float, since_s: float, until_s: float) -> float:
        """The part of the requests of a span that were answered in time."""
        span = [(took, ok) for at_s, took, ok in self.taken if since_s <= at_s < until_s]
        return float(np.mean([ok and took <= seconds for took, ok in span]))


@pytest.mark.slow
def test_killing_all_workers_of_the_cheap_unit_costs_a_cosine_load_no_more_than_5_s(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        cheap, dear = workload("quick", 1.0), workload("slow", 3.0)
        async with routed(tmp_path, cheap, dear, demand_per_s=28.0, settle_s=3.0) as endpoint:
            await until(lambda: running(endpoint) == {"quick": 2, "slow": 0})
            load, killed_s, gone_s, ends_s = CosineLoad(endpoint, 8.0, 28.0, 20.0), 8.0, 14.0, 50.0

            async def killer() -> None:
                """There is none of the cheap unit for a while: whatever starts is killed."""
                await asyncio.sleep(killed_s)
                ends = asyncio.get_running_loop().time() + gone_s
                while asyncio.get_running_loop().time() < ends:
                    for process in processes("quick"):
                        with suppress(psutil.NoSuchProcess):
                            process.kill()
                    await asyncio.sleep(0.02)

            killing = asyncio.create_task(killer())
            regimes: list[tuple[float, str]] = []
            watching = asyncio.create_task(watch(endpoint, regimes))
            await load.run(ends_s)
            await killing
            await until(lambda: endpoint.status().state.regime is Regime.COST)
            watching.cancel()

            good = load.within(endpoint.route.latency_s, killed_s + 5.0, ends_s)
            lost = sum(not ok for _, _, ok in load.taken)
            during = load.within(endpoint.route.latency_s, killed_s, killed_s + 5.0)
            before = load.within(endpoint.route.latency_s, 0.0, killed_s)
            told = f"{len(load.taken)} requests, {lost} lost, regimes {regimes}, in time: "
            worst_s = max(took for _, took, _ in load.taken)
            told += f"before {before:.1%}, first 5 s {during:.1%}, after {good:.1%}, "
            told += f"longest {worst_s:.1f} s"
            print(f"\n{told}")  # noqa: T201 - shown by `pytest -s`
            assert lost == 0
            assert good >= 0.99

    run(scene())
