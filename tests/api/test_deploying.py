"""`circinus deploy` without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from circinus.api.cli.kubernetes.deploying import plan_in
from circinus.pipelines.errors import InvalidInput
from tests.api.cli.commands import invoke

SHARES = {"device": 0.5, "edge": 0.25}


def plan_document() -> dict[str, Any]:
    """A plan of `digits` as `circinus export` writes it."""
    from circinus.pipelines.registry import load_pipeline

    graph = load_pipeline("digits").graph
    names = [operator.name for operator in graph.operators]
    tiers = ["device", *(["edge"] * (len(names) - 1))]
    estimate = {"value": 0.9, "low": 0.8, "high": 1.0, "confidence": 0.95, "inputs": 20}
    return {
        "id": "p-1",
        "pipeline": "digits",
        "configuration": {
            op.name: {knob.name: knob.values[0] for knob in op.knobs} for op in graph.operators
        },
        "placement": dict(zip(names, tiers, strict=True)),
        "allocation": {n: SHARES[t] for n, t in zip(names, tiers, strict=True)},
        "replicas": dict.fromkeys(names, 1),
        "demand": [],
        "accuracy": estimate,
        "latency_s": estimate,
        "cost_usd_per_hour": 0.1,
    }


def run(*words: str) -> tuple[int, str]:
    result = invoke("deploy", *words)
    return result.exit_code, result.output


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps(plan_document()))
    return path


def test_a_query_without_its_plan_is_refused() -> None:
    with pytest.raises(InvalidInput, match="plan_id must be among the plans of the query"):
        plan_in({"id": "q", "plan_id": "p-2", "plans": [plan_document()]})


def test_a_document_that_is_no_plan_is_refused_with_its_fields() -> None:
    with pytest.raises(InvalidInput, match="pipeline"):
        plan_in({"id": "q"})


def test_a_plan_that_was_not_measured_is_refused(plan_file: Path) -> None:
    document = plan_document()
    document["accuracy"]["value"] = None
    plan_file.write_text(json.dumps(document))

    code, output = run("render", str(plan_file))

    assert code == 2
    assert "plan must have been measured" in output


def test_an_exported_query_gives_its_chosen_plan() -> None:
    query_id, view = plan_in({"id": "q", "plan_id": "p-1", "plans": [plan_document()]})

    assert (query_id, view.id) == ("q", "p-1")


def test_rendering_needs_no_cluster(plan_file: Path) -> None:
    code, output = run("render", str(plan_file), "--namespace", "demo", "--machine-cpu", "2")
    objects = list(yaml.safe_load_all(output))
    deployments = [each for each in objects if each["kind"] == "Deployment"]
    asked = [
        d["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        for d in deployments
    ]

    assert code == 0
    assert {each["metadata"]["namespace"] for each in objects} == {"demo"}
    assert sorted(asked) == ["1", "500m"]  # 0.5 and 0.25 of two cores


def test_an_image_without_a_version_is_refused(plan_file: Path) -> None:
    code, output = run("render", str(plan_file), "--image", "worker:latest")

    assert code == 2
    assert "image must have a tag other than latest, or a digest, got 'worker:latest'" in output


def test_a_pod_template_is_merged_into_all_workers_or_refused(
    plan_file: Path, tmp_path: Path
) -> None:
    template = tmp_path / "pods.yaml"
    template.write_text("spec: {containers: [{name: worker, image: mine}]}")
    code, output = run("render", str(plan_file), "--pod-template", str(template))
    assert code == 2
    assert "podTemplate.spec.containers.worker.image must be left out" in output

    template.write_text("spec: {tolerations: [{key: team, operator: Exists}]}")
    _, output = run("render", str(plan_file), "--pod-template", str(template))

    objects = list(yaml.safe_load_all(output))
    pods = [o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment"]
    assert [pod["tolerations"] for pod in pods] == [[{"key": "team", "operator": "Exists"}]] * 2


def test_helm_values_and_json_hold_the_same_objects(plan_file: Path) -> None:
    _, helm = run("render", str(plan_file), "--format", "helm")
    _, document = run("render", str(plan_file), "--json")

    assert yaml.safe_load(helm)["manifests"] == json.loads(document)["objects"]


def test_without_kubectl_what_needs_it_is_bad_input(
    plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, output = run("diff", str(plan_file))

    assert code == 2
    assert "kubectl must be installed" in output
