"""A query's whole life over HTTP, against a real service process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from circinus.deploy.methods import PUBLISHED, parts_of
from tests.e2e.service_process import ServiceProcess, query


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("service")
    service = ServiceProcess(folder)
    service.start()
    yield service
    assert service.stop() == 0


def test_a_query_is_planned_deployed_served_and_retired(service: ServiceProcess) -> None:
    accepted = service.ask("POST", "/v1/queries", json=query())
    assert accepted.status_code == 202
    query_id = accepted.json()["id"]
    assert accepted.headers["location"] == f"/v1/queries/{query_id}"

    served = service.wait_for_phase(query_id, "serving", "failed", "infeasible", "exhausted")
    assert served["phase"] == "serving", served
    assert served["outcome"] == "feasible"
    assert served["progress"]["measured"] >= 1

    plans = service.ask("GET", f"/v1/queries/{query_id}/plans").json()["items"]
    costs = [plan["cost_usd_per_hour"] for plan in plans]
    assert costs == sorted(costs)
    assert served["plan_id"] in [plan["id"] for plan in plans]
    one = service.ask("GET", f"/v1/plans/{served['plan_id']}").json()
    assert one["id"] == served["plan_id"]

    schedule = service.ask("GET", "/v1/schedule").json()
    assert query_id in [assignment["query_id"] for assignment in schedule["assignments"]]

    own = service.ask("POST", f"/v1/queries/{query_id}/requests", json={"input": {"value": 7}})
    assert own.status_code == 200, own.text
    assert own.json()["latency_s"] > 0
    body = {"example": {"index": 3, "count": 10}}
    example = service.ask("POST", f"/v1/queries/{query_id}/requests", json=body).json()
    assert example["score"] in (0.0, 1.0)
    wrong = service.ask("POST", f"/v1/queries/{query_id}/requests", json={"input": "no dict"})
    assert wrong.status_code == 502
    assert "an input is {value: number}" in wrong.json()["detail"]

    deployment = service.ask("GET", f"/v1/queries/{query_id}/deployment").json()
    assert deployment["phase"] == "serving"
    assert deployment["observed"]["count"] == 2
    assert deployment["observed"]["failed"] == 1

    retired = service.ask("DELETE", f"/v1/queries/{query_id}/deployment")
    assert retired.json()["phase"] == "retired"
    again = service.ask("DELETE", f"/v1/queries/{query_id}/deployment")
    assert again.json()["phase"] == "retired"

    def freed() -> bool:
        left = service.ask("GET", "/v1/schedule").json()["assignments"]
        return query_id not in [assignment["query_id"] for assignment in left]

    service.wait_for(freed, "its capacity to be free")
    late = service.ask("POST", f"/v1/queries/{query_id}/requests", json={"input": {"value": 7}})
    assert late.status_code == 409


def test_an_infeasible_query_says_what_binds(service: ServiceProcess) -> None:
    query_id = service.submit(slo={"accuracy": 0.8, "latency_s": 1e-6})
    found = service.wait_for_phase(query_id, "infeasible", "exhausted", "failed", "serving")
    assert found["phase"] == "infeasible"
    assert found["shortfall"]["binding"] == ["latency"]
    assert found["shortfall"]["closest"]["id"].startswith("p-")
    assert found["message"] == found["shortfall"]["sentence"]


def test_planning_is_cancelled(service: ServiceProcess) -> None:
    slow = {"examples": 2000, "seed": 3}
    query_id = service.submit(data=slow, slo={"accuracy": 0.999, "latency_s": 1.0})
    service.wait_for_phase(query_id, "planning", "exhausted", "infeasible")
    asked = service.ask("POST", f"/v1/queries/{query_id}:cancel")
    assert asked.status_code == 200, asked.text
    found = service.wait_for_phase(query_id, "cancelled", "exhausted", "infeasible")
    assert found["phase"] == "cancelled"
    undeploy = service.ask("DELETE", f"/v1/queries/{query_id}/deployment")
    assert undeploy.status_code == 409


def test_the_description_is_there(service: ServiceProcess) -> None:
    assert service.ask("GET", "/docs").status_code == 200
    paths = service.ask("GET", "/openapi.json").json()["paths"]
    assert "/v1/queries/{query_id}:cancel" in paths
    assert "/v1/queries/{query_id}/requests" in paths


@pytest.mark.slow
def test_a_query_is_planned_scheduled_and_served_as_published(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path, extra={"CIRCINUS_METHOD": "published"})
    service.start()
    method = service.ask("GET", "/v1/method").json()
    assert (method["name"], method["scheduling"], method["dispatch"]) == (
        "published",
        "greedy",
        "kairos",
    )
    query_id = service.submit()
    served = service.wait_for_phase(query_id, "serving", "failed", "infeasible", "exhausted")
    assert served["phase"] == "serving", served
    assert served["planning"] == parts_of(PUBLISHED.planning)
    assert served["request"]["planning"] == parts_of(PUBLISHED.planning)
    plan = service.ask("GET", f"/v1/plans/{served['plan_id']}").json()
    assert plan["accuracy"]["inputs"] >= 50  # the t-test judges no fewer
    own = service.ask("POST", f"/v1/queries/{query_id}/requests", json={"input": {"value": 7}})
    assert own.status_code == 200, own.text
    assert own.json()["plan_id"] == served["plan_id"]
    told = service.ask("GET", f"/v1/plans/{served['plan_id']}/explanation").json()
    assert told["planning"] == parts_of(PUBLISHED.planning)
    assert told["ruled_out"]
    assert service.stop() == 0


@pytest.mark.slow
def test_policies_can_be_chosen_beside_a_method_and_a_method_by_a_body(tmp_path: Path) -> None:
    chosen = {"CIRCINUS_SCHEDULING_POLICY": "greedy", "CIRCINUS_DISPATCH_POLICY": "kairos"}
    service = ServiceProcess(tmp_path, extra=chosen)
    service.start()
    method = service.ask("GET", "/v1/method").json()
    assert (method["name"], method["scheduling"], method["dispatch"]) == (
        "default",
        "greedy",
        "kairos",
    )
    by_default = service.submit()
    as_published = service.submit(planning={"method": "published"})
    for query_id, name in ((by_default, "default"), (as_published, "published")):
        served = service.wait_for_phase(query_id, "serving", "failed")
        assert (served["phase"], served["planning"]["method"]) == ("serving", name), served
        own = service.ask("POST", f"/v1/queries/{query_id}/requests", json={"input": {"value": 7}})
        assert own.status_code == 200, own.text
    assert service.stop() == 0
