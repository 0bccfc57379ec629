"""What was stored is shown and set aside, not refused, once tiers were renamed or priced anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.phases import QueryPhase
from circinus.api.schemas.plans import plan_view
from circinus.api.store.records import Replan
from circinus.api.store.store import Store
from circinus.api.text import formats
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.plan import DemandItem, Deployment, Plan
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from tests.api.fakes import FakeDeployer, add_planned, parts, plan, sql_store
from tests.api.loops import loops

RENAMED = Infrastructure(name="lab", tiers=(Tier(name="cluster", price_usd_per_hour=1.0),))
BOTH = Infrastructure(
    name="lab",
    tiers=(Tier(name="cloud"), Tier(name="cluster")),
    links=(Link(between=("cloud", "cluster"), bandwidth_bytes_per_s=1e6),),
)
SLO = Slo(accuracy=0.5, latency_s=1.0)


def on_cluster() -> Plan:
    deployment = Deployment(
        placement={"add": "cluster"}, allocation={"add": 0.5}, replicas={"add": 1}
    )
    return replace(
        plan(),
        configuration=Configuration((("add", "by", 2),)),
        deployment=deployment,
        demand=(DemandItem("cluster", 0.5),),
        tier_service_s={"cluster": 0.2},
    )


def tick(store: Store, clock: ManualClock, now: Infrastructure) -> None:
    asyncio.run(loops(store, FakeDeployer(), clock, infrastructure=now).tick())


@pytest.fixture
def stale(tmp_path: Path) -> Iterator[TestClient]:
    made = Service(replace(parts(tmp_path, {}), infrastructure=RENAMED), FakeDeployer())
    add_planned(made.parts.store, "q-1", plan())
    yield TestClient(application_of(made), base_url="http://127.0.0.1:8350")
    made.parts.store.close()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/queries",
        "/v1/queries/q-1",
        "/v1/queries/q-1/plans",
        f"/v1/plans/{plan().id}",
        "/v1/schedule",
        "/v1/schedule/problem",
        "/v1/queries/q-1/deployment",
        "/v1/objectives",
        "/ui/queries/q-1",
        "/ui/schedule",
        "/metrics",
    ],
)
def test_a_stored_query_is_shown_although_its_tier_is_gone(stale: TestClient, path: str) -> None:
    assert stale.get(path).status_code == 200


def test_a_query_whose_tier_is_gone_waits_with_that_reason_and_stops_no_other(
    store: Store, clock: ManualClock
) -> None:
    add_planned(store, "q-1", plan())
    tick(store, clock, BOTH)
    assert store.query("q-1").phase is QueryPhase.SERVING
    add_planned(store, "q-2", on_cluster())
    tick(store, clock, RENAMED)
    assert store.query("q-1").phase is QueryPhase.WAITING
    rule = "must name tiers of the infrastructure (cluster); replan the query, got 'cloud'"
    assert rule in store.query("q-1").message
    assert store.query("q-2").phase is QueryPhase.SERVING


def test_of_plans_on_a_tier_that_is_gone_and_on_one_that_is_there_the_latter_serves(
    store: Store, clock: ManualClock
) -> None:
    add_planned(store, "q-1", plan(), on_cluster())
    tick(store, clock, BOTH)
    tick(store, clock, RENAMED)
    assert store.query("q-1").phase is QueryPhase.SERVING
    assert [a.plan_id for a in store.schedules.read()[1].schedule.assignments] == [on_cluster().id]


def test_a_tier_that_became_remote_sets_its_plans_aside(store: Store, clock: ManualClock) -> None:
    add_planned(store, "q-1", replace(plan(), deployment=_remote(plan()), demand=()))
    tick(store, clock, BOTH)
    assert "must be remote, as when it was planned" in store.query("q-1").message


def _remote(of: Plan) -> Deployment:
    return replace(of.deployment, allocation={"add": 1.0}, remote=frozenset(of.deployment.tiers))


@pytest.mark.parametrize(("price", "now"), [(2.0, 1.0), (1.0, None)])
def test_a_price_that_changed_is_told_beside_plans_of_the_old_one(
    price: float, now: float | None
) -> None:
    there = Infrastructure(name="lab", tiers=(Tier(name="cloud", price_usd_per_hour=price),))
    view = plan_view(plan(share=0.5), SLO, there)  # half a machine at $1 an hour
    assert (view.cost_usd_per_hour, view.cost_now_usd_per_hour) == (0.5, now)
    assert ("$0.5000/h then, $1.0000/h now" in formats.repriced(view)) == (now is not None)


def test_a_plan_whose_tier_is_gone_has_no_price_of_now() -> None:
    assert plan_view(plan(), SLO, RENAMED).cost_now_usd_per_hour is None


def test_a_plan_that_was_replaced_is_shown_as_superseded(
    stale: TestClient, tmp_path: Path
) -> None:
    store = sql_store(tmp_path)
    assert stale.get(f"/v1/plans/{plan().id}").json()["superseded"] is False
    spec = store.query("q-1").spec
    assert store.replan(Replan(query_id="q-1", spec=spec, why="other", at=2.0))
    assert stale.get(f"/v1/plans/{plan().id}").json()["superseded"] is True
    assert stale.get("/v1/queries/q-1/plans").json()["items"] == []
    store.close()
