"""A method over HTTP: chosen when a query comes in, kept with it, told to whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.planning_worker import plan_next
from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.phases import QueryPhase
from circinus.api.store.engine import connect
from circinus.api.store.history import open_history
from circinus.api.store.journal import measurement_counts
from circinus.api.store.records import NewQuery, Replan
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.methods import DEFAULT, PUBLISHED, parts_of
from circinus.pipelines.model.query import PlanningMethod
from tests.api.fakes import SPEC, FakeDeployer, parts, planning_parts

DRAWN = {"strategy": "random", "stopping": "t_test", "sampling": "stratified"}
UNNAMED = {"method": None, **DRAWN}
BY_DEFAULT = {"stopping": None, **parts_of(DEFAULT.planning)}
AS_PUBLISHED = parts_of(PUBLISHED.planning)


class World:
    """Services on one database, one after the other, and a planning worker beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.planning: ServiceParts = planning_parts(folder)
        self.services: list[Service] = []

    def serve(self, **settings: object) -> TestClient:
        """Start a service with other settings than the one before."""
        service = Service(parts(self.folder, settings), FakeDeployer())
        self.services.append(service)
        return TestClient(application_of(service), base_url="http://127.0.0.1")

    def keep(self, query_id: str, **more: object) -> None:
        """Store a query as a service did before there was a choice."""
        old = NewQuery(
            id=query_id, spec={**SPEC, **more}, fingerprint="", idempotency_key=None, at=0.0
        )
        self.planning.store.submit(old)

    def planned_by(self) -> PlanningMethod:
        """Plan the one query there is, and give how that was done."""
        assert plan_next(self.planning, "w")
        [summary] = open_history(self.planning.settings.database_url).summaries()
        return summary.planning

    def measurements(self, query_id: str) -> tuple[int, int]:
        return measurement_counts(connect(self.planning.settings.database_url), query_id)

    def close(self) -> None:
        for service in self.services:
            service.parts.store.close()
        self.planning.store.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def submitted(client: TestClient, **more: object) -> dict[str, Any]:
    answer = client.post("/v1/queries", json={**SPEC, **more})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_part_that_does_not_fit_the_method_of_the_service_is_refused(world: World) -> None:
    client = world.serve(method="published")
    body = {**SPEC, "planning": {"stopping": "betting"}}
    answer = client.post("/v1/queries", json=body)
    assert answer.status_code == 422, answer.text
    [violation] = answer.json()["errors"]
    assert (violation["field"], violation["value"]) == ("planning.sampling", "'stratified'")
    assert client.get("/v1/queries").json()["items"] == []
    assert submitted(world.serve(), planning={"strategy": "random", "stopping": "betting"})


@pytest.mark.parametrize("policy", ["scheduling", "dispatch", "scheduling_policy"])
def test_a_body_chooses_no_policy_of_the_service(world: World, policy: str) -> None:
    answer = world.serve().post("/v1/queries", json={**SPEC, "planning": {policy: "fcfs"}})
    assert answer.status_code == 422, answer.text
    [violation] = answer.json()["errors"]
    assert violation["field"] == f"planning.{policy}"
    assert "(method, strategy, stopping, sampling)" in violation["rule"]


@pytest.mark.parametrize(
    ("settings", "planning", "told"),
    [
        ({}, None, BY_DEFAULT),
        ({}, {"method": "published"}, AS_PUBLISHED),
        ({}, DRAWN, UNNAMED),
        ({"method": "published"}, None, AS_PUBLISHED),
        ({"method": "published"}, {"method": "default"}, BY_DEFAULT),
        ({"method": "published"}, {"strategy": "random"}, UNNAMED),
    ],
)
def test_a_query_is_stored_with_how_it_is_planned_and_tells_it(
    world: World,
    settings: dict[str, str],
    planning: dict[str, str] | None,
    told: dict[str, str | None],
) -> None:
    client = world.serve(**settings)
    found = submitted(client, **({} if planning is None else {"planning": planning}))
    assert found["planning"] == told
    assert client.get(f"/v1/queries/{found['id']}").json()["planning"] == told
    [listed] = client.get("/v1/queries").json()["items"]
    assert listed["planning"] == told
    stored = world.planning.store.query(found["id"]).spec["planning"]
    assert stored == {part: name for part, name in told.items() if name is not None}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [("default", "published", BY_DEFAULT), ("published", "default", AS_PUBLISHED)],
)
def test_a_restart_with_another_method_changes_no_query(
    world: World, before: str, after: str, told: dict[str, str | None]
) -> None:
    query_id = submitted(world.serve(method=before))["id"]
    client = world.serve(method=after)
    assert client.get(f"/v1/queries/{query_id}").json()["planning"] == told


def test_a_key_gives_the_same_query_after_a_restart_with_another_method(world: World) -> None:
    headers = {"Idempotency-Key": "mine"}
    first = world.serve().post("/v1/queries", json=SPEC, headers=headers).json()
    again = world.serve(method="published").post("/v1/queries", json=SPEC, headers=headers)
    assert again.status_code == 202, again.text
    assert (again.json()["id"], again.json()["planning"]) == (first["id"], BY_DEFAULT)
    other = world.serve().post(
        "/v1/queries", json={**SPEC, "planning": {"method": "published"}}, headers=headers
    )
    assert other.status_code == 409


def test_a_planning_worker_in_another_environment_plans_as_the_query_was_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CIRCINUS_METHOD", "published")
    submitted(world.serve(method="default"), planning=DRAWN)
    assert world.planned_by() == PlanningMethod(**DRAWN)


def test_a_query_from_before_there_was_a_choice_is_planned_by_default(world: World) -> None:
    world.keep("q-1")
    client = world.serve(method="published")
    assert client.get("/v1/queries/q-1").json()["planning"] == BY_DEFAULT
    assert world.planned_by() == DEFAULT.planning


def test_a_query_that_is_planned_anew_is_planned_as_before_and_pays_for_nothing_twice(
    world: World,
) -> None:
    query_id = submitted(world.serve(), planning=DRAWN)["id"]
    assert plan_next(world.planning, "w")
    before = world.measurements(query_id)
    client = world.serve(method="published")
    answer = client.post(f"/v1/queries/{query_id}:replan", json={"latency": "1e-6"})
    assert answer.json()["planning"] == UNNAMED
    assert world.planned_by() == PlanningMethod(**DRAWN)
    record = world.planning.store.query(query_id)
    assert record.phase is QueryPhase.INFEASIBLE, record.message
    assert world.measurements(query_id) == before


def test_measurements_hold_in_any_order_of_inputs(world: World) -> None:
    world.keep("q-1")
    client = world.serve()
    assert plan_next(world.planning, "w")
    drawn = {**world.planning.store.query("q-1").spec, "planning": DRAWN}
    replan = Replan(query_id="q-1", spec=drawn, why="to see", at=1.0)
    assert world.planning.store.replan(replan)
    assert plan_next(world.planning, "w")
    record = world.planning.store.query("q-1")
    assert record.phase is QueryPhase.WAITING, record.message
    assert world.measurements("q-1")[1] == 0
    [plan, *_] = world.planning.store.plans("q-1")
    assert client.get(f"/v1/plans/{plan.id}/explanation").json()["planning"] == UNNAMED


def test_an_explanation_tells_how_its_query_was_planned(world: World) -> None:
    client = world.serve()
    query_id = submitted(client, planning=DRAWN)["id"]
    assert plan_next(world.planning, "w")
    [plan, *_] = client.get(f"/v1/queries/{query_id}/plans").json()["items"]
    told = client.get(f"/v1/plans/{plan['id']}/explanation").json()
    assert told["planning"] == UNNAMED
    what_if = client.post(f"/v1/queries/{query_id}:whatif", json={}).json()
    assert [found["id"] for found in what_if["after"]] == [plan["id"]]


@pytest.mark.parametrize(
    ("settings", "name", "planning", "scheduling", "dispatch"),
    [
        ({}, "default", BY_DEFAULT, "priced", "plan_ahead"),
        ({"method": "published"}, "published", AS_PUBLISHED, "greedy", "kairos"),
        (
            {"method": "published", "dispatch_policy": "drs"},
            "published",
            AS_PUBLISHED,
            "greedy",
            "drs",
        ),
    ],
)
def test_a_service_tells_its_method_with_the_policies_in_force(
    world: World,
    settings: dict[str, str],
    name: str,
    planning: dict[str, str | None],
    scheduling: str,
    dispatch: str,
) -> None:
    assert world.serve(**settings).get("/v1/method").json() == {
        "name": name,
        "planning": {"stopping": None, **planning},
        "scheduling": scheduling,
        "dispatch": dispatch,
    }
