"""What nobody gives a release is made once in the cluster, by an account that may do just that."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from circinus.api.cli.command import ExitCode
from circinus.deploy.kubernetes.api import Cluster as ApiServer
from circinus.deploy.kubernetes.api import connect
from circinus.deploy.kubernetes.credentials import CredentialNames, fill_in, lasts
from circinus.pipelines.errors import InvalidInput
from tests.api.cli.commands import invoke
from tests.cluster.accounts import grant, stranger
from tests.cluster.chart import RELEASE, jobs, of_kind, rendered
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster
ARGUMENTS = CredentialNames(
    token=f"{RELEASE}-token",
    authority=f"{RELEASE}-authority-tls",
    workers=f"{RELEASE}-workers-tls",
    service=f"{RELEASE}-service-tls",
    days=90,
)


def documents() -> list[dict[str, Any]]:
    return rendered("deployment.target=kubernetes", "credentials.days=90")


@pytest.fixture
def release(cluster: Cluster, namespace: str) -> str:
    """The chart's Secrets, as it has them, and its account's rights for the stranger."""
    for document in documents():
        if document["kind"] == "Secret":
            cluster.api.create(f"/api/v1/namespaces/{namespace}/secrets", document)
    grant(cluster, namespace, of_kind(documents(), "Role", "c-credentials")["rules"])
    return namespace


def secret(cluster: Cluster, namespace: str, name: str) -> dict[str, bytes]:
    found = cluster.api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    assert found is not None
    return {key: b64decode(value) for key, value in (found.get("data") or {}).items()}


def everything(cluster: Cluster, namespace: str) -> dict[str, dict[str, bytes]]:
    names = (ARGUMENTS.token, ARGUMENTS.authority, ARGUMENTS.workers, ARGUMENTS.service)
    return {name: secret(cluster, namespace, name) for name in names if name}


def job_arguments() -> list[str]:
    """The command of the chart's Job, without the namespace."""
    (job,) = jobs(documents())
    words: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    at = words.index("--namespace")
    return words[:at] + words[at + 2 :]


def test_a_secret_that_is_not_there_is_named(cluster: Cluster, namespace: str) -> None:
    server = ApiServer(connect(cluster.kubeconfig))
    with pytest.raises(InvalidInput, match=r"secret must be there in namespace .*, got 'nowhere'"):
        fill_in(server, namespace, CredentialNames(token="nowhere"))


def test_the_account_of_the_chart_fills_in_its_own_secrets_and_reads_no_others(
    cluster: Cluster, release: str, tmp_path: Path
) -> None:
    elsewhere = {"metadata": {"name": "others"}, "stringData": {"token": "theirs"}}
    cluster.api.create(f"/api/v1/namespaces/{release}/secrets", elsewhere)
    with stranger(cluster, tmp_path) as kubeconfig:
        way = ["--namespace", release, "--kubeconfig", str(kubeconfig)]
        done = invoke(*job_arguments(), *way)
        assert done.exit_code == ExitCode.OK, done.output
        refused = invoke("credentials", "--token", "others", *way)
        assert refused.exit_code != ExitCode.OK
        assert "forbidden" in refused.output

    made = everything(cluster, release)
    assert len(made[f"{RELEASE}-token"]["token"]) >= 40
    authority = made[f"{RELEASE}-authority-tls"]["tls.crt"]
    for role in ("workers", "service"):
        files = made[f"{RELEASE}-{role}-tls"]
        assert set(files) == {"tls.crt", "tls.key", "ca.crt"}
        assert files["ca.crt"] == authority
        assert lasts(files["tls.crt"], 89.9)
        assert not lasts(files["tls.crt"], 90.1)
    assert secret(cluster, release, "others") == {"token": b"theirs"}


def test_what_is_there_stays_and_what_is_nearly_over_is_made_anew_by_the_same_authority(
    cluster: Cluster, release: str
) -> None:
    server = ApiServer(connect(cluster.kubeconfig))
    order = (ARGUMENTS.authority, ARGUMENTS.workers, ARGUMENTS.service, ARGUMENTS.token)
    assert fill_in(server, release, ARGUMENTS) == order
    before = everything(cluster, release)

    assert fill_in(server, release, ARGUMENTS) == ()
    assert everything(cluster, release) == before

    long = CredentialNames(
        authority=ARGUMENTS.authority, workers=ARGUMENTS.workers, days=270
    )  # of which 90 are a third, and a moment less is left
    assert fill_in(server, release, long) == (ARGUMENTS.workers,)
    after = everything(cluster, release)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {ARGUMENTS.workers}
    assert after[f"{RELEASE}-workers-tls"]["ca.crt"] == before[f"{RELEASE}-workers-tls"]["ca.crt"]


def test_who_loses_a_secret_has_it_made_again_and_a_new_authority_signs_all(
    cluster: Cluster, release: str
) -> None:
    server = ApiServer(connect(cluster.kubeconfig))
    fill_in(server, release, ARGUMENTS)
    path = f"/api/v1/namespaces/{release}/secrets/{ARGUMENTS.authority}"
    cluster.api.merge(path, {"data": None})

    assert fill_in(server, release, ARGUMENTS) == (
        ARGUMENTS.authority,
        ARGUMENTS.workers,
        ARGUMENTS.service,
    )


def test_labels_and_types_of_the_secrets_are_the_charts(cluster: Cluster, release: str) -> None:
    fill_in(ApiServer(connect(cluster.kubeconfig)), release, ARGUMENTS)
    for document in documents():
        if document["kind"] == "Secret":
            name = document["metadata"]["name"]
            found = cluster.api.get(f"/api/v1/namespaces/{release}/secrets/{name}") or {}
            assert found["metadata"]["labels"] == document["metadata"]["labels"]
            assert found["type"] == document["type"]
