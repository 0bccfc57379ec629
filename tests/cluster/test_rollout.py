from __future__ import annotations

import os
import sys
import time
from typing import Any

import psutil
import pytest

from circinus.deploy.kubernetes.api import Cluster as Connected
from circinus.deploy.kubernetes.api import Object, connect, path_of
from circinus.deploy.kubernetes.inventory import KINDS, key_of
from circinus.deploy.kubernetes.manifests import render
from circinus.deploy.kubernetes.names import TIER
from circinus.deploy.kubernetes.outcome import State
from circinus.deploy.kubernetes.pod_template import PodTemplate
from circinus.deploy.kubernetes.pods import (
    Pinning,
    RenderSettings,
)
from circinus.deploy.kubernetes.resources import MachineShape
from circinus.deploy.kubernetes.rollout import Rollout
from circinus.pipelines.clock import SystemClock
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.rollouts import SHAPE, connected, ours, rendered, rollout, watching
from tests.deploy.scheduled_plans import scheduled_chain

pytestmark = pytest.mark.cluster


def test_what_is_applied_is_read_back_as_rendered_and_the_diff_is_empty(
    cluster: Cluster, namespace: str
) -> None:
    plan = rendered(namespace)
    here = rollout(cluster, namespace)
    before = here.diff([plan])
    preview = here.preview([plan])
    assert preview.state is State.PREVIEW
    assert ours(cluster, namespace) == []

    outcome = here.apply([plan])

    assert len(before.create) == len(plan.objects)
    assert (outcome.state, outcome.missing, outcome.revision) == (State.READY, (), 1)
    assert here.diff([plan]).is_empty
    for document in plan.objects:
        there = cluster.api.get(path_of(namespace, key_of(document)))
        assert holds(there, document), key_of(document)
    again = here.apply([plan])
    assert (again.state, again.applied, again.revision) == (State.READY, (), None)


def test_a_users_template_is_in_the_pods_and_the_diff_stays_empty(
    cluster: Cluster, namespace: str
) -> None:
    toleration = {"key": "team", "operator": "Exists"}
    worker = {
        "name": "worker",
        "env": [{"name": "A", "value": "b"}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
        "resources": {"requests": {"memory": "0.5Gi"}, "limits": {"memory": "1024Mi"}},
    }
    template = PodTemplate(
        {
            "metadata": {"labels": {"team": "ml"}, "annotations": {"note": "mine"}},
            "spec": {
                "tolerations": [toleration],
                "volumes": [{"name": "models", "emptyDir": {"sizeLimit": "2048Mi"}}],
                "containers": [worker],
            },
        }
    )
    chosen = RenderSettings(
        namespace=namespace,
        machine=SHAPE,
        pinning=Pinning.TIER,
        template=template,
    )
    plan = render(scheduled_chain("q", ["edge"], shares={"edge": 0.2}), chosen)
    here = rollout(cluster, namespace)

    assert here.apply([plan]).state is State.READY

    assert here.diff([plan]).is_empty
    (pod,) = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
    (container,) = pod["spec"]["containers"]
    assert (pod["metadata"]["labels"]["team"], pod["metadata"]["annotations"]["note"]) == (
        "ml",
        "mine",
    )
    assert toleration in pod["spec"]["tolerations"]
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert container["resources"]["requests"]["memory"] == "512Mi"


def test_somebody_elses_change_is_found_by_the_diff(cluster: Cluster, namespace: str) -> None:
    plan = rendered(namespace, placement=["edge"])
    here = rollout(cluster, namespace)
    here.apply([plan])
    (service,) = [d for d in plan.objects if d["kind"] == "Service"]
    path = path_of(namespace, f"Service/{service['metadata']['name']}")
    cluster.api.merge(path, {"metadata": {"labels": {TIER: "elsewhere"}}})

    (fields,) = here.diff([plan]).change.values()

    assert fields == (f"metadata.labels.{TIER}: elsewhere -> edge",)


def test_a_replan_never_leaves_a_tier_without_a_ready_pod(
    cluster: Cluster, namespace: str
) -> None:
    here = rollout(cluster, namespace)
    old, new = rendered(namespace, share=0.2), rendered(namespace, share=0.3)
    here.apply([old])
    with watching(cluster, namespace, ("device", "edge", "cloud")) as least:
        outcome = here.apply([new])

    assert outcome.state is State.READY
    assert outcome.gap_s is None
    assert {key.split("/")[0] for key in outcome.pruned} == set(KINDS)
    assert min(least().values()) >= 1
    assert here.diff([new]).is_empty


def test_without_room_for_both_the_old_plan_goes_first_and_the_gap_is_measured(
    cluster: Cluster, namespace: str
) -> None:
    # A node has 4 cores: 3 for the old plan leave no room for another 2 beside it.
    shape = MachineShape(cpu="4", memory="1Gi")
    old, new = (
        rendered(
            namespace,
            placement=["edge"],
            share=share,
            shape=shape,
            machine=2,
            pinning=Pinning.MACHINE,
        )
        for share in (0.75, 0.5)
    )
    said: list[str] = []
    here = Rollout(connected(cluster), namespace, SystemClock(), tell=said.append)
    assert here.apply([old]).state is State.READY

    outcome = here.apply([new])

    assert outcome.state is State.READY
    assert outcome.gap_s is not None
    assert 0 < outcome.gap_s < 60
    assert any("the old one goes first" in words for words in said)


def test_rolling_back_brings_the_earlier_plan_back(cluster: Cluster, namespace: str) -> None:
    here = rollout(cluster, namespace)
    old, new = rendered(namespace, share=0.2), rendered(namespace, share=0.3)
    here.apply([old])
    here.apply([new])

    outcome = here.rollback("q")

    assert (outcome.state, outcome.revision) == (State.READY, 3)
    assert here.diff([old]).is_empty
    assert [r.rendered.plan_id for r in here.history("q")] == [
        old.plan_id,
        new.plan_id,
        old.plan_id,
    ]


def test_deleting_leaves_nothing_and_others_alone(cluster: Cluster, namespace: str) -> None:
    here = rollout(cluster, namespace)
    mine, other = rendered(namespace, "mine"), rendered(namespace, "other")
    here.apply([mine, other])

    here.delete("mine")

    eventually(
        lambda: not here.live("mine") and not here.history("mine"), "nothing of the query left"
    )
    assert here.diff([other]).is_empty
    here.delete("other")
    eventually(lambda: ours(cluster, namespace) == [], "nothing left")
    eventually(lambda: made_of_ours(cluster, namespace) == [], "nothing left of what it made")


def test_pods_of_a_drained_node_go_elsewhere_in_the_tier(cluster: Cluster, namespace: str) -> None:
    here = rollout(cluster, namespace)
    here.apply([rendered(namespace, placement=["edge"])])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    (pod,) = cluster.api.items(pods)
    node = f"/api/v1/nodes/{pod['spec']['nodeName']}"
    cluster.api.merge(node, {"spec": {"unschedulable": True}})
    try:
        name = pod["metadata"]["name"]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        cluster.api.create(f"{pods}/{name}/eviction", eviction)

        def moved() -> bool:
            found = [p for p in cluster.api.items(pods) if p["metadata"]["name"] != name]
            return any(
                p["status"]["phase"] == "Running"
                and p["spec"]["nodeName"] != pod["spec"]["nodeName"]
                for p in found
            )

        eventually(moved, "a pod on another node")
    finally:
        cluster.api.merge(node, {"spec": {"unschedulable": None}})


@pytest.mark.timeout(900)
def test_three_hundred_deployments_are_applied_and_reconciled_with_as_many_calls_at_most(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time is told, not judged: how much of the machine the cluster gets is not ours."""
    shape = MachineShape(cpu="100m", memory="64Mi")
    plans = [
        render(
            scheduled_chain(
                f"q{i}",
                ["device", "edge", "cloud"],
                shares=dict.fromkeys(("device", "edge", "cloud"), 0.1),
                replicas={"edge": 2, "cloud": 3},
                machines={"edge": [0, 1], "cloud": [0, 1, 2]},
            ),
            RenderSettings(namespace=namespace, machine=shape),
        )
        for i in range(50)
    ]
    kinds = [o["kind"] for plan in plans for o in plan.objects]
    assert kinds.count("Deployment") == 300
    counting = Counting(connect(cluster.kubeconfig))
    here = Rollout(counting, namespace, SystemClock(), timeout_s=600.0)

    began, cpu, server = time.monotonic(), time.process_time(), server_cpu_s(cluster)
    outcome = here.apply(plans)
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    server = server_cpu_s(cluster) - server
    counting.calls = 0
    again = here.apply(plans)

    with capsys.disabled():
        sys.stdout.write(
            f"\n300 Deployments of {len(kinds)} objects ready in {wall:.1f} s (CPU: {cpu:.1f} s "
            f"ours, {server:.1f} s the control plane's; load {os.getloadavg()[0]:.1f}); "
            f"reconciled with {counting.calls} calls\n"
        )
    assert (outcome.state, again.state) == (State.READY, State.READY)
    assert again.applied == ()
    assert counting.calls <= 300


def holds(live: object, wanted: object) -> bool:
    """Whether everything that was rendered is in what was read back."""
    if isinstance(wanted, dict):
        there = live if isinstance(live, dict) else {}
        return all(holds(there.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        there_too = live if isinstance(live, list) else []
        return len(wanted) == len(there_too) and all(map(holds, there_too, wanted))
    return live == wanted


def made_of_ours(cluster: Cluster, namespace: str) -> list[Object]:
    """What the cluster's controllers make of our objects."""
    collections = (
        f"/apis/apps/v1/namespaces/{namespace}/replicasets",
        f"/api/v1/namespaces/{namespace}/pods",
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
    )
    return [item for path in collections for item in cluster.api.items(path)]


def server_cpu_s(cluster: Cluster) -> float:
    """CPU seconds that the control plane's programs have used; 0 when they are not ours."""
    if cluster.control is None:
        return 0.0
    programs = [psutil.Process(pid) for pid in cluster.control.processes.pids()]
    return sum(sum(each.cpu_times()[:2]) for each in programs)


class Counting(Connected):
    """Counts calls."""

    calls = 0

    def _response(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        self.calls += 1
        return super()._response(*arguments, **options)
