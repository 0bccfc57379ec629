"""What a user adds to pods: what is theirs gets in, what is not is named."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes_validate.utils import all_versions, schema_contents

from circinus.deploy.kubernetes.pod_template import (
    MERGE_KEYS,
    RETAINED,
    PodTemplate,
    read_pod_template,
)
from circinus.deploy.kubernetes.pods import RenderSettings, worker_objects
from circinus.pipelines.errors import InvalidInput
from tests.deploy.kubernetes.test_worker_objects import spec

_, DEPLOYMENT = worker_objects(spec(), RenderSettings(environment="/env"))
RENDERED = DEPLOYMENT["spec"]["template"]


def worker(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"spec": {"containers": [{"name": "worker", **fields}]}}


# --- What is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"spce": {}}, r"podTemplate\.spce must be a field of Kubernetes"),
        ({"spec": 3}, r"podTemplate\.spec must be valid"),
        ({"spec": {"toleration": []}}, r"podTemplate\.spec\.toleration must be a field of Kub"),
        ({"spec": {"tolerations": [{"kay": "x"}]}}, r"spec\.tolerations\[0\]\.kay must be a fie"),
        ({"spec": {"containers": [{"env": []}]}}, r"containers\[0\]\.name must be valid \(Fiel"),
        ({"spec": {"priority": "high"}}, r"podTemplate\.spec\.priority must be valid"),
        (worker(**{"$patch": "delete"}), r"containers\[0\]\.\$patch must be a field of Kuberne"),
        ({"metadata": {"name": "x"}}, r"podTemplate\.metadata\.name must be left out: pods of"),
        ({"metadata": {"labels": {"circinus.io/tier": "x"}}}, r"labels\.circinus\.io/tier must "),
        ({"metadata": {"labels": {"app.kubernetes.io/name": "circinus"}}}, r"/name must be left"),
        ({"metadata": {"annotations": {"circinus.io/x": "y"}}}, r"circinus\.io/x must be left o"),
        ({"spec": {"nodeSelector": {"circinus.io/machine": "1"}}}, r"io/machine must be left out"),
        ({"spec": {"nodeName": "n"}}, r"spec\.nodeName must be left out: the plan and its sched"),
        ({"spec": {"restartPolicy": "Never"}}, r"restartPolicy must be left out: a Deployment a"),
        ({"spec": {"volumes": [{"name": "tls", "emptyDir": {}}]}}, r"volumes\.tls must be left "),
        (worker(image="mine:1"), r"containers\.worker\.image must be left out: a setting.*mine:1"),
        (worker(imagePullPolicy="Always"), r"worker\.imagePullPolicy must be left out"),
        (worker(command=["sh"]), r"worker\.command must be left out: it is the worker's program"),
        (worker(args=["--share", "1"]), r"worker\.args must be left out"),
        (worker(ports=[{"containerPort": 1}]), r"worker\.ports must be left out"),
        (worker(livenessProbe={"periodSeconds": 1}), r"worker\.livenessProbe must be left out"),
        (worker(resources={"requests": {"cpu": "9"}}), r"resources\.requests\.cpu must be left"),
        (worker(resources={"limits": {"nvidia.com/gpu": "9"}}), r"nvidia\.com/gpu must be left"),
        (worker(resources={"limits": {"amd.com/gpu": "9"}}), r"amd\.com/gpu must be left"),
        (
            worker(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
            r"env\.NVIDIA_VISIBLE_DEVICES must be left out",
        ),
        ({"spec": None}, r"podTemplate\.spec must be left out"),
        ({"metadata": {"labels": None}}, r"podTemplate\.metadata\.labels must be left out"),
        ({"spec": {"nodeSelector": None}}, r"spec\.nodeSelector must be left out: the plan"),
        ({"spec": {"volumes": None}}, r"spec\.volumes must be left out: a setting"),
        (worker(resources={"requests": None}), r"resources\.requests must be left out: the plan"),
        (worker(volumeMounts=None), r"worker\.volumeMounts must be left out: it is the worker's"),
        (
            worker(env=[{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "100"}]),
            r"env\.CUDA_MPS_ACTIVE_THREAD_PERCENTAGE must be left out",
        ),
        (
            worker(volumeMounts=[{"name": "mine", "mountPath": "/etc/circinus-tls"}]),
            r"volumeMounts\./etc/circinus-tls must be left out",
        ),
    ],
)
def test_what_is_malformed_or_not_the_users_is_named(document: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        PodTemplate(document)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        PodTemplate(worker(image="mine:1", command=["sh"]))

    assert len(caught.value.violations) == 2


def test_a_file_that_is_not_there_or_holds_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="podTemplate must be a readable file"):
        read_pod_template(str(tmp_path / "none.yaml"))
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(InvalidInput, match="podTemplate must hold a mapping"):
        read_pod_template(str(tmp_path / "list.yaml"))


# --- What gets in --------------------------------------------------------------------


def test_what_clusters_of_others_ask_of_pods_gets_in() -> None:
    toleration = {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}
    near: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    given_spec = {
        "tolerations": [toleration],
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "batch",
        "serviceAccountName": "workers",
        "runtimeClassName": "gvisor",
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"podAntiAffinity": near},
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        "containers": [
            {
                "name": "worker",
                "env": [{"name": "HF_HOME", "value": "/models"}],
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                "resources": {"requests": {"memory": "3Gi"}, "limits": {"memory": "6Gi"}},
            },
            {"name": "sidecar", "image": "logs:1"},
        ],
    }
    template = PodTemplate({"metadata": {"annotations": {"a": "b"}}, "spec": given_spec})

    found = template.merged_into(RENDERED)
    pod, before = found["spec"], RENDERED["spec"]
    (mine, sidecar), (rendered,) = pod["containers"], before["containers"]

    for name in ("tolerations", "imagePullSecrets", "priorityClassName", "affinity"):
        assert pod[name] == given_spec[name]
    assert template.tolerations == (toleration,)
    assert pod["nodeSelector"] == {"circinus.io/tier": "cloud", "disk": "ssd"}
    assert [v["name"] for v in pod["volumes"]] == ["tls", "scratch", "environment", "models"]
    assert [m["mountPath"] for m in mine["volumeMounts"]][-1] == "/models"
    assert mine["resources"]["requests"] == {
        "cpu": rendered["resources"]["requests"]["cpu"],
        "memory": "3Gi",
    }
    for name in ("image", "args", "ports", "securityContext", "readinessProbe"):
        assert mine[name] == rendered[name]
    assert sidecar == {"name": "sidecar", "image": "logs:1"}
    assert found["metadata"] == {**RENDERED["metadata"], "annotations": {"a": "b"}}


def test_null_takes_out_and_a_volume_has_one_source() -> None:
    larger = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    changed = {"topologySpreadConstraints": None, "volumes": [larger]}
    found = PodTemplate({"spec": changed}).merged_into(RENDERED)["spec"]

    assert "topologySpreadConstraints" not in found
    assert next(v for v in found["volumes"] if v["name"] == "scratch") == larger


def test_spread_of_the_same_kind_is_merged_and_of_another_is_added() -> None:
    host = {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    zone = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
    given_spec = {"topologySpreadConstraints": [{**host, "maxSkew": 1}, zone]}

    found = PodTemplate({"spec": given_spec}).merged_into(RENDERED)["spec"]

    (ours,) = RENDERED["spec"]["topologySpreadConstraints"]
    assert found["topologySpreadConstraints"] == [{**ours, **host}, zone]


@pytest.mark.parametrize("text", ["", '{"spec": {"priorityClassName": "high"}}'])
def test_a_template_is_read_from_text(text: str) -> None:
    found = read_pod_template(text)

    assert found.document == ({"spec": {"priorityClassName": "high"}} if text else {})


def test_a_template_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text("spec: {hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]}")

    found = read_pod_template(str(tmp_path / "pods.yaml"))

    assert found.merged_into(RENDERED)["spec"]["hostAliases"][0]["hostnames"] == ["a"]


# --- Of any template -----------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
ITEMS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "value": st.text(max_size=3)}),
    max_size=3,
    unique_by=lambda item: item["name"],
)
TEMPLATES = st.builds(
    lambda env, labels, memory: {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": labels,
            "containers": [
                {"name": "worker", "env": env, "resources": {"requests": {"memory": memory}}}
            ],
        },
    },
    ITEMS,
    st.dictionaries(NAMES, st.text("xyz", max_size=3), max_size=2),
    st.sampled_from(["1Gi", "512Mi"]),
)


@given(TEMPLATES)
def test_merging_changes_neither_side_and_again_changes_nothing(document: dict[str, Any]) -> None:
    template, before = PodTemplate(document), copy.deepcopy((document, RENDERED))

    once = template.merged_into(RENDERED)

    assert (document, RENDERED) == before
    assert template.merged_into(once) == once
    assert PodTemplate().merged_into(RENDERED) == RENDERED
    mine, rendered = once["spec"]["containers"][0], RENDERED["spec"]["containers"][0]
    assert mine["resources"]["requests"]["cpu"] == rendered["resources"]["requests"]["cpu"]
    assert RENDERED["metadata"]["labels"].items() <= once["metadata"]["labels"].items()
    assert RENDERED["spec"]["nodeSelector"].items() <= once["spec"]["nodeSelector"].items()


def test_lists_are_merged_by_the_keys_of_the_api() -> None:
    """The oracle: what the API's own schemas say of the lists of a pod and its containers."""
    version = all_versions()[-1]
    folder = f"kubernetes-json-schema/v{version}-local"
    keys: dict[str, str] = {}
    retained: set[str] = set()
    for kind in ("podspec-v1", "container-v1"):
        properties = schema_contents(f"{folder}/{kind}.json", version)["properties"]
        for name, schema in properties.items():
            if "x-kubernetes-patch-merge-key" in schema:
                keys[name] = schema["x-kubernetes-patch-merge-key"]
                if "retainKeys" in schema["x-kubernetes-patch-strategy"]:
                    retained.add(name)

    assert keys == MERGE_KEYS
    assert retained == set(RETAINED)
