from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive

from circinus.api.http.data_plane import while_connected
from circinus.api.http.errors import ClientGone
from circinus.api.http.metrics import exposition
from circinus.deploy.routes.routed import RouteStatus
from circinus.deploy.routes.units import UnitStatus
from circinus.deploy.runtime.report import DeploymentReport, QueueFigures, SpanCounts, bucket_of
from circinus.pipelines.model.endpoints import Usage
from circinus.scheduler.routing.regimes import Regime, RegimeState

FIGURES = QueueFigures(
    waiting=2,
    busy=("a", "b"),
    idle=1,
    answered=10,
    late=3,
    late_s=0.5,
    late_max_s=0.25,
    turned_away=4,
    lost=1,
    waited_s=1.5,
    predicted_s=2.5,
    observed_s=2.0,
    drifts=6,
    observed_over_predicted=0.8,
    endpoints=Usage(calls=8, input_tokens=50, cached_tokens=9, output_tokens=20, usd=0.5),
)


def test_without_deployments_the_metrics_are_named_without_values() -> None:
    families = list(text_string_to_metric_families(exposition({}).decode()))
    assert "circinus_dispatch_waiting" in {family.name for family in families}
    assert not any(family.samples for family in families)


def test_units_of_routes_are_told_with_the_mode_of_each() -> None:
    unit = UnitStatus(
        name="gpu",
        traffic_weight=1.0,
        part=0.5,
        wanted=3,
        running=2,
        available=2,
        why="",
        proof=None,
        sent=7,
    )
    state = RegimeState(regime=Regime.CAPACITY)
    routes = {"r": RouteStatus(state=state, for_s=1.0, units=[unit], spans=())}
    samples = {
        sample.name: (sample.labels, sample.value)
        for family in text_string_to_metric_families(exposition({}, routes).decode())
        for sample in family.samples
    }
    of_unit = {"route": "r", "unit": "gpu"}
    assert samples == {
        "circinus_route_capacity_mode": ({"route": "r"}, 1.0),
        "circinus_route_wanted": (of_unit, 3.0),
        "circinus_route_running": (of_unit, 2.0),
        "circinus_route_traffic_part": (of_unit, 0.5),
        "circinus_route_requests_total": (of_unit, 7.0),
    }


def test_every_figure_is_told_per_query_and_tier() -> None:
    queues = {"edge": FIGURES, "cloud": replace(FIGURES, waiting=7)}
    reports = {
        "q-1": DeploymentReport(plan_id="p", queues=queues, spans=()),
        "q-2": DeploymentReport(plan_id="p", spans=()),
    }
    samples = {
        (sample.name, sample.labels["query"], sample.labels["tier"]): sample.value
        for family in text_string_to_metric_families(exposition(reports).decode())
        for sample in family.samples
    }
    told = {name: value for (name, _, tier), value in samples.items() if tier == "edge"}
    assert told == {
        f"circinus_dispatch_{name}": value
        for name, value in {
            "waiting": 2,
            "idle_instances": 1,
            "busy_instances": 2,
            "lateness_max_seconds": 0.25,
            "answered_total": 10,
            "late_total": 3,
            "lateness_seconds_total": 0.5,
            "turned_away_total": 4,
            "lost_total": 1,
            "waiting_seconds_total": 1.5,
            "predicted_seconds_total": 2.5,
            "observed_seconds_total": 2.0,
            "drifts_total": 6,
            "endpoint_calls_total": 8,
            "endpoint_input_tokens_total": 50,
            "endpoint_cached_tokens_total": 9,
            "endpoint_output_tokens_total": 20,
            "endpoint_dollars_total": 0.5,
        }.items()
    }
    assert samples["circinus_dispatch_waiting", "q-1", "cloud"] == 7


def connection(closed: asyncio.Event) -> Receive:
    async def receive() -> dict[str, str]:
        await closed.wait()
        return {"type": "http.disconnect"}

    return receive


def test_work_is_cancelled_when_its_client_goes_away() -> None:
    async def scenario() -> None:
        closed, cancelled = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        request = asyncio.create_task(while_connected(connection(closed), work()))
        await asyncio.sleep(0)
        closed.set()
        with pytest.raises(ClientGone):
            await request
        assert cancelled.is_set()

    asyncio.run(scenario())


def test_work_of_a_client_that_stays_gives_its_answer_or_its_error() -> None:
    async def scenario() -> None:
        async def good() -> int:
            return 3

        async def bad() -> int:
            raise ValueError("odd")

        assert await while_connected(connection(asyncio.Event()), good()) == 3
        with pytest.raises(ValueError, match="odd"):
            await while_connected(connection(asyncio.Event()), bad())

    asyncio.run(scenario())


def test_what_requests_got_lately_is_told_per_span_where_there_is_something() -> None:
    nothing = SpanCounts(span_s=60.0, covered_s=60.0)
    buckets = {bucket_of(0.2): 8}
    some = SpanCounts(span_s=600.0, covered_s=600.0, buckets=buckets, in_time=7, turned_away=2)
    told = exposition({"q-1": DeploymentReport(plan_id="p", spans=(nothing, some))}).decode()
    samples = {
        (sample.name, sample.labels["span_seconds"]): sample.value
        for family in text_string_to_metric_families(told)
        for sample in family.samples
    }
    assert samples["circinus_lately_in_time", "600"] == 7
    assert samples["circinus_lately_p95_seconds", "600"] == pytest.approx(0.2, rel=0.02)
    assert samples["circinus_lately_requests", "60"] == 0
    assert ("circinus_lately_p95_seconds", "60") not in samples
