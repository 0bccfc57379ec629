"""`circinus doctor --cluster` on a real control plane: what is missing is named, and fails."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from circinus.api.operator.definition import definition
from circinus.deploy.kubernetes.access import DEPLOYER, DISCOVERY, OPERATOR, RETIREMENT
from circinus.deploy.kubernetes.api import Cluster as ApiServer
from circinus.deploy.kubernetes.api import connect
from circinus.deploy.kubernetes.fitness.api_server import (
    INSTALLER,
    INSTALLER_OF_DEFINITION,
    INSTALLER_OF_DISCOVERY,
)
from circinus.deploy.kubernetes.fitness.check import Check
from circinus.deploy.kubernetes.fitness.cluster import look
from circinus.deploy.kubernetes.fitness.needs import ClusterNeeds
from tests.api.cli.commands import invoke
from tests.cluster import simulated
from tests.cluster.accounts import grant, grant_everywhere, stranger
from tests.cluster.api import eventually
from tests.cluster.chart import rendered
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

GPU = {"key": "gpu", "effect": "NoSchedule"}
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def doctor(kubeconfig: Path, *more: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code, and the checks by name."""
    result = invoke("doctor", "--cluster", "--json", "--kubeconfig", str(kubeconfig), *more)
    assert "Traceback" not in result.output
    found = json.loads(result.stdout)
    return result.exit_code, {check["name"]: check for check in found["checks"]}


def looked(cluster: Cluster, needs: ClusterNeeds, wanted: Mapping[str, Any]) -> list[Check]:
    return [*look(ApiServer(connect(cluster.kubeconfig)), needs, dict(wanted))]


@contextmanager
def storage_class(cluster: Cluster, name: str, *, default: bool) -> Iterator[None]:
    note = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    metadata = {"name": name, "annotations": note}
    cluster.api.create(_CLASSES, {"metadata": metadata, "provisioner": "none"})
    try:
        yield
    finally:
        cluster.api.delete(f"{_CLASSES}/{name}")


def test_what_a_bare_cluster_lacks_is_named_with_what_to_do(cluster: Cluster) -> None:
    code, found = doctor(cluster.kubeconfig, "--namespace", "not-there")

    assert code == 1
    assert found["API server"]["detail"].startswith("v1.")
    assert found["namespace"]["state"] == "note"  # who installs may make it
    assert "kubectl create namespace not-there" in found["namespace"]["remedy"]
    assert found["storage"]["state"] == "fail"
    assert "persistence.storageClass" in found["storage"]["remedy"]
    assert found["cluster DNS"]["state"] == "note"
    assert "operator.serviceUrl" in found["cluster DNS"]["remedy"]
    assert {check["state"] for name, check in found.items() if "rights" in name} == {"ok"}
    assert [name for name, check in found.items() if check["state"] == "fail"] == ["storage"]


def test_a_cluster_that_has_everything_is_ready(cluster: Cluster, namespace: str) -> None:
    with storage_class(cluster, "usual", default=True):
        code, found = doctor(cluster.kubeconfig, "--namespace", namespace)

    assert code == 0, found
    assert found["namespace"] == check("namespace", "ok", namespace)
    assert found["storage"] == check("storage", "ok", "storage class usual")
    assert found["tier device"]["detail"].startswith("2 of 2 nodes count as machines: ")


def test_values_say_what_is_needed(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    names = [simulated.add_node(cluster.api, "ward", number) for number in range(2)]
    cluster.api.merge(f"/api/v1/nodes/{names[1]}", {"spec": {"unschedulable": True}})
    eventually(lambda: simulated.is_ready(cluster.api, names[0]), "the node ready")
    cluster.api.merge(f"/api/v1/nodes/{names[0]}", {"spec": {"taints": [GPU]}})
    values: dict[str, Any] = {
        "infrastructure": {
            "document": {"name": "one", "tiers": [{"name": "ward", "machines": 1}]}
        },
        "deployment": {"target": "kubernetes"},
        "persistence": {"enabled": False},
        "operator": {"enabled": False},
    }
    file = tmp_path / "values.yaml"
    arguments = (cluster.kubeconfig, "--namespace", namespace, "--values", str(file))
    try:
        file.write_text(yaml.safe_dump(values))
        code, found = doctor(*arguments)
        assert code == 1
        assert found["tier ward"]["detail"] == (
            "0 of 2 nodes count as machines; "
            f"{names[0]} has the taint gpu:NoSchedule, which our pods do not tolerate; "
            f"{names[1]} is cordoned"
        )
        assert not {"storage", "cluster DNS", "rights to count nodes"} & set(found)

        tolerated = {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}
        values["deployment"]["podTemplate"] = tolerated
        file.write_text(yaml.safe_dump(values))
        code, found = doctor(*arguments)
        assert code == 0, found
        assert found["tier ward"]["state"] == "ok"
    finally:
        for name in names:
            cluster.api.delete(f"/api/v1/nodes/{name}")


def test_an_account_without_rights_is_told_each_and_what_it_may_not_see(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with stranger(cluster, tmp_path) as kubeconfig:
        code, found = doctor(kubeconfig, "--namespace", namespace)

        assert code == 1
        lacking = found["rights to install"]["detail"]
        for one in (*INSTALLER, *INSTALLER_OF_DISCOVERY, *INSTALLER_OF_DEFINITION):
            assert f"{', '.join(one.verbs)} {one.resource}" in lacking
        for name in ("run plans as pods", "count nodes", "follow PipelineQuery objects"):
            assert found[f"rights to {name}"]["state"] == "fail"
        assert found["nodes"]["state"] == "note"
        assert "may not look" in found["nodes"]["detail"]

        needs = (*INSTALLER, *DEPLOYER, *OPERATOR, *RETIREMENT)
        rules = [
            {"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)}
            for one in needs
        ]
        everywhere = [
            {"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)}
            for one in (*DISCOVERY, *INSTALLER_OF_DISCOVERY, *INSTALLER_OF_DEFINITION)
        ]
        grant(cluster, namespace, rules)
        grant_everywhere(cluster, everywhere)
        try:

            def refused() -> list[str]:
                _, now = doctor(kubeconfig, "--namespace", namespace)
                return [n for n, one in now.items() if "rights" in n and one["state"] != "ok"]

            eventually(lambda: refused() == [], "the rights to suffice", timeout_s=20)
        finally:
            grant_everywhere(cluster, [])


def test_an_account_that_runs_needs_the_rights_of_one_part(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    needs = ClusterNeeds(namespace=namespace, installs=False)
    with stranger(cluster, tmp_path) as kubeconfig:
        server = ApiServer(connect(kubeconfig))

        def states() -> dict[str, str]:
            found = look(server, needs, definition())
            return {one.name: one.state for one in found if one.name.startswith("rights")}

        assert set(states().values()) == {"fail"}
        rules = [
            {"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)}
            for one in OPERATOR
        ]
        grant(cluster, namespace, rules)
        wanted = {
            "rights to run plans as pods": "note",
            "rights to count nodes": "note",
            "rights to follow PipelineQuery objects": "ok",
        }
        eventually(lambda: states() == wanted, "the rights of an operator", timeout_s=20)


def test_the_definition_of_another_release_fails_and_ones_own_does_not(cluster: Cluster) -> None:
    wanted = under("doctor.test")
    older = deepcopy(wanted)
    del older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]["weight"]
    name = wanted["metadata"]["name"]

    assert of_kind(cluster, wanted).state == "note"  # installing makes it
    assert of_kind(cluster, wanted).remedy == "helm install does it"
    assert of_kind(cluster, wanted, installs=False).state == "fail"
    assert of_kind(cluster, wanted, defines=False).state == "fail"
    try:
        for document, state in ((older, "fail"), (wanted, "ok")):
            cluster.api.create(_DEFINITIONS, document)
            served = f"/apis/doctor.test/{wanted['spec']['versions'][0]['name']}"
            eventually(lambda path=served: cluster.api.get(path) is not None, "the group")  # type: ignore[misc]  # a default binds it
            found = of_kind(cluster, wanted)
            assert found.state == state, found
            assert ("weight" in found.detail) == (state == "fail")
            if state == "fail":  # helm upgrades that of its own release
                notes = {"meta.helm.sh/release-namespace": "default"}
                path = f"{_DEFINITIONS}/{name}"
                cluster.api.merge(path, {"metadata": {"annotations": notes}})
                assert of_kind(cluster, wanted).state == "note"
                assert of_kind(cluster, wanted, defines=False).state == "fail"
            cluster.api.delete(f"{_DEFINITIONS}/{name}")
            eventually(lambda path=served: cluster.api.get(path) is None, "the group gone")  # type: ignore[misc]  # a default binds it
    finally:
        cluster.api.delete(f"{_DEFINITIONS}/{name}")


def of_kind(cluster: Cluster, wanted: Mapping[str, Any], **needs: bool) -> Check:
    """Return what is found of a definition."""
    found = looked(cluster, ClusterNeeds(**needs), wanted)  # type: ignore[arg-type]  # truths
    return next(one for one in found if one.name.startswith("PipelineQuery"))


def under(group: str) -> dict[str, Any]:
    """Return our definition under another group, which no other test needs."""
    document = deepcopy(definition())
    document["spec"]["group"] = group
    document["metadata"]["name"] = f"{document['spec']['names']['plural']}.{group}"
    return document


def test_a_namespace_that_is_being_deleted_fails(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/doctor-leaving"
    metadata = {"name": "doctor-leaving"}
    held = {"metadata": {"name": "held", "finalizers": ["test.circinus.io/held"]}}
    cluster.api.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": metadata})
    cluster.api.create(f"{path}/configmaps", held)
    try:
        cluster.api.delete(path)
        _, found = doctor(cluster.kubeconfig, "--namespace", "doctor-leaving")
        assert found["namespace"]["state"] == "fail"
        assert found["namespace"]["detail"] == "doctor-leaving is being deleted"
    finally:
        cluster.api.merge(f"{path}/configmaps/held", {"metadata": {"finalizers": None}})


def test_a_claim_or_a_class_that_is_not_there_is_named(cluster: Cluster, namespace: str) -> None:
    def storage(**needs: Any) -> Check:  # noqa: ANN401 - fields
        given = ClusterNeeds(namespace=namespace, **needs)
        return next(one for one in looked(cluster, given, definition()) if one.name == "storage")

    assert (
        storage(existing_claim="mine").detail == f"there is no claim mine in namespace {namespace}"
    )
    with storage_class(cluster, "slow", default=False):
        told = "there is no storage class fast (those there are: slow)"
        assert storage(storage_class="fast").detail == told
        assert storage().state == "fail"  # it is no default
        assert storage(storage_class="slow").state == "ok"
    assert storage(storage_class="-").state == "ok"


def test_the_rights_to_install_cover_what_the_chart_makes() -> None:
    """Its kinds, as `helm template` gives them with everything that needs a right turned on."""
    documents = rendered("deployment.target=kubernetes", "discovery.enabled=true")
    asked = (*INSTALLER, *INSTALLER_OF_DISCOVERY, *INSTALLER_OF_DEFINITION)
    covered = {(one.group, one.resource) for one in asked}
    made = {group_and_resource(document) for document in documents}

    assert made - covered == set()


def group_and_resource(document: Mapping[str, Any]) -> tuple[str, str]:
    group, slash, _ = document["apiVersion"].partition("/")
    kind = document["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return group if slash else "", plural


def check(name: str, state: str, detail: str) -> dict[str, str]:
    return {"name": name, "state": state, "detail": detail, "remedy": ""}
