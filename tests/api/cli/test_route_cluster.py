"""`circinus route follow`, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.cli.commands import invoke

GATEWAY: dict[str, Any] = {"gateway": {"name": "public"}}


def unit(name: str, **kubernetes: Any) -> dict[str, Any]:  # noqa: ANN401
    place = {"service": f"m-{name}", "port": 8000, "deployment": f"m-{name}"} | kubernetes
    return {
        "name": name,
        "model": "m",
        "hardware": f"{name}.xlarge",
        "framework": "f",
        "price_usd_per_hour": 1.0,
        "most_per_s": 100.0,
        "latency_s": 0.5,
        "kubernetes": place,
    }


def route(tmp_path: Path, **changes: object) -> str:
    document = {
        "name": "r",
        "demand_per_s": 150.0,
        "latency_s": 0.9,
        "kubernetes": GATEWAY,
        "units": [unit("cheap") | {"price_usd_per_hour": 0.5}, unit("dear")],
    }
    path = tmp_path / "route.yaml"
    path.write_text(yaml.safe_dump(document | changes))
    return str(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kubernetes": None}, "kubernetes must be given, to be in a cluster"),
        ({"kubernetes": {}}, "kubernetes must have gateway or ingress, one of both"),
        ({"kubernetes": GATEWAY | {"ingress": {}}}, "kubernetes must have gateway or ingress"),
        ({"kubernetes": GATEWAY | {"path": "v1"}}, "kubernetes.path must match"),
        ({"kubernetes": GATEWAY | {"namespace": "My"}}, "kubernetes.namespace must match"),
        ({"kubernetes": GATEWAY | {"hostnames": ["a b"]}}, "kubernetes.hostnames[0] must match"),
        ({"kubernetes": GATEWAY | {"launch_s": -1.0}}, "kubernetes.launch_s must be >= 0"),
        ({"units": [unit("a") | {"kubernetes": None}]}, "unit a.kubernetes must be given"),
        ({"units": [unit("a", port=0)]}, "units[0].kubernetes.port must be >= 1"),
        ({"units": [unit("a", least=-1)]}, "units[0].kubernetes.least must be >= 0"),
        ({"units": [unit("a"), unit("b", deployment="m-a")]}, "must not repeat"),
        ({"units": [unit("a") | {"name": "A"}]}, "units.name must be at most 32 of a-z"),
    ],
)
def test_a_route_that_cannot_be_in_a_cluster_ends_in_2_and_says_why(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    done = invoke("route", "follow", route(tmp_path, **changes), "--render")
    told = " ".join((done.stdout + done.stderr).split())
    assert (done.exit_code, message in told) == (2, True), told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric", "a:b"], "--metric must be with --probes, got 'a:b'"),
        (["--probes", "none.jsonl"], "--probes must be a readable file"),
        (["--probes", "probes.jsonl", "--metric", "b"], "--metric must be module:function"),
    ],
)
def test_probes_that_cannot_be_sent_end_in_2_and_say_why(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "probes.jsonl").write_text('{"input": 1, "expected": 2}')
    done = invoke("route", "follow", route(tmp_path), "--render", *arguments)
    told = " ".join((done.stdout + done.stderr).split())
    assert (done.exit_code, message in told) == (2, True), told


def test_without_a_way_to_a_cluster_it_ends_in_2(tmp_path: Path) -> None:
    done = invoke("route", "follow", route(tmp_path), "--kubeconfig", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert "kubeconfig must lead to a cluster" in done.stderr


def test_what_is_rendered_is_yaml_that_a_cluster_takes_and_needs_none(tmp_path: Path) -> None:
    pool = {"node_class": {"name": "default"}, "requirements": [{"key": "a/b", "values": ["c"]}]}
    prometheus = {"address": "http://prometheus:9090", "query": 'sum(r{s="$service"})'}
    given = route(
        tmp_path,
        kubernetes=GATEWAY | {"prometheus": prometheus},
        units=[unit("a", node_pool=pool), unit("b", metric="requests_per_second")],
    )
    done = invoke("route", "follow", given, "--render")
    assert done.exit_code == 0, done.stderr
    found = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert [*found] == ["HTTPRoute", "NodePool", "ScaledObject", "HorizontalPodAutoscaler"]
    assert found["NodePool"]["metadata"]["name"] == "r-a"
    requirements = found["NodePool"]["spec"]["template"]["spec"]["requirements"]
    assert [each["values"] for each in requirements] == [["a.xlarge"], ["c"]]
    as_json = invoke("route", "follow", given, "--render", "--json")
    kinds = [each["kind"] for each in json.loads(as_json.stdout)["objects"]]
    assert kinds == [*found]


def test_as_published_every_unit_has_a_part(tmp_path: Path) -> None:
    done = invoke("route", "follow", route(tmp_path, method="published"), "--render")
    (found,) = yaml.safe_load_all(done.stdout)
    (rule,) = found["spec"]["rules"]
    # 1 / 0.5 and 1 / 1
    assert [backend["weight"] for backend in rule["backendRefs"]] == [667, 333]


def test_an_ingress_is_rendered_as_the_paper_has_it(tmp_path: Path) -> None:
    given = route(tmp_path, kubernetes={"ingress": {}, "namespace": "models"})
    (found,) = yaml.safe_load_all(invoke("route", "follow", given, "--render").stdout)
    assert (found["kind"], found["metadata"]["namespace"]) == ("Ingress", "models")
    assert found["spec"]["ingressClassName"] == "alb"


def test_weights_are_told_of_a_route_that_is_in_a_cluster_too(tmp_path: Path) -> None:
    assert invoke("route", "weights", route(tmp_path)).exit_code == 0
