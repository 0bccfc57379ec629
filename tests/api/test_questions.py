"""Explanations and what-ifs over HTTP, from what a planning worker measured."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fastapi.testclient import TestClient

from circinus.api.control.planning_worker import plan_next
from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.store.records import NewQuery
from circinus.api.use_cases.changes import changed
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.ranges import LATENCY_S, MACHINES
from tests.api.fakes import SPEC, FakeDeployer, parts, planning_parts


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    made = parts(tmp_path, {})
    made.store.submit(NewQuery(id="q-1", spec=SPEC, fingerprint="", idempotency_key=None, at=0.0))
    planning = planning_parts(tmp_path)
    assert plan_next(planning, "w")
    yield TestClient(application_of(Service(made, FakeDeployer())), base_url="http://127.0.0.1")
    planning.store.close()
    made.store.close()


@pytest.mark.parametrize("text", ["x", "2y", "+2x", "--1", "", "nan", "1e999", "0,5"])
def test_a_change_that_is_none_is_refused(text: str) -> None:
    if not text:
        assert changed("latency", 2.0, text, LATENCY_S) == 2.0
        return
    with pytest.raises(InvalidInput, match=r"latency must be like 0\.8x"):
        changed("latency", 2.0, text, LATENCY_S)


def test_a_change_is_a_factor_an_amount_or_a_value() -> None:
    assert [changed("a", 2.0, text, MACHINES) for text in ("0.5x", "+1", "-2", "5", "1e1")] == [
        1.0, 3.0, 0.0, 5.0, 10.0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        ({"latency": "fast"}, "latency", "must be like 0.8x, +2, -2 or 5"),
        ({"latency": "0x"}, "latency", "must be from 1e-06 to 1000000"),
        ({"accuracy": "2"}, "accuracy", "must be from 0 to 1"),
        ({"cost": "2x"}, "cost", "must be a value"),
        ({"price": {"moon": "2x"}}, "price", "must name a tier (cloud)"),
        ({"machines": {"cloud": "-2"}}, "machines.cloud", "must be from 0 to 100000"),
        ({"machines": {"cloud": "1e6"}}, "machines.cloud", "must be from 0 to 100000"),
        ({"price": {"cloud": "1e99"}}, "price.cloud", "must be from 0 to 1000000"),
        ({"speed": {"cloud": "0"}}, "speed.cloud", "must be from 1e-06 to 1000000"),
        ({"machines": {"cloud": "0.3x"}}, "machines.cloud", "must leave a whole number"),
        ({"bandwidth": {"a-b": "2x"}}, "bandwidth", "must name a link (there is none)"),
        ({"rate": "fast"}, "rate", "must be LOW:HIGH, such as 0.1:50"),
        ({"rate": "2:1"}, "rate", "must be LOW:HIGH with LOW < HIGH"),
        ({"rate": "0:1"}, "rate", "must be from 1e-06 to 1000000"),
        ({"colour": "2x"}, "colour", "must be one of the known fields"),
        ({"latency": 3}, "latency", "must be text"),
    ],
)
def test_circumstances_that_cannot_be_are_refused(
    client: TestClient, body: dict[str, object], field: str, rule: str
) -> None:
    response = client.post("/v1/queries/q-1:whatif", json=body)
    assert response.status_code == 422, response.text
    [error] = response.json()["errors"]
    assert error["field"] == field
    assert rule in error["rule"]


def test_explanations_leave_no_descriptors_behind(client: TestClient) -> None:
    path = f"/v1/plans/{client.get('/v1/queries/q-1/plans').json()['items'][0]['id']}/explanation"
    own = psutil.Process()
    assert client.get(path).status_code == 200
    before = own.num_fds()
    gc.disable()  # nothing is left to the collector, either
    try:
        for _ in range(60):
            assert client.get(path).status_code == 200
        assert own.num_fds() <= before
    finally:
        gc.enable()


@pytest.mark.parametrize("path", ["/v1/plans/p-0/explanation"])
def test_what_does_not_exist_is_not_explained(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404
    assert client.post("/v1/queries/q-9:whatif", json={}).status_code == 404


def test_no_change_gives_the_plans_that_were_found(client: TestClient) -> None:
    plans = client.get("/v1/queries/q-1/plans").json()["items"]
    found = client.post("/v1/queries/q-1:whatif", json={}).json()
    assert found["before"] == found["after"]
    assert [plan["configuration"] for plan in found["after"]] == [
        plan["configuration"] for plan in plans
    ]


def test_without_calls_machines_are_the_only_way_at_any_rate(client: TestClient) -> None:
    found = client.post("/v1/queries/q-1:whatif", json={"rate": "0.1:2"}).json()["break_even"]
    assert found["words"] == "from 0.1 to 2 requests/s only plans on machines would do"
    assert (found["calling"], found["rate"], found["for_good"]) == (None, 0.1, 0.1)
    assert client.post("/v1/queries/q-1:whatif", json={}).json()["break_even"] is None


def test_dearer_machines_make_the_plan_dearer(client: TestClient) -> None:
    found = client.post("/v1/queries/q-1:whatif", json={"price": {"cloud": "2x"}}).json()
    before, after = (found[when][0]["cost_usd_per_hour"] for when in ("before", "after"))
    assert after == pytest.approx(2 * before)
    assert "/h to $" in found["words"]


def test_a_latency_that_nothing_keeps_has_a_shortfall(client: TestClient) -> None:
    found = client.post("/v1/queries/q-1:whatif", json={"latency": "1e-6"}).json()
    assert found["after"] == []
    assert found["shortfall"]["binding"] == ["latency"]
    assert found["words"] == "infeasible: no measured plan would do"


def test_a_plan_is_explained(client: TestClient) -> None:
    [plan, *_] = client.get("/v1/queries/q-1/plans").json()["items"]
    told = client.get(f"/v1/plans/{plan['id']}/explanation").json()
    assert told["plan"]["id"] == plan["id"]
    [part] = told["operators"]
    assert part["operator"] == "add"
    assert part["knobs"] == {"by": 1}
    assert part["cost_usd_per_hour"] == pytest.approx(plan["cost_usd_per_hour"])
    assert told["alternatives"] == []  # there is one tier
    assert {each["by"]: each["configurations"] for each in told["ruled_out"]} == {"accuracy": 1}
