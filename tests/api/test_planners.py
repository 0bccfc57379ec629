"""Planning workers that stand still are replaced: real processes on a database."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from circinus.api.bootstrap.parts import opened_parts
from circinus.api.bootstrap.planners import StartedPlanner, spawn_with
from circinus.api.control.planning_supervisor import PlanningSupervisor
from circinus.api.phases import QueryPhase
from circinus.api.settings import Settings
from circinus.api.store.records import NewQuery, StoredQuery
from circinus.api.use_cases.parts import ServiceParts

PATIENCE_S = 120.0
SPEC = {"data": {"examples": 3}, "slo": {"accuracy": 0.5, "latency_s": 1.0}}


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[ServiceParts]:
    names = tuple(f"tests.api.standing_still:{name}" for name in ("sleeping", "holding"))
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 'service.sqlite3'}",
        extra_pipelines=names,
        planning_workers=1,
        lease_s=3.0,
        planning_grace_s=1.0,
        crash_limit=2,
        token=SecretStr("not for workers"),
        host="0.0.0.0",
    )
    with opened_parts(settings) as made:
        yield made


@pytest.fixture
def supervisor(parts: ServiceParts) -> Iterator[PlanningSupervisor]:
    made = PlanningSupervisor(parts=parts, spawn=spawn_with(parts.settings))
    made.start()
    yield made
    made.stop()


def _wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _seated(supervisor: PlanningSupervisor, *, unlike: str = "") -> str:
    """Return the worker in the only seat, once it beats."""
    seat = supervisor._seats[0]
    _wait_for(lambda: seat.worker != unlike and seat.process is not None and seat.is_up)
    return seat.worker


def _failed(parts: ServiceParts, pipeline: str, **limits: float) -> StoredQuery:
    spec = {**SPEC, "pipeline": pipeline, "limits": limits}
    parts.store.submit(
        NewQuery(id="q-1", spec=spec, fingerprint="", idempotency_key=None, at=time.time())
    )
    _wait_for(lambda: parts.store.query("q-1").phase is QueryPhase.FAILED)
    return parts.store.query("q-1")


def test_a_worker_that_is_stopped_while_it_has_nothing_to_do_is_replaced(
    supervisor: PlanningSupervisor,
) -> None:
    first = _seated(supervisor)
    process = supervisor._seats[0].process
    assert isinstance(process, StartedPlanner)
    os.kill(process.child.pid, signal.SIGSTOP)
    _seated(supervisor, unlike=first)
    assert process.wait(0.0) == -signal.SIGKILL


@pytest.mark.slow
def test_who_lets_no_thread_run_loses_its_query_and_its_seat(
    parts: ServiceParts, supervisor: PlanningSupervisor
) -> None:
    record = _failed(parts, "holding")
    assert record.message == "the planning worker stood still for 3 s, 2 times"
    _seated(supervisor)


@pytest.mark.slow
def test_who_blocks_beyond_the_limits_of_its_query_loses_it_and_its_seat(
    parts: ServiceParts, supervisor: PlanningSupervisor
) -> None:
    record = _failed(parts, "sleeping", response_s=1.0)
    assert record.message == "planning went on 1 s beyond limits.response_s, 2 times"
    _seated(supervisor)
