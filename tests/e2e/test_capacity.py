"""Machines come and go under a real service with real processes; priorities and tenants count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from circinus.scheduler.problem_form import problem_from_dict
from tests.e2e.service_process import ServiceProcess, serving
from tests.e2e.steady import SECONDS

INFRASTRUCTURE = """
name: lab
tiers:
  - {name: cloud, machines: 3, price_usd_per_hour: 1.0}
"""
# A copy is kept busy for 0.7 of the time at most, so 0.42 asks for 0.6 of a machine, and for less
# than a whole one even if everything takes half as long again: no two queries share a machine.
RATE_PER_S = 0.42 / SECONDS


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with serving(
        tmp_path,
        INFRASTRUCTURE,
        "tests.e2e.steady:pipeline",
        quotas="small=0.25",
        ageing_limit_s="100000",
    ) as service:
        yield service


def submit(service: ServiceProcess, **more: object) -> str:
    return service.submit(
        pipeline="steady",
        data={"examples": 8},
        slo={"accuracy": 0.8, "latency_s": 10.0},
        request_rate_per_s=RATE_PER_S,
        **more,
    )


def set_machines(service: ServiceProcess, machines: int | None) -> None:
    body = {"machines": {"cloud": machines}}
    answer = service.ask("PATCH", "/v1/infrastructure", json=body)
    assert answer.status_code == 200, answer.text


def schedule(service: ServiceProcess) -> dict[str, Any]:
    found: dict[str, Any] = service.ask("GET", "/v1/schedule").json()
    return found


def served(service: ServiceProcess) -> set[str]:
    return {assigned["query_id"] for assigned in schedule(service)["assignments"]}


def processes(service: ServiceProcess, query_id: str) -> set[int]:
    """The processes of a query's deployment that are alive."""
    instances = service.ask("GET", f"/v1/queries/{query_id}/deployment").json()["instances"]
    return {i["pid"] for i in instances if i["pid"] and psutil.pid_exists(i["pid"])}


def answers(service: ServiceProcess, query_id: str) -> bool:
    body = {"input": {"value": 5}}
    return service.ask("POST", f"/v1/queries/{query_id}/requests", json=body).status_code == 200


@pytest.mark.slow
def test_machines_taken_away_evict_by_name_and_bring_back_when_they_return(
    service: ServiceProcess,
) -> None:
    ids = [submit(service) for _ in range(3)]
    for query_id in ids:
        service.wait_for_phase(query_id, "serving")
    before = {query_id: processes(service, query_id) for query_id in ids}
    assert all(before.values())

    set_machines(service, 1)
    service.wait_for(lambda: len(served(service)) < 3, "the schedule on one machine")
    shown = schedule(service)
    (cloud,) = [tier for tier in shown["tiers"] if tier["tier"] == "cloud"]
    assert cloud["machines"] == 1
    assert cloud["used"] <= 1
    loads: dict[int, float] = {}
    for assigned in shown["assignments"]:
        for share in assigned["machines"]:
            loads[share["machine"]] = loads.get(share["machine"], 0.0) + share["share"]
    assert set(loads) <= {0}
    assert all(load <= 1 + 1e-9 for load in loads.values())
    stay = served(service)
    evicted = set(ids) - stay
    assert stay
    assert evicted
    assert {waiting["query_id"] for waiting in shown["waiting"]} == evicted
    assert all("What would let it in" in waiting["reason"] for waiting in shown["waiting"])
    assert {d["query_id"] for d in shown["displaced"]} == evicted
    for query_id in evicted:
        found = service.wait_for_phase(query_id, "waiting")
        assert found["displaced"][0]["query_id"] == query_id
        service.wait_for(
            lambda q=query_id: not any(map(psutil.pid_exists, before[q])),  # type: ignore[misc]
            f"the processes of {query_id} to end",
        )
    for query_id in stay:
        assert processes(service, query_id) == before[query_id]  # nobody who stays was touched
        assert answers(service, query_id)

    set_machines(service, None)
    for query_id in evicted:
        service.wait_for_phase(query_id, "serving")
        assert answers(service, query_id)
    assert served(service) == set(ids)


@pytest.mark.slow
def test_a_priority_takes_the_place_and_a_quota_keeps_out(service: ServiceProcess) -> None:
    set_machines(service, 1)
    low = submit(service, weight=50.0)
    service.wait_for_phase(low, "serving")
    high = submit(service, priority=5, tenant="acme")
    service.wait_for_phase(high, "serving")
    found = service.wait_for_phase(low, "waiting")
    (displaced,) = found["displaced"]
    assert (displaced["query_id"], displaced["by"]) == (low, high)
    assert service.query(high)["displaced"] == found["displaced"]

    capped = submit(service, priority=9, tenant="small")
    reason = service.wait_for_phase(capped, "waiting")["message"]
    service.wait_for(lambda: "tenant small" in service.query(capped)["message"], "its quota")
    assert reason
    listed = service.ask("GET", "/v1/queries?tenant=small").json()["items"]
    assert [query["id"] for query in listed] == [capped]
    assert served(service) == {high}

    problem = problem_from_dict(service.ask("GET", "/v1/schedule/problem").json())
    assert {c.query_id: (c.priority, c.tenant) for c in problem.candidates} == {
        low: (0, ""),
        high: (5, "acme"),
        capped: (9, "small"),
    }
    assert problem.quotas == {"small": 0.25}
    body = {"machines": {"cloud": 2}}
    preview = service.ask("POST", "/v1/schedule:preview", json=body).json()
    assert {assigned["query_id"] for assigned in preview["assignments"]} == {low, high}
    assert served(service) == {high}
