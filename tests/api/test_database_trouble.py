"""What clients and planning workers see of a database that is away or full."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.planning_worker import plan_next
from circinus.api.control.pulse import Pulse
from circinus.api.control.service import Readiness, Service
from circinus.api.http.app import application_of
from circinus.api.http.errors import STATUS
from circinus.api.phases import QueryPhase
from circinus.api.store.engine import connect
from circinus.api.store.failures import DatabaseAway, DatabaseFull, DatabaseOwned
from circinus.api.store.journal import measurement_counts
from circinus.api.store.records import NewQuery
from circinus.api.store.store import Store
from circinus.api.use_cases.parts import ServiceParts
from circinus.pipelines.clock import ManualClock, SystemClock
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from tests import postgres
from tests.api.fakes import PIPELINE, SPEC, FakeCatalogue, FakeDeployer, parts_of

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[postgres.PostgresServer]:
    """A PostgreSQL server that a test may stop."""
    with postgres.own() as made:
        yield made


@pytest.fixture
def parts(server: postgres.PostgresServer, tmp_path: Path) -> Iterator[ServiceParts]:
    url = server.fresh("trouble")
    store = Store(connect(url))
    yield parts_of(store, tmp_path, ManualClock(), {"database_url": url})
    store.close()


def test_a_database_that_is_away_is_a_503_that_tells_clients_nothing_of_it(
    server: postgres.PostgresServer, parts: ServiceParts
) -> None:
    service = Service(replace(parts, clock=SystemClock()), FakeDeployer())
    client = TestClient(application_of(service), base_url="http://127.0.0.1:8350")
    assert client.get("/readyz").status_code == 200
    server.stop()
    time.sleep(1.1)  # the answer held so long
    for method, path in (
        ("GET", "/readyz"),
        ("GET", "/v1/queries"),
        ("GET", "/v1/schedule"),
        ("POST", "/v1/queries"),
    ):
        answer = client.request(method, path, json=SPEC if method == "POST" else None)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2"), answer.text
        assert answer.json()["detail"] == "the database cannot be reached now"
    assert client.get("/healthz").status_code == 200
    server.start()
    assert client.post("/v1/queries", json=SPEC).status_code == 202
    time.sleep(1.1)
    assert client.get("/readyz").status_code == 200


def test_each_failure_has_its_status() -> None:
    def status(kind: type[Exception]) -> int:
        return next(STATUS[base][0] for base in kind.__mro__ if base in STATUS)

    assert [status(kind) for kind in (DatabaseAway, DatabaseOwned, DatabaseFull)] == [
        503,
        503,
        507,
    ]


class _Tried(Store):
    def __init__(self) -> None:
        self.tried = 0
        self.full = False

    def try_writing(self) -> None:
        self.tried += 1
        if self.full:
            raise DatabaseFull("the disk of the database is full")


def test_readiness_is_tried_once_a_second_however_often_it_is_asked_for() -> None:
    clock, store = ManualClock(), _Tried()
    readiness = Readiness(store, clock)
    for _ in range(10):
        readiness.require()
    store.full = True
    readiness.require()
    clock.sleep(1.1)
    for _ in range(10):
        with pytest.raises(DatabaseFull, match="is full"):
            readiness.require()
    assert store.tried == 2
    store.full = False
    clock.sleep(1.1)
    readiness.require()


def interrupted(at: int, outage: Callable[[], None]) -> tuple[Pipeline, list[Payload]]:
    """Return a pipeline during whose call of a number the database goes away, and its calls."""
    calls: list[Payload] = []

    def add(inputs: Payload, knobs: Settings) -> Payload:
        calls.append([inputs, knobs["by"]])
        if len(calls) == at:
            outage()
        assert isinstance(inputs, int)
        return inputs + int(knobs["by"])

    spec = OperatorSpec(name="add", knobs=(Knob(name="by", values=(0, 1)),))
    return replace(PIPELINE, operators=(Operator(spec=spec, run=add),)), calls


@pytest.mark.parametrize("at", [1, 7, 12])
def test_planning_waits_for_a_database_that_goes_away_and_measures_nothing_twice(
    server: postgres.PostgresServer, parts: ServiceParts, at: int
) -> None:
    back = threading.Timer(1.0, server.start)

    def outage() -> None:
        server.stop()
        back.start()

    pipeline, calls = interrupted(at, outage)
    complaints: list[str] = []
    clock = SystemClock()
    pulse = Pulse(send=complaints.append, clock=clock, grace_s=0.0)
    parts.store.submit(NewQuery(id="q-1", spec=SPEC, fingerprint="", idempotency_key=None, at=0.0))
    own = replace(parts, clock=clock, catalogue=FakeCatalogue({"add": pipeline}))
    assert plan_next(own, "w", pulse)
    back.join()
    record = parts.store.query("q-1")
    assert record.phase is QueryPhase.WAITING, record.message
    assert record.planned is not None
    assert parts.store.plans("q-1")
    engine = connect(parts.settings.database_url)
    total, again = measurement_counts(engine, "q-1")
    engine.dispose()
    assert (total, again) == (record.planned.inputs, 0)
    # The first call of each configuration warms up; a fifth of all are compared with another.
    assert total + 2 <= len(calls) <= total + 2 + total // 5
    assert not any(complaints)


def test_a_claim_of_which_the_worker_did_not_hear_is_given_back_and_claimed_again(
    server: postgres.PostgresServer, parts: ServiceParts
) -> None:
    parts.store.submit(NewQuery(id="q-1", spec=SPEC, fingerprint="", idempotency_key=None, at=0.0))
    claim = parts.store.queue.claim

    def unheard(worker: str, *, at: float) -> object:
        claim(worker, at=at)
        parts.store.queue.claim = claim  # type: ignore[method-assign]  # as it was
        raise DatabaseAway("the database cannot be reached now")

    parts.store.queue.claim = unheard  # type: ignore[method-assign, assignment]  # once
    assert plan_next(replace(parts, catalogue=FakeCatalogue({"add": PIPELINE})), "w")
    record = parts.store.query("q-1")
    assert record.phase is QueryPhase.WAITING
    assert "the database went away" in [change.message for change in record.history]
