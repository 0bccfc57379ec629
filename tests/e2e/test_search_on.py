"""A link gets thinner: another plan takes over, or is searched for while the old one answers.

The world of the test. The device is 0.1 times as fast as the cloud, and allowed are 400 ms. With
effort 2 a picture is shrunk to 150 kB in 120 ms on the device: 60 ms on a link of 20 Mbps, and
reading it may take the remaining 220 ms on 40 / 220 = 0.2 of a machine. Effort 3 makes 10 kB of
it, but takes 270 ms: that leaves 126 ms for reading, on 0.35 of a machine. On a link of
4 Mbps effort 2 takes 120 + 300 + 40 = 460 ms at best, effort 3 only 270 + 20 + 40 = 330 ms. On one
of 0.4 Mbps there is no plan: 270 + 200 + 40 = 510 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.service_process import ServiceProcess, serving

INFRASTRUCTURE = """
name: lab
tiers:
  - {name: device, speed_factor: 0.1, dedicated: true, emulated: true}
  - {name: cloud, machines: 1, price_usd_per_hour: 1.0}
links:
  - {between: [device, cloud], bandwidth_mbit_per_s: 20, emulated: true}
"""
LATENCY_S = 0.4
MOST_REQUESTS = 120


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with serving(
        tmp_path, INFRASTRUCTURE, "tests.e2e.shrinking:pipeline", drift_s="0.5"
    ) as service:
        yield service


def ask(service: ServiceProcess, query_id: str) -> dict[str, Any]:
    body = {"example": {"index": 3, "count": 30, "seed": 0}, "late": "serve"}
    answer = service.ask("POST", f"/v1/queries/{query_id}/requests", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ask_until(
    service: ServiceProcess, query_id: str, happened: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Return the query after each request, all answered, the last as waited for."""
    seen: list[dict[str, Any]] = []
    while len(seen) < MOST_REQUESTS:
        answer = ask(service, query_id)
        seen.append(service.query(query_id) | {"answered_by": answer["plan_id"]})
        if happened(seen[-1]):
            return seen
    raise AssertionError(f"waited in vain: {seen[-1]}")


def effort(service: ServiceProcess, plan_id: str) -> int:
    plan = service.ask("GET", f"/v1/plans/{plan_id}").json()
    return int(plan["configuration"]["shrink"]["effort"])


@pytest.mark.slow
def test_another_plan_takes_over_and_where_none_will_do_it_is_searched_for(
    service: ServiceProcess,
) -> None:
    query_id = service.submit(
        pipeline="shrinking",
        data={"examples": 30},
        slo={"accuracy": 0.8, "latency_s": LATENCY_S},
    )
    service.wait_for_phase(query_id, "serving")
    first = ask(service, query_id)["plan_id"]
    assert effort(service, first) == 2

    service.imitate("device", "cloud", mbit_per_s=4)
    seen = ask_until(service, query_id, lambda query: query["answered_by"] != first)
    searching = [query for query in seen if query["search"] is not None]
    for query in searching:  # none: the plan is of those that were measured for the front
        assert query["search"]["why"].startswith("latency is ")
        assert query["search"]["ended"] is None
        assert (query["phase"], query["plan_id"]) == ("serving", first)
    service.wait_for_phase(query_id, "serving")
    found = service.query(query_id)
    assert (found["search"], len(found["replanned"])) == (None, 1)
    assert found["replanned"][0]["why"].startswith("latency is ")
    assert effort(service, found["plan_id"]) == 3
    assert {ask(service, query_id)["plan_id"] for _ in range(3)} == {found["plan_id"]}

    service.imitate("device", "cloud", mbit_per_s=0.4)
    seen = ask_until(
        service, query_id, lambda query: (query["search"] or {}).get("ended") is not None
    )
    assert {query["answered_by"] for query in seen} == {found["plan_id"]}
    assert "latency" in seen[-1]["search"]["ended"]
    assert (seen[-1]["phase"], seen[-1]["plan_id"]) == ("serving", found["plan_id"])
