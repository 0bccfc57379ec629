"""What is asked of `kubectl`, by a program in its place that writes down its words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circinus.deploy.kubernetes.kubectl import Kubectl, KubectlFailed, NotReady
from circinus.deploy.kubernetes.manifests import Rendered, render
from circinus.deploy.kubernetes.pods import RenderSettings
from circinus.pipelines.errors import InvalidInput
from tests.deploy.scheduled_plans import scheduled_chain

_PROGRAM = """#!/bin/sh
echo "$@" >> {folder}/words
case "$1" in apply|diff) cat > {folder}/documents;; esac
cat {folder}/$1.out 2>/dev/null
cat {folder}/$1.err >&2 2>/dev/null
exit $(cat {folder}/$1.code 2>/dev/null || echo 0)
"""


class Played:
    """Stands for kubectl: answers of each verb are files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "kubectl"
        program.write_text(_PROGRAM.format(folder=folder))
        program.chmod(0o755)

    def answers(self, verb: str, out: str = "", *, code: int = 0, err: str = "") -> None:
        for suffix, text in (("out", out), ("code", str(code)), ("err", err)):
            (self.folder / f"{verb}.{suffix}").write_text(text)

    @property
    def words(self) -> list[list[str]]:
        return [line.split() for line in (self.folder / "words").read_text().splitlines()]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Played(tmp_path)


HERE = Kubectl(namespace="n", kubeconfig=Path("way"))
WAY = ["--namespace", "n", "--kubeconfig", "way"]
MINE = "app.kubernetes.io/managed-by=circinus,circinus.io/query=q,!circinus.io/release"


def plan() -> Rendered:
    return render(scheduled_chain("q", ["edge"]), RenderSettings(namespace="n"))


def name_of(kind: str) -> str:
    (found,) = [each for each in plan().objects if each["kind"] == kind]
    return str(found["metadata"]["name"])


def test_a_plan_is_applied_waited_for_and_the_one_before_deleted(played: Played) -> None:
    service = f"service/{name_of('Service')}"
    deployment = f"deployment.apps/{name_of('Deployment')}"
    played.answers("apply", f"{service}\n{deployment}\n")
    played.answers("get", f"{service}\n{deployment}\ndeployment.apps/old\nconfigmap/old\n")

    written, deleted = HERE.apply(plan(), timeout_s=2.5, force=True)

    assert written == (service, deployment)
    assert deleted == ("deployment.apps/old", "configmap/old")
    manager = ["--server-side", "--field-manager=circinus", "-f", "-"]
    own = f"--selector={MINE},circinus.io/plan={plan().plan_id}"
    assert played.words == [
        ["apply", "--force-conflicts", *manager, "-o", "name", *WAY],
        ["rollout", "status", "deployment", own, "--timeout=2.5s", *WAY],
        [
            "get",
            "configmap,networkpolicy,service,poddisruptionbudget,deployment",
            f"--selector={MINE}",
            "-o",
            "name",
            *WAY,
        ],
        ["delete", "--wait=false", "--ignore-not-found", *deleted, *WAY],
    ]
    assert (played.folder / "documents").read_text() == plan().as_yaml()


def test_workers_that_are_late_say_why_and_nothing_is_deleted(played: Played) -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}
    pod = {"metadata": {"name": "p"}, "status": {"conditions": [condition]}}
    played.answers("rollout", code=1, err="error: timed out waiting for the condition")
    played.answers("get", json.dumps({"items": [pod]}))

    with pytest.raises(NotReady, match=r"(?s)timed out .*pod p finds no node: 0/3 nodes"):
        HERE.apply(plan(), timeout_s=1.0, force=False)
    assert [words[0] for words in played.words] == ["apply", "rollout", "get"]


def test_a_refusal_is_told_in_the_words_of_kubectl(played: Played) -> None:
    played.answers("apply", code=1, err='Error from server (NotFound): namespaces "n" not found')
    with pytest.raises(KubectlFailed, match='namespaces "n" not found'):
        HERE.apply(plan(), timeout_s=1.0, force=False)
    played.answers("apply", code=3)
    with pytest.raises(KubectlFailed, match="kubectl exits with 3"):
        HERE.preview(plan())
    assert [words[:2] for words in played.words] == [
        ["apply", "--server-side"],
        ["apply", "--dry-run=server"],
    ]


def test_what_differs_is_no_failure(played: Played) -> None:
    played.answers("diff", "-  replicas: 1\n+  replicas: 2\n", code=1)
    assert HERE.diff(plan()) == ("-  replicas: 1\n+  replicas: 2\n", ())
    played.answers("diff", code=2, err="no server")
    with pytest.raises(KubectlFailed, match="no server"):
        HERE.diff(plan())


def test_workers_are_counted_and_everything_of_a_query_is_deleted(played: Played) -> None:
    two = {"metadata": {"name": "d"}, "spec": {"replicas": 2}, "status": {"readyReplicas": 1}}
    new = {"metadata": {"name": "e"}, "spec": {}}
    played.answers("get", json.dumps({"items": [two, new]}))
    assert HERE.workers("q") == {"d": (1, 2), "e": (0, 1)}
    played.answers("delete", "No resources found\n")
    assert HERE.delete("q") == ()


def test_without_kubectl_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InvalidInput, match="kubectl must be installed"):
        HERE.workers("q")
