"""A look holds an object before it asks for anything, and writes only what changed."""

from __future__ import annotations

import pytest

from circinus.api.operator.claims import FINALIZER
from circinus.api.operator.objects import WatchedObjects
from circinus.api.operator.queries import QueryBook
from circinus.api.operator.reconciling import EventPublisher, ObjectReconciler, everything
from circinus.api.phases import QueryPhase
from circinus.deploy.kubernetes.api import Forbidden, Object
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import ManualClock
from tests.api.operator.fake_cluster import FakeCluster
from tests.api.operator.fake_service import FakeService
from tests.api.operator.test_objects import follow


class Bench:
    """Looks at objects of one namespace, of a cluster and a service that a test moves."""

    def __init__(self) -> None:
        self.cluster, self.service, self.clock = FakeCluster(), FakeService(), ManualClock()
        self.objects = WatchedObjects(
            cluster=self.cluster, clock=self.clock, on_change=lambda _: None
        )
        self.book = QueryBook(service=self.service)
        self.reconciler = ObjectReconciler(
            cluster=self.cluster,
            objects=self.objects,
            book=self.book,
            publisher=EventPublisher(cluster=self.cluster, identity="me", clock=self.clock),
            clock=self.clock,
        )

    def look(self, name: str = "a") -> Backoff | float | None:
        """Hear of everything, then look."""
        follow(self.objects, 1)
        self.book.read()
        self.cluster.writes.clear()
        return self.reconciler.reconcile(f"ns/{name}")


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.cluster.put("a")
    return made


def test_an_object_that_is_gone_is_nothing(bench: Bench) -> None:
    assert bench.look("never-there") is None
    follow(bench.objects, 1)
    bench.cluster.remove("a")
    assert bench.reconciler.reconcile("ns/a") is None  # the watch has not told yet
    assert bench.service.queries == {}


def test_an_object_that_is_not_ours_is_left_alone(bench: Bench) -> None:
    bench.reconciler.ours = lambda found: found["metadata"]["name"] == "b"
    assert isinstance(bench.look(), float)
    assert (bench.cluster.writes, bench.service.queries, bench.cluster.events) == ([], {}, [])
    bench.reconciler.ours = everything
    bench.look()
    assert list(bench.service.queries) == ["q-1"]


def test_an_object_is_held_before_it_has_a_query(bench: Bench) -> None:
    bench.service.down = True
    follow(bench.objects, 1)
    bench.reconciler.reconcile("ns/a")
    assert bench.cluster.objects["ns/a"]["metadata"]["finalizers"] == [FINALIZER]
    bench.service.down = False
    bench.look()
    assert bench.cluster.writes == [("ns/a", "status")]
    assert bench.cluster.status("a")["queryId"] == "q-1"


def test_finalizers_of_others_stay(bench: Bench) -> None:
    bench.cluster.put("a", finalizers=["theirs"])
    bench.look()
    assert bench.cluster.objects["ns/a"]["metadata"]["finalizers"] == ["theirs", FINALIZER]
    bench.cluster.remove("a")
    bench.look()
    assert bench.cluster.objects["ns/a"]["metadata"]["finalizers"] == ["theirs"]


def test_who_is_overtaken_writes_nothing_and_looks_again(bench: Bench) -> None:
    follow(bench.objects, 1)
    bench.cluster.put("a")
    assert isinstance(bench.reconciler.reconcile("ns/a"), Backoff)
    assert bench.service.queries == {}
    bench.look()
    assert bench.cluster.status("a")["observedGeneration"] == 2


def test_another_object_of_the_same_name_gets_no_status_of_the_one_before(bench: Bench) -> None:
    follow(bench.objects, 1)

    def replaced() -> None:
        if bench.service.queries:  # it was held, and is gone with its finalizer by force
            bench.cluster.between = lambda: None
            bench.cluster._gone("ns/a")
            bench.cluster.put("a")

    bench.cluster.between = replaced
    bench.reconciler.reconcile("ns/a")
    assert bench.cluster.status("a") == {}


def test_an_unchanged_object_costs_no_call(bench: Bench) -> None:
    bench.look()
    told = list(bench.cluster.events)
    bench.clock.sleep(60.0)
    bench.look()
    assert (bench.cluster.writes, bench.cluster.events) == ([], told)


def test_a_refused_spec_is_tried_ever_more_seldom(bench: Bench) -> None:
    bench.service.refuses = "must be registered"
    again = bench.look()
    assert isinstance(again, Backoff)
    assert (again.pause_s(1), again.pause_s(20)) == (1.0, 300.0)
    assert bench.cluster.status("a")["phase"] == "refused"
    assert bench.cluster.reasons("a") == ["Refused"]


def test_a_service_that_is_away_is_told_and_asked_for_nothing(bench: Bench) -> None:
    bench.look()
    bench.reconciler.outage = "no service answers"
    bench.service.calls.clear()
    assert isinstance(bench.look(), Backoff)
    status = bench.cluster.status("a")
    assert (status["phase"], status["queryId"]) == ("queued", "q-1")
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "Unknown"
    assert bench.service.calls == ["list unfinished"]  # by the bench itself
    bench.reconciler.outage = None
    bench.look()
    status = bench.cluster.status("a")
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "False"


def test_a_missing_right_is_tried_again(bench: Bench) -> None:
    def forbidden(*_: object) -> Object:
        raise Forbidden("PATCH", "Forbidden", "no")

    bench.cluster.merge = forbidden  # type: ignore[method-assign,assignment]
    assert isinstance(bench.look(), Backoff)
    assert bench.service.queries == {}


def test_a_cluster_that_takes_no_events_is_no_trouble(bench: Bench) -> None:
    def forbidden(*_: object) -> Object:
        raise Forbidden("POST", "Forbidden", "no")

    bench.cluster.create = forbidden  # type: ignore[method-assign,assignment]
    bench.look()
    assert bench.cluster.status("a")["queryId"] == "q-1"


def test_a_query_that_is_slow_to_stop_is_told_once(bench: Bench) -> None:
    bench.look()
    bench.service.move("q-1", QueryPhase.PLANNING)
    bench.service.cancel = bench.service.query  # type: ignore[method-assign]  # it goes on for now
    bench.cluster.put("a")
    for _ in range(3):
        bench.look()
    assert bench.cluster.reasons("a").count("Retired") == 1


def test_a_deleted_object_is_held_until_nothing_of_it_runs(bench: Bench) -> None:
    bench.look()
    bench.service.running.add("q-1")
    bench.cluster.remove("a")
    assert isinstance(bench.look(), Backoff)
    assert bench.service.queries["q-1"].phase is QueryPhase.CANCELLED
    assert "ns/a" in bench.cluster.objects
    bench.service.running.clear()
    assert bench.look() is None
    assert bench.cluster.objects == {}


def test_a_deleted_object_that_others_hold_is_not_ours_any_more(bench: Bench) -> None:
    bench.cluster.put("a", finalizers=["theirs"])
    bench.cluster.remove("a")
    assert bench.look() is None
    assert (bench.cluster.writes, bench.service.queries) == ([], {})


def test_a_deleted_object_waits_for_a_service_that_is_away(bench: Bench) -> None:
    bench.look()
    bench.cluster.remove("a")
    follow(bench.objects, 1)
    bench.service.down = True
    assert isinstance(bench.reconciler.reconcile("ns/a"), Backoff)
    assert "ns/a" in bench.cluster.objects


def test_the_life_of_an_object_is_told_by_events(bench: Bench) -> None:
    bench.look()
    bench.service.move("q-1", QueryPhase.PLANNING)
    bench.look()
    bench.service.move("q-1", QueryPhase.SERVING, plan_id="p-1")
    bench.look()
    assert bench.cluster.reasons("a") == ["Queued", "Planning", "Serving"]
    assert bench.cluster.status("a")["costUsdPerHour"] == 0.3
