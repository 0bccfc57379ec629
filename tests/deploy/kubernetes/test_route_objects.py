"""The objects of a route, as they are rendered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.kubernetes.routing.objects import (
    RouteDirection,
    floors_of,
    front_of,
    node_pools_of,
    scalers_of,
    whole_weights,
)
from circinus.deploy.kubernetes.routing.targets import IngressFront, UnitNodePool
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.routing.regimes import Regime
from tests.deploy.kubernetes.routes_in_a_cluster import (
    PROMETHEUS,
    cluster_route,
    pool,
    target,
    unit,
)
from tests.deploy.valid_objects import assert_valid

HERE = RouteDirection(
    regime=Regime.CAPACITY,
    why="cannot be had: cheap (0 of 2)",
    since="2026-01-01T00:00:00Z",
    weights={"cheap": 0.25, "dear": 0.75},
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"targets": {"cheap": target("dear")}},
            "deployment of a unit must not repeat",
        ),
        ({"launch_s": -1.0}, "kubernetes.launch_s must be finite and >= 0"),
        ({"front": IngressFront()}, "units must be at most 5 here, got 6"),
    ],
)
def test_a_route_that_cannot_be_in_a_cluster_says_why(
    change: dict[str, Any], message: str
) -> None:
    many = [unit(f"u{i}") for i in range(6)] if "front" in change else []
    with pytest.raises(InvalidInput, match=message):
        cluster_route(*many, **change)


def test_a_name_that_no_object_can_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"units.name must be at most 32 of a-z"):
        cluster_route(unit("Cheap_one"))


def test_weights_that_are_all_nothing_stay_so() -> None:
    assert whole_weights({"a": 0.0, "b": 0.0}, 1000) == {"a": 0, "b": 0}


def test_what_is_left_goes_to_the_largest_remainders() -> None:
    # 333.33 each: one of them gets 334
    assert whole_weights(dict.fromkeys("abc", 1 / 3), 1000) == {"a": 334, "b": 333, "c": 333}
    assert whole_weights({"a": 0.9996, "b": 0.0004}, 1000) == {"a": 1000, "b": 0}


_parts = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(0, 1), min_size=1)


@given(_parts.filter(lambda parts: sum(parts.values()) > 1e-9), st.sampled_from([999, 1000]))
def test_whole_weights_sum_up_and_are_within_one_of_their_part(
    parts: dict[str, float], total: int
) -> None:
    found, whole = whole_weights(parts, total), sum(parts.values())
    assert sum(found.values()) == total
    for name, part in parts.items():
        assert abs(found[name] - part / whole * total) < 1 + 1e-6
        assert part > 0 or found[name] == 0


def test_an_http_route_has_every_unit_with_its_weight_and_says_why() -> None:
    found = front_of(cluster_route(hostnames=("m.example.org",)), HERE)
    (rule,) = found["spec"]["rules"]
    assert rule["backendRefs"] == [
        {"name": "m-cheap", "port": 8000, "weight": 250},
        {"name": "m-dear", "port": 8000, "weight": 750},
    ]
    assert found["spec"]["hostnames"] == ["m.example.org"]
    assert found["metadata"]["annotations"] == {
        "circinus.io/regime": "capacity",
        "circinus.io/regime-why": "cannot be had: cheap (0 of 2)",
        "circinus.io/regime-since": "2026-01-01T00:00:00Z",
        "circinus.io/traffic-weights": "cheap=250 dear=750",
    }


def test_a_unit_without_traffic_stays_with_weight_0() -> None:
    alone = RouteDirection(regime=Regime.COST, why="", since="", weights={"dear": 1.0})
    (rule,) = front_of(cluster_route(), alone)["spec"]["rules"]
    assert [backend["weight"] for backend in rule["backendRefs"]] == [0, 1000]


@pytest.mark.parametrize("hosts", [(), ("a.example.org", "b.example.org")])
def test_an_ingress_weighs_target_groups_by_an_action(hosts: tuple[str, ...]) -> None:
    found = front_of(cluster_route(front=IngressFront(), hostnames=hosts), HERE)
    assert_valid(found)
    annotations = found["metadata"]["annotations"]
    (rule, *_) = found["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend["port"] == {"name": "use-annotation"}
    action = json.loads(annotations[f"alb.ingress.kubernetes.io/actions.{backend['name']}"])
    groups = action["forwardConfig"]["targetGroups"]
    # 249.75 and 749.25 of 999, the most that a balancer takes
    assert [(each["serviceName"], each["weight"]) for each in groups] == [
        ("m-cheap", 250),
        ("m-dear", 749),
    ]
    assert [rule.get("host") for rule in found["spec"]["rules"]] == list(hosts or [None])


def test_nothing_is_scaled_that_nobody_measures() -> None:
    assert scalers_of(cluster_route(), {"cheap": 2}) == []


def test_kedas_threshold_is_four_fifths_of_the_breaking_point() -> None:
    route = cluster_route(unit("cheap", per_s=105.0), prometheus=PROMETHEUS, demand_per_s=300.0)
    (found,) = scalers_of(route, {"cheap": 3})
    (trigger,) = found["spec"]["triggers"]
    assert trigger["metadata"] == {
        "serverAddress": "http://prometheus:9090",
        "query": 'sum(rate(requests_total{service="m-cheap",namespace="default"}[1m]))',
        "threshold": "84",
        "ignoreNullValues": "false",
    }
    spec = found["spec"]
    # 300 / 84 = 3.6 would serve all of the demand
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (3, 4)


def test_nothing_is_scaled_down_while_the_metric_is_away() -> None:
    route = cluster_route(unit("cheap", per_s=105.0), prometheus=PROMETHEUS, demand_per_s=300.0)
    (found,) = scalers_of(route, {"cheap": 0})
    spec = found["spec"]
    assert spec["fallback"] == {"failureThreshold": 3, "replicas": spec["maxReplicaCount"]}
    assert spec["fallback"]["replicas"] == 4


def test_an_autoscaler_of_kubernetes_asks_for_the_metric_of_pods() -> None:
    route = cluster_route(
        unit("cheap", per_s=105.0, available=7),
        targets={"cheap": target("cheap", metric="requests_per_second", least=0)},
        prometheus=PROMETHEUS,  # the unit's own metric comes first
    )
    (found,) = scalers_of(route, {"cheap": 0})
    assert_valid(found)
    assert found["kind"] == "HorizontalPodAutoscaler"
    assert (found["spec"]["minReplicas"], found["spec"]["maxReplicas"]) == (1, 7)
    (metric,) = found["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == "requests_per_second"
    assert metric["pods"]["target"]["averageValue"] == "84000m"


def test_pods_of_a_lost_unit_stay_wanted_within_what_can_be_had() -> None:
    route = cluster_route(
        unit("cheap", available=2), unit("dear"), unit("slow", latency_s=5.0, available=9)
    )
    assert floors_of(route, {"cheap": 3}, {"dear": 2}) == {"cheap": 2, "dear": 2}
    assert floors_of(route, {}) == {"cheap": 1, "dear": 1}


def test_a_pool_of_ones_own_is_only_watched() -> None:
    route = cluster_route(targets={"cheap": target("cheap", node_pool=UnitNodePool(name="p"))})
    assert node_pools_of(route) == []


def test_a_node_pool_has_the_units_hardware_and_more_that_is_asked_for() -> None:
    spot = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    given = pool("p", requirements=(spot,))
    (found,) = node_pools_of(cluster_route(targets={"cheap": target("cheap", node_pool=given)}))
    spec = found["spec"]["template"]["spec"]
    assert found["metadata"]["name"] == "p"
    assert spec["requirements"] == [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["cheap.xlarge"]},
        spot,
    ]
    assert spec["nodeClassRef"] == {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "default",
    }
