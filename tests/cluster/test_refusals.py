"""What a cluster says no to, and what breaks: each is a state, in words."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient

from circinus.deploy.kubernetes.api import Cluster as Connected
from circinus.deploy.kubernetes.api import Object, connect, path_of
from circinus.deploy.kubernetes.inventory import key_of
from circinus.deploy.kubernetes.outcome import State
from circinus.deploy.kubernetes.pods import Pinning
from circinus.deploy.kubernetes.resources import MachineShape
from circinus.deploy.kubernetes.rollout import Rollout
from circinus.pipelines.clock import SystemClock
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.control_plane import ControlPlane
from tests.cluster.rollouts import ours, rendered, rollout

pytestmark = pytest.mark.cluster


def test_a_missing_namespace_is_a_state(cluster: Cluster) -> None:
    outcome = rollout(cluster, "nowhere").apply([rendered("nowhere")])

    assert outcome.state is State.NAMESPACE
    assert outcome.applied == ()
    assert len(outcome.missing) > 0
    assert 'namespaces "nowhere" not found' in outcome.words


def test_a_conflict_with_another_manager_is_told_and_force_takes_over(
    cluster: Cluster, namespace: str
) -> None:
    plan = rendered(namespace, placement=["edge"])
    assert rollout(cluster, namespace).apply([plan]).state is State.READY
    (deployment,) = [d for d in plan.objects if d["kind"] == "Deployment"]
    path = path_of(namespace, f"Deployment/{deployment['metadata']['name']}")
    cluster.api.merge(f"{path}?fieldManager=somebody", {"spec": {"replicas": 2}})

    refused = rollout(cluster, namespace).apply([plan])
    taken = rollout(cluster, namespace, force=True).apply([plan])

    assert refused.state is State.CONFLICT
    assert "somebody" in refused.words
    assert refused.missing == (f"Deployment/{deployment['metadata']['name']}",)
    assert taken.state is State.READY
    assert (cluster.api.get(path) or {})["spec"]["replicas"] == 1


def test_a_quota_on_objects_is_told_with_what_is_missing(cluster: Cluster, namespace: str) -> None:
    quota(cluster, namespace, {"count/services": "1"})

    outcome = rollout(cluster, namespace).apply([rendered(namespace)])

    assert outcome.state is State.QUOTA
    assert "exceeded quota" in outcome.words
    assert "What was written stays" in outcome.words
    there = {f"{o['kind']}/{o['metadata']['name']}" for o in rendered(namespace).objects}
    assert {*outcome.applied, *outcome.missing} == there


def test_a_quota_on_pods_is_told(cluster: Cluster, namespace: str) -> None:
    quota(cluster, namespace, {"pods": "1"})

    outcome = rollout(cluster, namespace).apply([rendered(namespace)])

    assert outcome.state is State.QUOTA
    assert "exceeded quota" in outcome.words


def test_a_refusal_of_admission_is_told(cluster: Cluster, namespace: str) -> None:
    with forbidden_kind(cluster, namespace):
        eventually(
            lambda: (
                rollout(cluster, namespace).preview([rendered(namespace)]).state is State.REFUSED
            ),
            "the policy in force",
        )
        outcome = rollout(cluster, namespace).apply([rendered(namespace)])

    assert outcome.state is State.REFUSED
    assert "no workers here" in outcome.words
    assert all(key.startswith("Deployment/") for key in outcome.missing)


def test_an_account_without_a_role_is_told(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    control = cluster.control
    if control is None:
        pytest.skip("the users of this cluster are not ours")
    control.write_kubeconfig(tmp_path / "nobody", "circinus-test-nobody")
    stranger = Connected(connect(tmp_path / "nobody"))

    outcome = Rollout(stranger, namespace, SystemClock()).apply([rendered(namespace)])

    assert outcome.state is State.FORBIDDEN
    assert 'User "nobody" cannot list' in outcome.words


def test_what_fits_no_node_changes_nothing(cluster: Cluster, namespace: str) -> None:
    shape = MachineShape(cpu="400", memory="1Gi")

    outcome = rollout(cluster, namespace).apply([rendered(namespace, shape=shape, share=1.0)])

    assert outcome.state is State.CAPACITY
    assert "asks for 400 cpu" in outcome.words
    assert ours(cluster, namespace) == []


def test_a_machine_that_does_not_exist_changes_nothing(cluster: Cluster, namespace: str) -> None:
    plan = rendered(namespace, placement=["edge"], machine=7, pinning=Pinning.MACHINE)

    outcome = rollout(cluster, namespace).apply([plan])

    assert outcome.state is State.CAPACITY
    assert "carries circinus.io/tier=edge, circinus.io/machine=7" in outcome.words


def test_a_server_that_does_not_answer_is_told(
    namespace: str, cluster: Cluster, tmp_path: Path
) -> None:
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "lost").write_text(yaml.safe_dump(document))
    client = Connected(connect(tmp_path / "lost"))
    lost = Rollout(client, namespace, SystemClock(), timeout_s=1.0)

    outcome = lost.apply([rendered(namespace)])

    assert outcome.state is State.UNAVAILABLE
    assert "try again" in outcome.words


def test_an_apply_outlives_an_api_server_killed_in_its_middle(
    cluster: Cluster, namespace: str
) -> None:
    control = cluster.control
    if control is None:
        pytest.skip("the API server of this cluster is not ours to kill")
    plans = [rendered(namespace, f"q{i}", share=0.05) for i in range(6)]
    killer = Killing(connect(cluster.kubeconfig), control)
    outcomes: list[Any] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(
            Rollout(killer, namespace, SystemClock(), timeout_s=180.0).apply(plans)
        )
    )
    thread.start()
    assert killer.killed.wait(60.0)
    control.start_api_server()
    thread.join(200.0)

    assert [outcome.state for outcome in outcomes] == [State.READY]
    assert rollout(cluster, namespace).diff(plans).is_empty


def test_pods_that_no_node_takes_are_told(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    control = cluster.control
    if control is None:
        pytest.skip("the users of this cluster are not ours")
    # Who may not see the nodes does not know before that there is no such machine.
    allow_everything(cluster, namespace, "nobody")
    control.write_kubeconfig(tmp_path / "nobody", "circinus-test-nobody")
    stranger = Connected(connect(tmp_path / "nobody"))
    said: list[str] = []
    plan = rendered(namespace, placement=["edge"], machine=7, pinning=Pinning.MACHINE)

    there = Rollout(stranger, namespace, SystemClock(), timeout_s=12.0, tell=said.append)
    outcome = there.apply([plan])

    assert any("room on the nodes is not checked" in words for words in said)
    assert outcome.state is State.UNSCHEDULABLE
    assert "didn't match Pod's node affinity" in outcome.words
    assert set(outcome.applied) == {key_of(document) for document in plan.objects}


def test_pods_that_do_not_start_in_time_are_told(cluster: Cluster, namespace: str) -> None:
    control = cluster.control
    if control is None:
        pytest.skip("the nodes of this cluster are not ours to stop")
    kubelets = control.processes.pid("kwok")
    os.kill(kubelets, signal.SIGSTOP)
    try:
        outcome = rollout(cluster, namespace, timeout_s=3.0).apply([rendered(namespace)])
    finally:
        os.kill(kubelets, signal.SIGCONT)

    assert outcome.state is State.TIMED_OUT
    assert outcome.words.startswith("not ready within 3 s:")
    assert "apply again, roll back or delete" in outcome.words
    assert rollout(cluster, namespace).apply([rendered(namespace)]).state is State.READY


class Killing(Connected):
    """Kills the API server before its thirtieth write."""

    def __init__(self, client: ApiClient, control: ControlPlane) -> None:
        super().__init__(client)
        self._control = control
        self._writes = itertools.count(1)
        self.killed = threading.Event()

    def apply(
        self,
        path: str,
        body: Mapping[str, Any],
        **options: Any,  # noqa: ANN401
    ) -> Object:
        if next(self._writes) == 30:
            self._control.kill_api_server()
            self.killed.set()
        return super().apply(path, body, **options)


def allow_everything(cluster: Cluster, namespace: str, user: str) -> None:
    """Let a user do everything in a namespace."""
    group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    cluster.api.create(f"{group}/roles", {"metadata": {"name": "all"}, "rules": [rule]})
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "Role", "name": "all", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "all"}, "subjects": [subject], "roleRef": role}
    cluster.api.create(f"{group}/rolebindings", binding)


def quota(cluster: Cluster, namespace: str, hard: dict[str, str]) -> None:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    cluster.api.create(path, {"metadata": {"name": "small"}, "spec": {"hard": hard}})
    eventually(
        lambda: ((cluster.api.get(f"{path}/small") or {}).get("status") or {}).get("used"),
        "a quota that counts",
    )


@contextmanager
def forbidden_kind(cluster: Cluster, namespace: str) -> Iterator[None]:
    """No Deployments in the namespace, by a policy of admission."""
    group = "/apis/admissionregistration.k8s.io/v1"
    name = f"no-workers-{namespace}"
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "no workers here"}],
        },
    }
    where = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": where},
        },
    }
    cluster.api.create(f"{group}/validatingadmissionpolicies", policy)
    cluster.api.create(f"{group}/validatingadmissionpolicybindings", binding)
    try:
        yield
    finally:
        cluster.api.delete(f"{group}/validatingadmissionpolicybindings/{name}")
        cluster.api.delete(f"{group}/validatingadmissionpolicies/{name}")
