"""A follower moves traffic as it hears of capacity; the cluster is a fake that keeps objects."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration

from circinus.deploy.kubernetes.api import Clash, Cluster, Expired, Object, collection_of
from circinus.deploy.kubernetes.mirror import Mirror
from circinus.deploy.kubernetes.routing.applied import RouteWriter, route_permissions
from circinus.deploy.kubernetes.routing.follower import RouteFollower, RouteSteered
from circinus.deploy.kubernetes.routing.objects import planned
from circinus.deploy.kubernetes.routing.targets import ClusterRoute
from circinus.deploy.routes.probing import EndpointProbes
from circinus.pipelines.clock import Clock, ManualClock, SystemClock
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.io.datasets import Example
from circinus.scheduler.routing.regimes import RegimeSettings
from tests.deploy.answering_server import AnsweringServed, answering
from tests.deploy.kubernetes.routes_in_a_cluster import (
    PROMETHEUS,
    cluster_route,
    deployment,
    pod,
    pool,
    target,
)

DEPLOYMENTS = {"m-cheap": deployment("m-cheap"), "m-dear": deployment("m-dear", 1)}
ALL_RUN = {"a": pod("m-cheap", 0), "b": pod("m-cheap", 1), "c": pod("m-dear")}
CHEAP_IS_LOST = {
    "a": pod("m-cheap", 2, placed=False),
    "b": pod("m-cheap", 3, placed=False),
    "c": pod("m-dear"),
}
NODES: dict[str, Object] = {
    "n": {
        "metadata": {"name": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
}
SETTLE_S = 30.0
NOWHERE = "http://127.0.0.1:9"
PROBES = EndpointProbes(examples=[Example(input=1, expected=2)], tolerance=0.0, timeout_s=10.0)


class KeepingCluster(Cluster):
    """Keeps what is applied; refuses as it is told to."""

    def __init__(self) -> None:
        super().__init__(ApiClient(Configuration()))
        self.kept: dict[str, Object] = {}
        self.events: list[Object] = []
        self.refuses: dict[str, Exception] = {}  # part of a path -> with what

    def get(self, path: str) -> Object | None:
        return self.kept.get(path)

    def apply(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        force: bool = False,
        dry_run: bool = False,
        manager: str = "",
    ) -> Object:
        for part, error in self.refuses.items():
            if part in path:
                raise error
        assert manager == "circinus-route"
        metadata = {**body["metadata"], "uid": "u", "resourceVersion": "1"}
        self.kept[path] = {**body, "metadata": metadata}
        return self.kept[path]

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        assert path.endswith("/events")
        self.events.append(dict(body))
        return dict(body)

    def listed(self, path: str, **query: str) -> Object:
        named = {"deployments": DEPLOYMENTS, "pods": ALL_RUN, "nodes": NODES}
        items = [*named[path.rpartition("/")[2]].values()]
        return {"metadata": {"resourceVersion": "1"}, "items": items}

    def watch(self, path: str, version: str, *, for_s: int, **query: str) -> Iterator[Object]:
        raise Unavailable("broken", retry_after_s=0.0)

    @property
    def weights(self) -> dict[str, int]:
        (route,) = [each for path, each in self.kept.items() if "httproutes" in path]
        (rule,) = route["spec"]["rules"]
        return {backend["name"]: backend["weight"] for backend in rule["backendRefs"]}

    def floor(self, unit: str) -> int:
        (found,) = [each for path, each in self.kept.items() if path.endswith(f"/r-{unit}")]
        least: int = found["spec"]["minReplicaCount"]
        return least


def follower(
    cluster: KeepingCluster,
    clock: Clock,
    route: ClusterRoute | None = None,
    urls: Mapping[str, str] | None = None,
) -> RouteFollower:
    """Return one; with URLs of the units, it verifies them."""
    usual = cluster_route(prometheus=PROMETHEUS, regimes=RegimeSettings(settle_s=SETTLE_S))
    return RouteFollower(
        cluster=cluster,
        route=route or usual,
        clock=clock,
        writer=RouteWriter(cluster=cluster, clock=clock),
        probes=PROBES if urls is not None else None,
        urls=urls,
    )


def hearing(
    cluster: KeepingCluster, clock: ManualClock, route: ClusterRoute | None = None
) -> RouteFollower:
    found = follower(cluster, clock, route)
    found.ingest("deployments", DEPLOYMENTS)
    found.ingest("pods", ALL_RUN)
    found.step()
    return found


def test_a_clash_leaves_what_is_anothers_and_the_rest_is_written_and_it_is_tried_again() -> None:
    cluster = KeepingCluster()
    cluster.refuses["httproutes"] = Clash("PATCH", "Conflict", "conflict with kubectl-edit")
    here = follower(cluster, ManualClock())
    here.ingest("deployments", DEPLOYMENTS)
    here.ingest("pods", ALL_RUN)
    with pytest.raises(Clash, match="kubectl-edit"):
        here.step()
    assert cluster.floor("cheap") == 2
    cluster.refuses.clear()
    here.step()
    assert cluster.weights == {"m-cheap": 1000, "m-dear": 0}


def test_a_cluster_that_lacks_keda_does_not_keep_traffic_where_it_is() -> None:
    cluster, clock = KeepingCluster(), ManualClock()
    cluster.refuses["scaledobjects"] = Unavailable("no", retry_after_s=1.0)
    here = follower(cluster, clock)
    here.ingest("deployments", DEPLOYMENTS)
    here.ingest("pods", CHEAP_IS_LOST)
    with pytest.raises(Unavailable):
        here.step()
    assert cluster.weights == {"m-cheap": 0, "m-dear": 1000}


def test_an_event_that_is_not_taken_moves_traffic_all_the_same() -> None:
    class Silent(KeepingCluster):
        def create(self, path: str, body: Mapping[str, Any]) -> Object:
            raise Unavailable("no events today", retry_after_s=1.0)

    cluster, clock = Silent(), ManualClock()
    here = hearing(cluster, clock)
    here.ingest("pods", CHEAP_IS_LOST)
    here.step()
    assert cluster.weights == {"m-cheap": 0, "m-dear": 1000}


def test_a_loss_moves_traffic_keeps_pods_wanted_and_is_told() -> None:
    cluster, clock = KeepingCluster(), ManualClock()
    here = hearing(cluster, clock)
    assert (cluster.weights, cluster.events) == ({"m-cheap": 1000, "m-dear": 0}, [])
    assert (cluster.floor("cheap"), cluster.floor("dear")) == (2, 1)

    here.ingest("pods", CHEAP_IS_LOST)
    steered, _ = here.step()

    assert cluster.weights == {"m-cheap": 0, "m-dear": 1000}
    assert (cluster.floor("cheap"), cluster.floor("dear")) == (2, 2)
    assert steered.written == ("HTTPRoute/r", "ScaledObject/r-dear")
    (event,) = cluster.events
    assert (event["reason"], event["type"]) == ("RegimeChanged", "Warning")
    assert event["involvedObject"]["kind"] == "HTTPRoute"
    assert event["message"] == (
        "cost -> capacity: cannot be had: cheap (0 of 2); cheap: 2 of 2 pods find no node: "
        "0/3 nodes are available: 3 Insufficient cpu.; traffic: dear 100.0%"
    )


def test_traffic_goes_back_when_capacity_has_settled_and_not_before() -> None:
    cluster, clock = KeepingCluster(), ManualClock()
    here = hearing(cluster, clock)
    here.ingest("pods", CHEAP_IS_LOST)
    here.step()
    clock.sleep(100.0)
    here.ingest("pods", ALL_RUN)
    _, due_s = here.step()
    assert due_s == pytest.approx(clock.now() + SETTLE_S)
    assert cluster.floor("cheap") == 2
    clock.sleep(SETTLE_S - 1)
    here.step()
    assert len(cluster.events) == 1
    clock.sleep(1.001)
    here.step()
    assert cluster.weights == {"m-cheap": 1000, "m-dear": 0}
    assert [event["type"] for event in cluster.events] == ["Warning", "Normal"]


def test_pods_that_have_a_node_and_do_not_answer_get_no_traffic() -> None:
    cluster, clock = KeepingCluster(), ManualClock()
    here = hearing(cluster, clock)
    starting = {**ALL_RUN, "a": pod("m-cheap", 0, ready=False)}
    here.ingest("pods", starting)
    here.step()
    assert cluster.weights == {"m-cheap": 533, "m-dear": 467}
    # one answers, and takes 100 of the 150 / 0.8 requests/s that pods are wanted for
    here.ingest("pods", {**starting, "b": pod("m-cheap", 1, ready=False)})
    here.step()
    assert cluster.weights == {"m-cheap": 0, "m-dear": 1000}
    assert cluster.events == []  # all of it can be had: the regime is another matter


def test_a_look_at_what_is_as_before_writes_nothing() -> None:
    cluster, clock = KeepingCluster(), ManualClock()
    here = hearing(cluster, clock)
    told: list[RouteSteered] = []
    here.on_steered = told.append
    clock.sleep(5.0)
    here.ingest("pods", dict(ALL_RUN))
    assert (here.step()[0].written, told) == ((), [])


def test_a_follower_that_is_started_again_does_not_tell_the_regime_again() -> None:
    cluster, clock = KeepingCluster(), ManualClock()
    here = hearing(cluster, clock)
    here.ingest("pods", CHEAP_IS_LOST)
    here.step()
    again = follower(cluster, clock)
    again.ingest("deployments", DEPLOYMENTS)
    again.ingest("pods", CHEAP_IS_LOST)
    again.step()
    assert len(cluster.events) == 1


def test_once_lists_and_writes() -> None:
    cluster = KeepingCluster()
    steered = follower(cluster, ManualClock()).once()
    assert {name: unit.ready for name, unit in steered.units.items()} == {"cheap": 2, "dear": 1}
    assert cluster.weights == {"m-cheap": 1000, "m-dear": 0}


def set_if_moved(moved: Event, steered: RouteSteered) -> None:
    if steered.direction.weights == {"dear": 1.0}:
        moved.set()


def moves_traffic(here: RouteFollower) -> bool:
    """Let it follow, in a thread, and say whether it moves all traffic to the dear unit."""
    over, moved = Event(), Event()
    here.on_steered = partial(set_if_moved, moved)
    thread = Thread(target=here.run, args=[over])
    thread.start()
    found = moved.wait(10)
    over.set()
    here.wake()
    thread.join(timeout=10)
    return found


def test_what_a_watch_has_forgotten_is_listed_again() -> None:
    lists: list[str] = []

    class Forgetting(KeepingCluster):
        """Its second list is of another state, and it never remembers what was before."""

        def listed(self, path: str, **query: str) -> Object:
            lists.append(path)
            found = super().listed(path, **query)
            if path.endswith("pods") and lists.count(path) > 1:
                return {**found, "items": [*CHEAP_IS_LOST.values()]}
            return found

        def watch(self, path: str, version: str, *, for_s: int, **query: str) -> Iterator[Object]:
            raise Expired("watch", "Expired", "too old resource version")

    here = follower(Forgetting(), SystemClock())
    assert moves_traffic(here)


def test_it_follows_until_it_is_told_to_end() -> None:
    cluster, over, moved = KeepingCluster(), Event(), Event()
    here = follower(cluster, SystemClock())
    here.on_steered = partial(set_if_moved, moved)
    thread = Thread(target=here.run, args=[over])
    thread.start()
    began = time.monotonic()
    while not cluster.kept and time.monotonic() < began + 10:
        over.wait(0.01)
    here.ingest("pods", CHEAP_IS_LOST)
    assert moved.wait(10)
    over.set()
    here.wake()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_the_first_of_the_objects_that_are_printed_sends_the_requests() -> None:
    route = cluster_route(
        prometheus=PROMETHEUS, targets={"cheap": target("cheap", node_pool=pool("p"))}
    )
    found = planned(route, 0.0)
    kinds = [each["kind"] for each in found]
    assert kinds == ["HTTPRoute", "NodePool", "ScaledObject", "ScaledObject"]


def test_what_an_account_needs_is_told_by_namespace() -> None:
    plain = route_permissions(cluster_route(namespace="models"), ["HTTPRoute"])
    assert [p.resource for p in plain["models"]] == ["httproutes", "deployments", "pods", "events"]
    with_pool = cluster_route(
        namespace="models", targets={"cheap": target("cheap", node_pool=pool("p"))}
    )
    found = route_permissions(with_pool, ["HTTPRoute", "NodePool"])
    assert {p.resource for p in found["models"] if p.of_cluster} == {"nodepools", "nodeclaims"}
    assert [(p.resource, p.verbs) for p in found["default"]] == [("events", ("list", "watch"))]


def test_a_mirror_of_some_fields_asks_for_them_alone() -> None:
    asked: list[dict[str, str]] = []

    class Asked(KeepingCluster):
        def listed(self, path: str, **query: str) -> Object:
            asked.append(query)
            return super().listed(path, **query)

    path = collection_of("Pod", "default")
    mirror = Mirror(cluster=Asked(), path=path, on_change=lambda _: None, fields="reason=X")
    with pytest.raises(Unavailable):
        mirror.reflector.step()
    assert [query.get("fieldSelector") for query in asked] == ["reason=X"]


def right(given: object) -> object:
    return int(str(given)) + 1


@pytest.fixture
def cheap() -> Iterator[AnsweringServed]:
    with answering(right) as served:
        yield served


@pytest.fixture
def dear() -> Iterator[AnsweringServed]:
    with answering(right) as served:
        yield served


def verifying(cluster: KeepingCluster, cheap: str, dear: str) -> RouteFollower:
    here = follower(cluster, ManualClock(), urls={"cheap": cheap, "dear": dear})
    here.ingest("deployments", DEPLOYMENTS)
    here.ingest("pods", ALL_RUN)
    return here


def settled(here: RouteFollower, words: str = "not verified yet") -> RouteSteered:
    """Return what it comes to once of no unit it says these words at the end."""
    began = time.monotonic()
    steered, _ = here.step()
    while any(why.endswith(words) for why in steered.unverified.values()):
        assert time.monotonic() < began + 20
        Event().wait(0.01)
        steered, _ = here.step()
    return steered


def test_while_no_unit_is_reached_nothing_sends_requests_and_a_route_stays_as_it_is() -> None:
    cluster = KeepingCluster()
    here = verifying(cluster, NOWHERE, NOWHERE)
    steered = settled(here)
    assert steered.direction.weights == {}
    assert [path for path in cluster.kept if "httproutes" in path] == []
    assert cluster.floor("cheap") == 2  # pods are wanted all the same
    assert [*steered.unverified] == ["cheap", "dear"]
    hearing(cluster, ManualClock())  # a follower that verifies nothing was there before
    settled(verifying(cluster, NOWHERE, NOWHERE))
    assert cluster.weights == {"m-cheap": 1000, "m-dear": 0}


def test_a_unit_that_is_not_reached_takes_none_and_lacks_no_capacity(
    cheap: AnsweringServed, dear: AnsweringServed
) -> None:
    cluster = KeepingCluster()
    here = verifying(cluster, cheap.url, dear.url)
    cheap.status = 503
    steered = settled(here)
    assert cluster.weights == {"m-cheap": 0, "m-dear": 1000}
    assert (steered.traffic.numbers["cheap"], cluster.events) == (2, [])
    assert "answered 503" in steered.unverified["cheap"]
    assert here.step()[1] == here.clock.now() + 1.0  # then it is asked again
    cheap.status = 200
    here.clock.sleep(1.0)
    settled(here, "answered 503")
    assert cluster.weights == {"m-cheap": 1000, "m-dear": 0}


def test_a_unit_that_does_not_agree_is_left_out_as_one_that_is_too_slow_is(
    cheap: AnsweringServed, dear: AnsweringServed
) -> None:
    cluster, told = KeepingCluster(), list[RouteSteered]()
    here = verifying(cluster, cheap.url, dear.url)
    here.on_steered = told.append
    cheap.status = 500
    steered = settled(here)
    assert (cluster.weights, cluster.events) == ({"m-cheap": 0, "m-dear": 1000}, [])
    assert (cluster.floor("cheap"), cluster.floor("dear")) == (1, 2)
    why = f"outputs do not agree: a probe failed: probe 1: {cheap.url}/: answered 500"
    assert told[-1].unverified == steered.unverified == {"cheap": why}
    # nor does it take any as the other one is lost: that has it as it comes back
    here.ingest("pods", {"a": ALL_RUN["a"], "c": pod("m-dear", 9, placed=False)})
    here.step()
    assert cluster.weights == {"m-cheap": 0, "m-dear": 1000}


def test_a_refusal_is_told_though_nothing_has_to_be_written(
    cheap: AnsweringServed, dear: AnsweringServed
) -> None:
    go, told = Event(), list[RouteSteered]()
    dear.answer = lambda given: -1 if go.wait(10) else None
    cluster = KeepingCluster()
    here = verifying(cluster, cheap.url, dear.url)
    here.on_steered = told.append
    while not any("httproutes" in path for path in cluster.kept):
        here.step()  # until cheap agrees
        Event().wait(0.01)
    go.set()
    settled(here)
    words = "outputs do not agree: score 0.000, that of cheap is 1.000"
    assert (told[-1].written, told[-1].unverified) == ((), {"dear": words})
    assert cluster.weights == {"m-cheap": 1000, "m-dear": 0}


def test_pods_that_come_back_after_all_were_gone_are_verified_again(
    cheap: AnsweringServed, dear: AnsweringServed
) -> None:
    cluster = KeepingCluster()
    here = verifying(cluster, cheap.url, dear.url)
    settled(here)
    assert cluster.weights == {"m-cheap": 1000, "m-dear": 0}
    here.ingest("pods", CHEAP_IS_LOST)
    here.step()
    cheap.answer = lambda _: 3
    here.ingest("pods", ALL_RUN)
    steered = settled(here)
    told = "outputs do not agree: score 0.000, that of cheap is 1.000"
    assert steered.unverified == {"cheap": told}
    assert cluster.weights == {"m-cheap": 0, "m-dear": 1000}


def test_probes_that_hang_keep_no_traffic_on_what_is_lost(
    cheap: AnsweringServed, dear: AnsweringServed
) -> None:
    cluster, go = KeepingCluster(), Event()
    here = verifying(cluster, cheap.url, dear.url)
    settled(here)
    here.ingest("pods", {"a": ALL_RUN["a"], "b": ALL_RUN["b"]})
    here.step()
    dear.answer = lambda given: right(given) if go.wait(10) else None
    here.ingest("pods", ALL_RUN)
    here.step()  # dear is being verified
    began = time.monotonic()
    here.ingest("pods", {"b": ALL_RUN["b"], "c": ALL_RUN["c"]})
    here.step()
    assert cluster.weights == {"m-cheap": 1000, "m-dear": 0}  # all on the one pod that may
    go.set()
    settled(here)
    assert cluster.weights == {"m-cheap": 533, "m-dear": 467}
    assert time.monotonic() < began + 5


def test_once_waits_for_what_probes_say(cheap: AnsweringServed, dear: AnsweringServed) -> None:
    cluster = KeepingCluster()
    cheap.status = 500
    urls = {"cheap": cheap.url, "dear": dear.url}
    steered = follower(cluster, ManualClock(), urls=urls).once()
    assert cluster.weights == {"m-cheap": 0, "m-dear": 1000}
    assert [*steered.unverified] == ["cheap"]


def test_it_goes_on_by_itself_as_units_are_verified(
    cheap: AnsweringServed, dear: AnsweringServed
) -> None:
    here = follower(KeepingCluster(), SystemClock(), urls={"cheap": cheap.url, "dear": dear.url})
    cheap.status = 500
    assert moves_traffic(here)


def test_units_are_verified_at_their_services_unless_it_is_said_where() -> None:
    assert cluster_route(namespace="models", path="/v1").urls == {
        "cheap": "http://m-cheap.models:8000/v1",
        "dear": "http://m-dear.models:8000/v1",
    }
