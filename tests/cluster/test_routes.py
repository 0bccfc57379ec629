"""Routes on a real API server and scheduler: objects that it takes, traffic that moves in time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml

from circinus.deploy.kubernetes.access import NotAllowed, require_access
from circinus.deploy.kubernetes.api import Clash, Object, connect
from circinus.deploy.kubernetes.api import Cluster as Connected
from circinus.deploy.kubernetes.routing.applied import (
    SEEING_NODES,
    RouteWriter,
    path_of_routed,
    route_permissions,
)
from circinus.deploy.kubernetes.routing.follower import RouteFollower, RouteSteered
from circinus.deploy.kubernetes.routing.objects import planned
from circinus.deploy.kubernetes.routing.targets import ClusterRoute, IngressFront
from circinus.pipelines.clock import SystemClock
from circinus.scheduler.routing.regimes import RegimeSettings
from tests.cluster import simulated
from tests.cluster.accounts import grant, grant_everywhere, stranger
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.definitions import OF_ROUTES, definition_of
from tests.cluster.rollouts import connected
from tests.cluster.strictly import violations
from tests.deploy.kubernetes.routes_in_a_cluster import PROMETHEUS, cluster_route, pool, target

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
SECONDS = 5.0
SETTLE_S = 2.0
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_LOST = {"m-cheap": 0, "m-dear": 1000}
_BACK = {"m-cheap": 1000, "m-dear": 0}


@pytest.fixture(scope="module", autouse=True)
def kinds(cluster: Cluster) -> None:
    """Let the cluster know the kinds of others."""
    for definition in map(definition_of, OF_ROUTES):
        if cluster.api.get(f"{_DEFINITIONS}/{definition['metadata']['name']}") is None:
            cluster.api.create(_DEFINITIONS, definition)
    for kind in OF_ROUTES:
        spec = definition_of(kind)["spec"]
        version = next(each["name"] for each in spec["versions"] if each["storage"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        eventually(partial(is_served, cluster, path), f"kind {kind}")


def is_served(cluster: Cluster, path: str) -> bool:
    try:
        return cluster.api.get(path) is not None
    except RuntimeError as error:  # just defined
        if "storage is (re)initializing" in str(error):
            return False
        raise


def route_of(namespace: str, **more: Any) -> ClusterRoute:  # noqa: ANN401
    """A route whose pools are named after the namespace: they belong to none."""
    pools = {"cheap": target("cheap", node_pool=pool(f"{namespace}-cheap"))}
    given = {"prometheus": PROMETHEUS, "targets": pools, **more}
    return cluster_route(namespace=namespace, regimes=RegimeSettings(settle_s=SETTLE_S), **given)


@pytest.mark.parametrize(
    "more",
    [{}, {"front": IngressFront()}, {"hostnames": ("m.example.org",), "path": "/v1"}],
    ids=["gateway", "ingress", "host and path"],
)
def test_every_object_is_valid_and_taken_strictly(
    cluster: Cluster, namespace: str, more: dict[str, Any]
) -> None:
    pools = {
        "cheap": target("cheap", node_pool=pool("p"), metric="requests_per_second"),
        "dear": target("dear", node_pool=pool("q", instance_types=("a.b", "c.d"))),
    }
    route = route_of(namespace, targets=pools, **more)
    documents = planned(route, 0.0)
    assert {each["kind"] for each in documents} >= {
        "NodePool",
        "ScaledObject",
        "HorizontalPodAutoscaler",
    }
    assert [violation for document in documents for violation in violations(document)] == []
    for document in documents:
        collection = path_of_routed(document).rpartition("/")[0]
        cluster.api.create(f"{collection}?dryRun=All&fieldValidation=Strict", document)


def test_a_field_that_nobody_knows_would_be_seen(namespace: str) -> None:
    route = route_of(namespace)
    for document in planned(route, 0.0):
        document["spec"]["nope"] = 1
        assert any("nope" in violation for violation in violations(document)), document["kind"]


def add_unit(
    cluster: Cluster, namespace: str, name: str, nodes: Mapping[str, str], replicas: int = 2
) -> None:
    """A unit's Deployment and Service, as a user has them, on nodes with labels."""
    labels = {"app": name}
    container = {"name": "server", "image": "example.org/server"}
    spec = {"containers": [container], "nodeSelector": dict(nodes)}
    body = {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    cluster.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", body)
    service = {"selector": labels, "ports": [{"port": 8000}]}
    cluster.api.create(
        f"/api/v1/namespaces/{namespace}/services",
        {"metadata": {"name": name}, "spec": service},
    )


@contextmanager
def units_on_nodes(cluster: Cluster, namespace: str) -> Iterator[dict[str, str]]:
    """Two units that run, each on a node of its own; give unit -> node."""
    nodes = {
        name: simulated.add_node(cluster.api, f"{namespace}-{name}", 0)
        for name in ("cheap", "dear")
    }
    try:
        for name, node in nodes.items():
            add_unit(cluster, namespace, f"m-{name}", {"kubernetes.io/hostname": node})
        eventually(partial(all_ready, cluster, namespace, 4), "four pods")
        yield nodes
    finally:
        for node in nodes.values():
            cluster.api.delete(f"/api/v1/nodes/{node}")


def all_ready(cluster: Cluster, namespace: str, count: int) -> bool:
    pods = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
    ready = [
        pod
        for pod in pods
        for condition in pod["status"].get("conditions", [])
        if (condition["type"], condition["status"]) == ("Ready", "True")
    ]
    return len(ready) == count


@contextmanager
def following(
    server: Connected, route: ClusterRoute, told: list[RouteSteered]
) -> Iterator[RouteFollower]:
    clock, over = SystemClock(), Event()
    follower = RouteFollower(
        cluster=server,
        route=route,
        clock=clock,
        writer=RouteWriter(cluster=server, clock=clock),
        on_steered=told.append,
    )
    thread = Thread(target=follower.run, args=[over])
    thread.start()
    try:
        yield follower
    finally:
        over.set()
        follower.wake()
        thread.join(timeout=30)
    assert not thread.is_alive()


def http_route(cluster: Cluster, namespace: str) -> Object | None:
    path = f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/httproutes/r"
    return cluster.api.get(path)


def weights(cluster: Cluster, namespace: str) -> dict[str, int]:
    found = http_route(cluster, namespace)
    rules = [] if found is None else found["spec"]["rules"]
    return {each["name"]: each["weight"] for rule in rules for each in rule.get("backendRefs", [])}


def moved_s(
    cluster: Cluster, namespace: str, wanted: Mapping[str, int], timeout_s: float = SECONDS
) -> float:
    """Seconds until the gateway is told these weights."""
    began = time.monotonic()
    eventually(
        lambda: weights(cluster, namespace) == wanted, f"{wanted}", timeout_s=timeout_s + 5.0
    )
    took_s = time.monotonic() - began
    assert took_s <= timeout_s
    return took_s


def evict(cluster: Cluster, namespace: str, unit: str) -> None:
    """Delete a unit's pods, as happens when its machines are taken away."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    for pod in cluster.api.items(path, labelSelector=f"app={unit}"):
        cluster.api.delete(f"{path}/{pod['metadata']['name']}?gracePeriodSeconds=0")


def told_events(cluster: Cluster, namespace: str) -> list[str]:
    """Messages of changed regimes, the oldest first: seconds lie between them."""
    events = cluster.api.items(f"/api/v1/namespaces/{namespace}/events")
    found = [event for event in events if event["reason"] == "RegimeChanged"]
    return [event["message"] for event in sorted(found, key=lambda e: str(e["lastTimestamp"]))]


def test_pods_that_no_node_takes_move_traffic_in_time_and_it_comes_back(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    route = route_of(namespace, targets={})  # no Karpenter: nothing is waited for
    told: list[RouteSteered] = []
    with units_on_nodes(cluster, namespace) as nodes:
        with following(connected(cluster), route, told):
            moved_s(cluster, namespace, _BACK, timeout_s=30.0)
            node = f"/api/v1/nodes/{nodes['cheap']}"
            cluster.api.merge(node, {"spec": {"unschedulable": True}})
            evict(cluster, namespace, "m-cheap")
            lost_s = moved_s(cluster, namespace, _LOST)
            waiting = cluster.api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/m-cheap")
            cluster.api.merge(node, {"spec": {"unschedulable": None}})
            back_s = moved_s(cluster, namespace, _BACK, timeout_s=SETTLE_S + SECONDS)
        assert waiting is not None
        assert waiting["spec"]["replicas"] == 2  # it stays wanted
        assert regime(cluster, namespace) == "cost"
        eventually(lambda: len(told_events(cluster, namespace)) == 2, "both changes are events")
        capacity, cost = told_events(cluster, namespace)
        assert capacity.startswith("cost -> capacity: cannot be had: cheap (")
        assert "pods find no node" in capacity
        assert cost.startswith("capacity -> cost: all that is wanted could be had for ")
    took_s = [each.reaction_s for each in told if each.reaction_s is not None]
    with capsys.disabled():
        sys.stdout.write(
            f"\nlost to moved {lost_s:.2f} s (of the event: {max(took_s):.3f} s), "
            f"back {back_s:.2f} s of which {SETTLE_S:g} s to settle\n"
        )


def test_a_node_that_is_deleted_and_an_api_server_that_dies_are_followed(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if cluster.control is None:
        pytest.skip("the API server is not ours to kill")
    route = route_of(namespace, targets={})
    with (
        units_on_nodes(cluster, namespace) as nodes,
        following(connected(cluster), route, []),
    ):
        moved_s(cluster, namespace, _BACK, timeout_s=30.0)
        cluster.control.kill_api_server()
        cluster.control.start_api_server()
        cluster.api.delete(f"/api/v1/nodes/{nodes['cheap']}")
        lost_s = moved_s(cluster, namespace, _LOST, timeout_s=30.0)
        simulated.add_node(cluster.api, f"{namespace}-cheap", 0)
        moved_s(cluster, namespace, _BACK, timeout_s=90.0)
        cluster.api.delete(f"/api/v1/nodes/{nodes['cheap']}")
        gone_s = moved_s(cluster, namespace, _LOST)
    with capsys.disabled():
        sys.stdout.write(
            f"\na node gone to moved {gone_s:.2f} s, as the API server comes back {lost_s:.2f} s\n"
        )


def test_a_claim_without_a_machine_moves_traffic_and_its_end_moves_it_back(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    route = route_of(namespace)
    name = f"{namespace}-cheap-abcde"
    with units_on_nodes(cluster, namespace), following(connected(cluster), route, []):
        moved_s(cluster, namespace, _BACK, timeout_s=30.0)
        cluster.api.merge(
            f"/apis/apps/v1/namespaces/{namespace}/deployments/m-cheap", {"spec": {"replicas": 1}}
        )
        one_of_two = {"m-cheap": 533, "m-dear": 467}  # a pod takes 100 of 150 / 0.8
        moved_s(cluster, namespace, one_of_two, timeout_s=30.0)
        add_claim(cluster, name, f"{namespace}-cheap")
        try:
            moved = moved_s(cluster, namespace, {"m-cheap": 333, "m-dear": 667})
            cluster.api.delete(f"{_CLAIMS}/{name}")
            back_s = moved_s(cluster, namespace, one_of_two, timeout_s=SETTLE_S + SECONDS)
        finally:
            cluster.api.delete(f"{_CLAIMS}/{name}")
    assert "InsufficientCapacity: no cheap.xlarge" in told_events(cluster, namespace)[0]
    with capsys.disabled():
        sys.stdout.write(f"\na claim refused to moved {moved:.2f} s, back {back_s:.2f} s\n")


def test_karpenters_refusal_is_capacity_mode_and_a_node_that_it_makes_is_not(
    cluster: Cluster, namespace: str
) -> None:
    route = route_of(namespace, launch_s=600.0)
    event = {
        "metadata": {"generateName": "refused-", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "name": f"{namespace}-cheap-abcde",
        },
        "type": "Warning",
        "reason": "InsufficientCapacityError",
        "message": "no cheap.xlarge",
        "lastTimestamp": "2999-01-01T00:00:00Z",  # after whatever waits
    }
    with units_on_nodes(cluster, namespace), following(connected(cluster), route, []):
        moved_s(cluster, namespace, _BACK, timeout_s=30.0)
        evict_and_cordon(cluster, namespace)
        moved_s(cluster, namespace, _LOST)  # nothing answers, though a node may come
        assert regime(cluster, namespace) == "cost"
        made = cluster.api.create("/api/v1/namespaces/default/events", event)
        try:
            eventually(
                lambda: regime(cluster, namespace) == "capacity", "capacity", timeout_s=SECONDS
            )
        finally:
            name = made["metadata"]["name"]
            cluster.api.delete(f"/api/v1/namespaces/default/events/{name}")
    assert "(no cheap.xlarge)" in told_events(cluster, namespace)[0]


def regime(cluster: Cluster, namespace: str) -> str:
    found = http_route(cluster, namespace)
    assert found is not None
    told: str = found["metadata"]["annotations"]["circinus.io/regime"]
    return told


def add_claim(cluster: Cluster, name: str, of: str) -> None:
    """A NodeClaim whose provider has no machine."""
    requirement = {
        "key": "node.kubernetes.io/instance-type",
        "operator": "In",
        "values": ["cheap.xlarge"],
    }
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    body = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": of}},
        "spec": {"nodeClassRef": reference, "requirements": [requirement]},
    }
    cluster.api.create(_CLAIMS, body)
    condition = {
        "type": "Launched",
        "status": "False",
        "reason": "InsufficientCapacity",
        "message": "no cheap.xlarge",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    cluster.api.merge(f"{_CLAIMS}/{name}/status", {"status": {"conditions": [condition]}})


def test_only_what_is_ours_is_written(cluster: Cluster, namespace: str) -> None:
    server, route = connected(cluster), route_of(namespace, targets={})
    theirs = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {
            "name": "r",
            "labels": {"team": "ml"},
            "annotations": {"external-dns.alpha.kubernetes.io/ttl": "60"},
        },
        "spec": {"hostnames": ["theirs.example.org"]},
    }
    path = path_of_routed(planned(route, 0.0)[0])
    with units_on_nodes(cluster, namespace):
        server.apply(path, theirs, manager="team-ml")
        with following(server, route, []):
            moved_s(cluster, namespace, _BACK, timeout_s=30.0)
            evict_and_cordon(cluster, namespace)
            moved_s(cluster, namespace, _LOST)
            found = http_route(cluster, namespace)
            assert found is not None
            assert found["spec"]["hostnames"] == ["theirs.example.org"]
            assert found["metadata"]["labels"]["team"] == "ml"
            annotations = found["metadata"]["annotations"]
            assert annotations["external-dns.alpha.kubernetes.io/ttl"] == "60"
            managers = {each["manager"] for each in found["metadata"]["managedFields"]}
            assert managers == {"team-ml", "circinus-route"}
        # What somebody takes over is theirs, until it is taken back.
        rules = {"rules": [{"backendRefs": [{"name": "m-dear", "port": 8000, "weight": 7}]}]}
        server.apply(path, {**theirs, "spec": rules}, manager="team-ml", force=True)
        clock = SystemClock()
        document = planned(route, 0.0)[0]
        with pytest.raises(Clash, match="team-ml"):
            RouteWriter(cluster=server, clock=clock).apply(document)
        assert weights(cluster, namespace) == {"m-dear": 7}
        RouteWriter(cluster=server, clock=clock, force=True).apply(document)
        assert weights(cluster, namespace) == _BACK


def evict_and_cordon(cluster: Cluster, namespace: str) -> None:
    node = f"/api/v1/nodes/{namespace}-cheap-0"
    cluster.api.merge(node, {"spec": {"unschedulable": True}})
    evict(cluster, namespace, "m-cheap")


def test_without_a_role_each_verb_that_is_missing_is_named_and_these_suffice(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    route = route_of(namespace)
    needs = route_permissions(route, [d["kind"] for d in planned(route, 0.0)])
    needs = {**needs, namespace: (*needs[namespace], SEEING_NODES)}
    with stranger(cluster, tmp_path) as kubeconfig:
        account = Connected(connect(kubeconfig))
        with pytest.raises(NotAllowed, match="patch httproutes"):
            require_access(account, namespace, needs[namespace])
        for where, each in needs.items():
            rules = [
                {"apiGroups": [n.group], "resources": [n.resource], "verbs": [*n.verbs]}
                for n in each
            ]
            of_cluster = [rule for n, rule in zip(each, rules, strict=True) if n.of_cluster]
            grant(cluster, where, [rule for rule in rules if rule not in of_cluster])
            if of_cluster:
                grant_everywhere(cluster, of_cluster)
        try:
            for where, each in needs.items():
                eventually(partial(allowed, account, where, each), f"the roles in {where}")
            with units_on_nodes(cluster, namespace), following(account, route, []):
                moved_s(cluster, namespace, _BACK, timeout_s=30.0)
        finally:
            grant_everywhere(cluster, [])
            grant(cluster, "default", [])


def allowed(account: Connected, namespace: str, needs: Any) -> bool:  # noqa: ANN401
    try:
        require_access(account, namespace, needs)
    except NotAllowed:
        return False
    return True


def test_the_command_follows_until_it_is_told_to_end(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    common = {"model": "m", "framework": "f", "most_per_s": 100.0, "latency_s": 0.5}
    units = [
        {
            **common,
            "name": name,
            "hardware": f"{name}.xlarge",
            "price_usd_per_hour": price,
            "kubernetes": {"service": f"m-{name}", "port": 8000, "deployment": f"m-{name}"},
        }
        for name, price in (("cheap", 0.5), ("dear", 1.0))
    ]
    document = {
        "name": "r",
        "demand_per_s": 150.0,
        "latency_s": 0.9,
        "regimes": {"settle_s": SETTLE_S},
        "kubernetes": {"namespace": namespace, "gateway": {"name": "gateway"}},
        "units": units,
    }
    file = tmp_path / "route.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "circinus.api.cli", "route", "follow", str(file)]
    command += ["--kubeconfig", str(cluster.kubeconfig)]
    with units_on_nodes(cluster, namespace):
        done = ended([*command, "--once"])
        assert done.returncode == 0, done.stderr
        assert "Cost mode since" in done.stdout
        assert "+ HTTPRoute/r" in done.stdout
        command.append("--json")
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            eventually(lambda: weights(cluster, namespace) == _BACK, "weights", timeout_s=60.0)
            evict_and_cordon(cluster, namespace)
            moved_s(cluster, namespace, _LOST, timeout_s=30.0)
            running.send_signal(signal.SIGTERM)
            out, told = running.communicate(timeout=30)
        finally:
            running.kill()
        assert running.returncode == 0, told
        assert json.loads(out)["regime"] == "capacity"
        path = f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/httproutes/r"
        theirs = {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "r"},
            "spec": {"rules": [{"backendRefs": [{"name": "m-dear", "port": 8000}]}]},
        }
        connected(cluster).apply(path, theirs, manager="team-ml", force=True)
        refused = ended([*command, "--once"])
        assert refused.returncode == 6
        assert "`--force` takes the fields over" in json.loads(refused.stdout)["error"]["message"]
        assert ended([*command, "--once", "--force"]).returncode == 0
    assert weights(cluster, namespace) == _LOST


def ended(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
