"""A controller follows what the cluster and the service tell, and says what hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from circinus.api.operator.controller import Controller
from circinus.api.phases import QueryPhase
from circinus.pipelines.clock import Clock, ManualClock, SystemClock
from tests.api.operator.fake_cluster import FakeCluster
from tests.api.operator.fake_service import FakeService


def controller(cluster: FakeCluster, service: FakeService, clock: Clock) -> Controller:
    return Controller(
        cluster=cluster,
        service=service,
        namespaces=["ns"],
        identity="me",
        clock=clock,
        tick_s=0.02,
    )


@contextmanager
def running(cluster: FakeCluster, service: FakeService) -> Iterator[Controller]:
    made = controller(cluster, service, SystemClock())
    thread = Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(30)
        assert not thread.is_alive()


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_look_that_breaks_is_tried_again_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, service = FakeCluster(), FakeService()
    cluster.put("a")
    cluster.put("b")
    with running(cluster, service) as made:
        look, broken = made.reconciler.ours, list[str]()

        def odd(found: dict[str, dict[str, str]]) -> bool:
            if found["metadata"]["name"] == "a" and not broken:
                broken.append("a")
                raise KeyError("nonsense")
            return look(found)

        made.reconciler.ours = odd
        eventually(lambda: cluster.status("b").get("queryId"))
        eventually(lambda: cluster.status("a").get("queryId"))


def test_objects_are_followed_through_their_queries_phases() -> None:
    cluster, service = FakeCluster(), FakeService()
    cluster.put("a")
    with running(cluster, service):
        eventually(lambda: cluster.status("a").get("phase") == "queued")
        service.move("q-1", QueryPhase.SERVING, plan_id="p-1")
        eventually(lambda: cluster.status("a")["phase"] == "serving")
        service.move("q-1", QueryPhase.FAILED)
        eventually(lambda: cluster.status("a")["phase"] == "failed")
        cluster.remove("a")
        eventually(lambda: not cluster.objects)


def test_a_short_silence_of_the_service_is_nothing_and_a_long_one_is_told() -> None:
    cluster, service, clock = FakeCluster(), FakeService(), ManualClock()
    made = controller(cluster, service, clock)
    made.tick()
    service.down = True
    clock.sleep(9.0)
    made.tick()
    assert made.reconciler.outage is None
    clock.sleep(2.0)
    made.tick()
    assert made.reconciler.outage == "no service answers"
    service.down = False
    made.tick()
    assert made.reconciler.outage is None


def test_what_hangs_is_named() -> None:
    cluster, service, clock = FakeCluster(), FakeService(), ManualClock()
    made = controller(cluster, service, clock)
    made.queue.add("ns/a")
    made.queue.ready()
    clock.sleep(300.0)
    assert made.stuck() == []
    clock.sleep(1.0)
    assert made.stuck() == [
        "the look at ns/a lasts 301 s",
        "reading the service's queries lasts 301 s",
    ]
    assert made.unsynced() == ["the objects of ns are not listed yet"]


def test_a_hundred_objects_have_their_queries_with_few_readings_of_the_service() -> None:
    cluster, service = FakeCluster(), FakeService()
    for number in range(100):
        cluster.put(f"a{number}")
    with running(cluster, service):
        eventually(lambda: all("status" in found for found in list(cluster.objects.values())))
    assert len(service.queries) == 100
    submissions = [call for call in service.calls if call.startswith("submit")]
    others = [call for call in service.calls if not call.startswith(("submit", "list"))]
    assert (len(submissions), others) == (100, [])
