"""Service and planning workers are killed at random, and the database goes away: nothing is lost.

CIRCINUS_TEST_QUERIES, _KILLS, _OUTAGES, _OUTAGE_S and _SEED choose larger runs than the usual.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

import httpx
import psutil
import pytest

from circinus.api.phases import QueryPhase
from circinus.api.store.engine import connect
from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.journal import measurement_counts
from circinus.api.store.records import StoredQuery
from circinus.api.store.store import Store
from tests import postgres
from tests.e2e.logged_sum import SEEDS
from tests.e2e.service_process import ServiceProcess

pytestmark = pytest.mark.slow


def _size(name: str, usual: int) -> int:
    return int(os.environ.get(f"CIRCINUS_TEST_{name}", usual))


QUERIES, KILLS = _size("QUERIES", 20), _size("KILLS", 4)
OUTAGES, OUTAGE_S = _size("OUTAGES", 1), _size("OUTAGE_S", 5)
SEED = _size("SEED", 0)
PATIENCE_S = 60.0 + 20.0 * QUERIES
EXAMPLES = 12
PLANNING_WORKERS = 2
AHEAD = 10
"""So many more are submitted than have ended."""
RATE_PER_S = 5.0
ENDED = frozenset(QueryPhase) - {QueryPhase.QUEUED, QueryPhase.PLANNING}
GOOD = ENDED - {QueryPhase.FAILED, QueryPhase.CANCELLED, QueryPhase.RETIRED}
_DATABASE_EXIT = 9

# One query alone has room: those that are planned besides wait, and nothing is started for them.
ON_ONE_MACHINE = """
name: one
tiers:
  - {name: cloud, machines: 1, price_usd_per_hour: 1.0}
"""


@dataclass
class Requests:
    """One client of a deployed plan, and what it was answered."""

    service: ServiceProcess
    query_id: str
    answers: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def running(self) -> Iterator[None]:
        over = threading.Event()
        sender = threading.Thread(target=self._send, args=[over])
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()

    def _send(self, over: threading.Event) -> None:
        url = f"http://127.0.0.1:{self.service.port}/v1/queries/{self.query_id}/requests"
        body = {"input": {"value": 1}, "late": "serve"}
        with httpx.Client(trust_env=False, timeout=30) as client:
            while not over.wait(1 / RATE_PER_S):
                try:
                    answer = client.post(url, json=body)
                    self.answers[f"{answer.status_code}"] += 1
                except httpx.HTTPError as error:
                    self.answers[repr(error)] += 1


@dataclass
class Scene:
    """A service, what is submitted to it, and what befalls it."""

    service: ServiceProcess
    server: postgres.PostgresServer | None
    store: Store
    draw: random.Random
    accepted: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    outages: list[threading.Thread] = field(default_factory=list)

    def play(self) -> None:
        """Submit, kill and stop the database, each at a time that is drawn, until all ended."""
        befalls: list[tuple[int, Callable[[], None]]] = [
            (self.draw.randrange(QUERIES), self.kill_worker if i % 2 else self.kill_service)
            for i in range(KILLS)
        ]
        if self.server is not None:
            befalls += [(QUERIES * (i + 1) // (OUTAGES + 1), self.outage) for i in range(OUTAGES)]
        befalls.sort(key=lambda one: one[0])
        deadline = time.monotonic() + PATIENCE_S
        while (ended := self.ended()) < QUERIES or befalls:
            assert time.monotonic() < deadline, f"{ended} of {QUERIES} ended"
            if befalls and ended >= min(befalls[0][0], QUERIES - PLANNING_WORKERS):
                time.sleep(self.draw.uniform(0.0, 1.0))
                befalls.pop(0)[1]()
            self.submit(ended)
            time.sleep(0.1)
        for outage in self.outages:
            outage.join()

    def ended(self) -> int:
        try:
            return len(set(self.store.ids(ENDED)) & set(self.accepted))
        except DatabaseFailed:
            return 0

    def submit(self, ended: int) -> None:
        """Submit what is next, as a client does that comes again until it is told an id."""
        while len(self.accepted) < min(QUERIES, ended + AHEAD):
            number = len(self.accepted) + 1
            headers = {"Idempotency-Key": f"number {number}"}
            try:
                answer = self.service.ask(
                    "POST", "/v1/queries", json=query(number), headers=headers
                )
            except httpx.HTTPError:
                return
            if answer.status_code == 503:
                assert int(answer.headers["Retry-After"]) >= 1
                return
            assert answer.status_code == 202, answer.text
            self.accepted.append(answer.json()["id"])

    def kill_service(self) -> None:
        self.kills["service"] += 1
        _, alive = psutil.wait_procs(self.service.kill(), timeout=30)
        assert alive == []  # its planning workers, and what they had started
        self.revive()

    def revive(self) -> None:
        """Start the service, again while its database is away."""
        while True:
            try:
                self.service.start()
            except AssertionError:
                process = self.service.process
                if process is None or process.poll() != _DATABASE_EXIT:
                    raise
                time.sleep(0.5)
            else:
                return

    def kill_worker(self) -> None:
        assert self.service.process is not None
        children = psutil.Process(self.service.process.pid).children()
        planners = [child for child in children if _plans(child)]
        if not planners:  # they are being started
            time.sleep(1.0)
            self.kill_worker()
            return
        self.kills["worker"] += 1
        with suppress(psutil.NoSuchProcess):
            self.draw.choice(planners).kill()

    def outage(self) -> None:
        """Stop the database for a while, in which others may be killed."""

        def away(server: postgres.PostgresServer) -> None:
            server.stop(self.draw.choice(["fast", "immediate"]))
            time.sleep(OUTAGE_S)
            server.start()

        self.outages.append(threading.Thread(target=away, args=[self.server]))
        self.outages[-1].start()


def _plans(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return any("planning_worker" in part for part in process.cmdline())
    return False


def query(seed: int, **more: object) -> dict[str, object]:
    return {
        "pipeline": "logged-sum",
        "data": {"examples": EXAMPLES, "seed": seed},
        # A machine has room for one such plan.
        "slo": {"accuracy": 0.5, "latency_s": 0.012},
        "limits": {"profiling_s": 30.0, "response_s": 600.0, "configurations": 8},
        **more,
    }


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        server = url = None
        if request.param == "postgres":
            server = stack.enter_context(postgres.own())
            url = server.fresh("killed")
        (tmp_path / "lab.yaml").write_text(ON_ONE_MACHINE)
        service = ServiceProcess(tmp_path, database_url=url or "")
        service.extra = {
            "CIRCINUS_INFRASTRUCTURE": str(tmp_path / "lab.yaml"),
            "CIRCINUS_EXTRA_PIPELINES": "tests.e2e.logged_sum:pipeline",
            "CIRCINUS_PLANNING_WORKERS": str(PLANNING_WORKERS),
            "CIRCINUS_CRASH_LIMIT": "1000",
            "CIRCINUS_DRIFT_S": "3600",
            "CIRCINUS_KEEPER_WAITS_S": "600",  # a busy machine starts a service in minutes
            "LOGGED_SUM_LOG": str(service.call_log),
        }
        stack.callback(service.stop)
        service.start()
        engine = connect(service.database_url)
        stack.callback(engine.dispose)
        yield Scene(service, server, Store(engine), random.Random(SEED))


def test_kills_and_outages_lose_no_query_and_repeat_no_measurement(scene: Scene) -> None:
    service, began = scene.service, time.monotonic()
    deployed = service.submit(**query(0, priority=9))
    service.wait_for_phase(deployed, "serving")
    requests = Requests(service, deployed)
    with requests.running():
        scene.play()
        took_s = time.monotonic() - began

    stored = [scene.store.query(query_id) for query_id in scene.accepted]
    measured = [measurement_counts(scene.store._engine, query_id) for query_id in scene.accepted]
    repeated = runs_again(service.call_log)
    phases = Counter(record.phase.value for record in stored)
    print(  # noqa: T201 - shown by `pytest -s`
        f"{len(stored)} queries, kills {dict(scene.kills)}, {len(scene.outages)} outages of"
        f" {OUTAGE_S} s, seed {SEED}: {took_s:.0f} s, load {os.getloadavg()[0]:.1f};"
        f" {sum(total for total, _ in measured)} measurements, {repeated} cut off and run again,"
        f" requests {dict(requests.answers)}, phases {dict(phases)}"
    )
    assert len(set(scene.accepted)) == QUERIES
    assert {record.phase for record in stored} <= GOOD, [r.message for r in stored]
    assert [times_planned(record) for record in stored] == [1] * QUERIES
    assert [again for _, again in measured] == [0] * QUERIES
    told = [record.planned.inputs for record in stored if record.planned is not None]
    assert told == [total for total, _ in measured]
    # Only what a planning worker had in hand when it was killed is run again.
    assert repeated <= PLANNING_WORKERS * scene.kills["service"] + scene.kills["worker"]
    assert set(requests.answers) == {"200"}
    assert_nothing_left(service)


def times_planned(record: StoredQuery) -> int:
    """Return how often planning came to an end, and was not just given up by a worker."""
    phases = [change.phase for change in record.history]
    return sum(
        here is QueryPhase.PLANNING and there is not QueryPhase.QUEUED
        for here, there in pairwise(phases)
    )


def runs_again(log: Path) -> int:
    """Return how many runs of planning had been made before.

    A process that runs the same twice in a row warms the operator up: that counts as one.
    """
    lines = map(json.loads, log.read_text().splitlines())
    planned = [(run, pid) for pid, *run in lines if run[0] >= SEEDS]
    planned.sort(key=lambda line: line[1])  # by process, in their order
    runs = [tuple(run) for (run, _), _ in groupby(planned)]
    return len(runs) - len(set(runs))


def assert_nothing_left(service: ServiceProcess) -> None:
    assert service.process is not None
    mine = psutil.Process(service.process.pid).children(recursive=True)
    mine += [service.serving_process, *service.serving_process.children(recursive=True)]
    assert service.stop() == 0
    _, alive = psutil.wait_procs(mine, timeout=10)
    folder = str(service.folder)
    here = [p for p in psutil.process_iter(["cwd", "cmdline"]) if p.info["cwd"] == folder]
    assert (alive, here) == ([], [])
