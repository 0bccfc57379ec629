"""A service with forty live queries serves those that its policy chooses, not another's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.rescheduler import Rescheduler
from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.pipelines.clock import ManualClock
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.rolling.scheduler import Upkeep
from tests.api.fakes import INFRASTRUCTURE, FakeDeployer, add_planned, parts_of, plan, sql_store

FOUR_MACHINES = replace(INFRASTRUCTURE, tiers=(replace(INFRASTRUCTURE.tiers[0], machines=4),))
WAITING = {  # in the order of arrival: share, weight; the machine that comes free holds 1.0
    "oldest": (0.5, 1.0),
    "dense": (0.6, 9.0),  # 15 a machine: the best ratio
    "pair-1": (0.5, 7.0),  # 14 a machine, and together more than any other choice
    "pair-2": (0.5, 7.0),
    **{f"poor-{i}": (0.9, 0.5) for i in range(5)},
}
CHOSEN = {
    "fcfs": {"oldest", "pair-1"},  # the oldest, then the oldest of those that fit beside it
    "greedy": {"dense"},
    "ilp": {"pair-1", "pair-2"},
}


@pytest.mark.parametrize("name", CHOSEN)
def test_whom_a_free_machine_serves_is_what_the_policy_is_named_for(
    name: str, tmp_path: Path
) -> None:
    store = sql_store(tmp_path)
    upkeep = Upkeep(policy=scheduling_policy(name, Terms()))
    parts = parts_of(
        store, tmp_path, ManualClock(1000.0), upkeep=upkeep, infrastructure=FOUR_MACHINES
    )
    service = Service(parts, FakeDeployer())
    client = TestClient(application_of(service), base_url="http://127.0.0.1:8350")
    rescheduler = Rescheduler(parts=parts, reports=service.deployer.reports)

    def served() -> set[str]:
        asyncio.run(rescheduler.tick())
        shown = client.get("/v1/schedule").json()
        return {assigned["query_id"] for assigned in shown["assignments"]}

    add_planned(store, "large", plan(share=1.0))
    assert served() == {"large"}
    small = {f"small-{i}" for i in range(30)}  # 0.1 each: they fill three machines
    for query_id in sorted(small):
        add_planned(store, query_id, plan(share=0.1))
    assert served() == {"large", *small}
    for query_id, (share, weight) in WAITING.items():
        add_planned(store, query_id, plan(share=share), weight=weight)
    assert served() == {"large", *small}
    assert len(store.live()) == 40

    assert client.delete("/v1/queries/large/deployment").status_code == 200
    assert served() == small | CHOSEN[name]
    store.close()
