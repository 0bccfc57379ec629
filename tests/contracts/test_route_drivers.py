"""Worker processes, objects of a cluster and the simulation do what one controller says.

The cheap unit of two is lost, comes back and settles. Each driver observes that in its own way;
all come to the traffic that the controller decides for the same trace of observations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from circinus.deploy.routes.probing import ProbeSettings
from circinus.deploy.routes.routed import RoutedEndpoint, RouteStatus
from circinus.deploy.routes.workloads import UnitWorkload
from circinus.deploy.runtime.deployment import DeploymentPhase, DeploymentStatus
from circinus.deploy.runtime.instances import DesiredDeployment, InstanceSpec
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.supervisor import InstanceStatus
from circinus.pipelines.clock import ManualClock
from circinus.scheduler.routing.controller import (
    RequestSharing,
    RouteController,
    RouteObservation,
    UnitObservation,
)
from circinus.scheduler.routing.regimes import Regime, RegimeSettings
from circinus.scheduler.routing.routers import RegimeRouter
from circinus.scheduler.routing.series import RouteRecorder
from circinus.scheduler.routing.simulated import CapacityChange, RouteScenario, simulated
from circinus.scheduler.routing.traffic import RouteTraffic
from tests.deploy.kubernetes.routes_in_a_cluster import cluster_route
from tests.deploy.kubernetes.test_route_follower import (
    ALL_RUN,
    CHEAP_IS_LOST,
    DEPLOYMENTS,
    KeepingCluster,
    follower,
)
from tests.deploy.routed_pipelines import doubled

ROUTE = cluster_route().route  # 150 requests/s; two of either unit, `cheap` or `dear`, take 200
SETTINGS = RegimeSettings(settle_s=30.0)
# when, how many of the cheap unit can be had
TRACE: tuple[tuple[float, int | None], ...] = (
    (0.0, None),
    (100.0, 0),
    (200.0, None),
    (230.0, None),
)

Shown = tuple[Regime, str, dict[str, int], dict[str, float]]


def shown(traffic: RouteTraffic) -> Shown:
    """Return traffic without the units that are not wanted."""
    numbers = {name: count for name, count in traffic.numbers.items() if count}
    return traffic.regime, traffic.why, numbers, dict(traffic.weights)


def by_controller() -> list[Shown]:
    controller = RouteController(
        router=RegimeRouter(route=ROUTE, settings=SETTINGS), sharing=RequestSharing.TURNS
    )
    steps = []
    for at_s, available in TRACE:
        ready = 2 if available is None else available
        cheap = UnitObservation(ready=ready, available=available)
        units = {"cheap": cheap, "dear": UnitObservation(ready=2, available=None)}
        observation = RouteObservation(at_s=at_s, demand_per_s=150.0, units=units)
        steps.append(shown(controller.step(observation).traffic))
    return steps


def by_cluster() -> list[Shown]:
    clock, steps = ManualClock(), []
    here = follower(KeepingCluster(), clock, cluster_route(regimes=SETTINGS))
    here.ingest("deployments", DEPLOYMENTS)
    for at_s, available in TRACE:
        clock.sleep(at_s - clock.now())
        here.ingest("pods", ALL_RUN if available is None else CHEAP_IS_LOST)
        steps.append(shown(here.step()[0].traffic))
    return steps


@dataclass
class Workers:
    """As many workers as are wanted, all of which run or ended."""

    is_lost: bool = False
    desired: Mapping[str, DesiredDeployment] = field(default_factory=dict)

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        self.desired = desired

    def status(self, query_id: str) -> DeploymentStatus:
        count = len(self.desired[query_id].pool or ())
        ended = "killed" if self.is_lost else None
        spec = cast("InstanceSpec", None)  # nobody reads it
        worker = InstanceStatus(spec=spec, up=not self.is_lost, ended=ended)
        instances = (worker,) * count
        return DeploymentStatus(phase=DeploymentPhase.SERVING, plan_id="p", instances=instances)

    async def close(self) -> None:
        self.desired = {}


async def processes_on_trace() -> list[Shown]:
    clock, workers, steps = ManualClock(), dict[str, Workers](), list[Shown]()

    def start(of: UnitWorkload) -> Orchestrator:
        workers[of.unit.name] = Workers()
        return cast("Orchestrator", workers[of.unit.name])

    knobs = {"double": {"hardware": "quick"}}
    endpoint = RoutedEndpoint(
        route=ROUTE,
        workloads=[
            UnitWorkload(unit=unit, pipeline_reference="doubled", knobs=knobs)
            for unit in ROUTE.units
        ],
        pipeline=doubled,
        start=start,
        clock=clock,
        settings=SETTINGS,
        probes=ProbeSettings(probes=0),
    )
    for at_s, available in TRACE:
        clock.sleep(at_s - clock.now())
        workers["cheap"].is_lost = available == 0
        endpoint.change(ROUTE, SETTINGS, endpoint.method)  # it looks
        await asyncio.sleep(0)  # what it asked of its workers is done
        steps.append(_of_status(endpoint.status()))
    await endpoint.close()
    return steps


def _of_status(status: RouteStatus) -> Shown:
    numbers = {unit.name: unit.wanted for unit in status.units if unit.wanted}
    weights = {unit.name: unit.traffic_weight for unit in status.units if unit.traffic_weight}
    return status.state.regime, status.state.why, numbers, weights


@dataclass(slots=True, kw_only=True)
class Decisions(RouteRecorder):
    """Notes all that a router wants."""

    decisions: list[tuple[float, RouteTraffic]] = field(default_factory=list)

    def decided(self, at_s: float, traffic: RouteTraffic) -> None:
        self.decisions.append((at_s, traffic))


def by_simulation() -> list[Shown]:
    changes = [
        CapacityChange(at_s=at_s, unit="cheap", available=available)
        for at_s, available in TRACE[1:3]
    ]
    scenario = RouteScenario(
        name="lost", route=ROUTE, low=1.0, cycle_s=240.0, cycles=1, changes=changes
    )
    seen = Decisions(units=("cheap", "dear"), bucket_s=240.0, lasts_s=480.0, late_s=1.0)
    router = RegimeRouter(route=ROUTE, settings=SETTINGS)
    simulated(scenario, router, np.random.default_rng(0), seen)
    last = {at_s: traffic for at_s, traffic in seen.decisions if at_s in dict(TRACE)}
    return [shown(traffic) for traffic in last.values()]


def test_what_is_lost_is_replaced_and_comes_back_when_it_has_settled() -> None:
    lost = "cannot be had: cheap (0 of 2)"
    assert by_controller() == [
        (Regime.COST, "as it starts", {"cheap": 2}, {"cheap": 1.0}),
        (Regime.CAPACITY, lost, {"dear": 2}, {"dear": 1.0}),
        (Regime.CAPACITY, lost, {"cheap": 1, "dear": 1}, {"cheap": 0.5, "dear": 0.5}),
        (
            Regime.COST,
            "all that is wanted could be had for 30 s",
            {"cheap": 2},
            {"cheap": 1.0},
        ),
    ]


def test_the_cluster_does_what_the_controller_says() -> None:
    assert by_cluster() == by_controller()


def test_worker_processes_do_what_the_controller_says() -> None:
    assert asyncio.run(processes_on_trace()) == by_controller()


def test_the_simulation_does_what_the_controller_says() -> None:
    assert by_simulation() == by_controller()
