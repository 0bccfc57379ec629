"""Releases of the chart over their lives: definitions, secrets, what is left in the end."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from circinus.deploy.kubernetes.api import Cluster as ApiServer
from circinus.deploy.kubernetes.api import connect
from circinus.deploy.kubernetes.credentials import CredentialNames, fill_in
from tests.cluster import programs
from tests.cluster.api import eventually
from tests.cluster.chart import CHART, helm
from tests.cluster.cluster import Cluster, running
from tests.cluster.requirements import not_here

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
NAME = "pipelinequeries.circinus.io"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/{NAME}"


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A control plane of these tests' own: others' have the definition, too."""
    try:
        for program in programs.CONTROL_PLANE:
            programs.find(program)
    except programs.NotBuilt as error:
        not_here(str(error))
    with running() as found:
        yield found


@pytest.fixture
def places(own_cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Two namespaces, and no definition before and after."""
    with own_cluster.namespace() as first, own_cluster.namespace() as second:
        yield first, second
    own_cluster.api.delete(DEFINITION)
    eventually(lambda: own_cluster.api.get(DEFINITION) is None, "the definition gone")


def told(cluster: Cluster, namespace: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    flags = ("--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace)
    return helm(*arguments, *flags)


def done(cluster: Cluster, namespace: str, *arguments: str) -> str:
    """Return what helm says of something that it does, without a warning."""
    ended = told(cluster, namespace, *arguments)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def newer(folder: Path) -> Path:
    """Return a chart whose definition has a column more."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    file = chart / "files" / "crds" / "pipelinequery.yaml"
    column = "    - name: Newer\n      type: string\n      jsonPath: .status.phase\n"
    head, found, rest = file.read_text(encoding="utf-8").partition(
        "    additionalPrinterColumns:\n"
    )
    assert found
    file.write_text(head + found + column + rest, encoding="utf-8")
    return chart


def definition(cluster: Cluster) -> dict[str, Any]:
    found = cluster.api.get(DEFINITION)
    assert found is not None
    return found


def columns(cluster: Cluster) -> list[str]:
    (version,) = definition(cluster)["spec"]["versions"]
    return [column["name"] for column in version["additionalPrinterColumns"]]


def test_the_release_that_installed_the_definition_upgrades_it_and_no_other_does(
    own_cluster: Cluster, places: tuple[str, str], tmp_path: Path
) -> None:
    first, second = places
    chart = str(newer(tmp_path))
    done(own_cluster, first, "install", "a", str(CHART))
    assert "Newer" not in columns(own_cluster)
    notes = done(own_cluster, second, "install", "a", str(CHART))
    assert f"the release {first}/a's" in notes
    done(own_cluster, second, "upgrade", "a", chart)
    assert "Newer" not in columns(own_cluster)
    done(own_cluster, first, "upgrade", "a", chart)
    assert "Newer" in columns(own_cluster)
    for place in places:
        told(own_cluster, place, "uninstall", "a")
    assert "Newer" in columns(own_cluster)  # it stays, and all queries with it
    done(own_cluster, first, "install", "a", str(CHART))  # and is the same release's again
    assert "Newer" not in columns(own_cluster)
    told(own_cluster, first, "uninstall", "a")


def test_a_definition_that_helm_did_not_install_is_taken_over_as_documented(
    own_cluster: Cluster, places: tuple[str, str]
) -> None:
    from circinus.api.operator.definition import definition as made

    first, _ = places
    own_cluster.api.create(DEFINITIONS, made())
    refused = told(own_cluster, first, "install", "a", str(CHART))
    assert refused.returncode != 0
    assert "cannot be imported into the current release" in refused.stderr
    done(own_cluster, first, "install", "left-alone", str(CHART), "--set", "crds.install=false")
    told(own_cluster, first, "uninstall", "left-alone")

    annotations = {"meta.helm.sh/release-name": "a", "meta.helm.sh/release-namespace": first}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    own_cluster.api.merge(DEFINITION, {"metadata": {"annotations": annotations, "labels": labels}})
    done(own_cluster, first, "upgrade", "--install", "a", str(CHART))
    kept = definition(own_cluster)["metadata"]["annotations"]["helm.sh/resource-policy"]
    assert kept == "keep"
    told(own_cluster, first, "uninstall", "a")


def test_what_was_filled_in_outlives_upgrades_and_goes_with_the_release(
    own_cluster: Cluster, places: tuple[str, str]
) -> None:
    first, _ = places
    values = ("--set", "deployment.target=kubernetes")
    done(own_cluster, first, "install", "a", str(CHART), *values)
    names = CredentialNames(token="a-token")
    assert fill_in(ApiServer(connect(own_cluster.kubeconfig)), first, names) == ("a-token",)
    secrets = f"/api/v1/namespaces/{first}/secrets"
    before = own_cluster.api.get(f"{secrets}/a-token") or {}
    assert before["data"]["token"]

    more = ("--set", "resources.requests.cpu=1", "--set", "service.port=9000")
    done(own_cluster, first, "upgrade", "a", str(CHART), *values, *more)
    after = own_cluster.api.get(f"{secrets}/a-token") or {}
    assert after["data"] == before["data"]

    told(own_cluster, first, "uninstall", "a")
    assert own_cluster.api.items(secrets) == []


def test_a_preset_can_become_a_document_without_a_warning(
    own_cluster: Cluster, places: tuple[str, str]
) -> None:
    first, _ = places
    done(own_cluster, first, "install", "a", str(CHART), "--set", "infrastructure.preset=local")
    at = "infrastructure.document"
    document = f"{at}.name=lab,{at}.tiers[0].name=cloud"
    done(own_cluster, first, "upgrade", "a", str(CHART), "--set", document)
    done(own_cluster, first, "upgrade", "a", str(CHART), "--set", "infrastructure.preset=local")
    told(own_cluster, first, "uninstall", "a")
