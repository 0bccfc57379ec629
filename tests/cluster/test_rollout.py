"""What a plan renders to, on a control plane, and `circinus deploy`, which calls kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest

from circinus.deploy.kubernetes.api import Object, collection_of, key_of, path_of
from circinus.deploy.kubernetes.kubectl import Kubectl, KubectlFailed, NotReady
from circinus.deploy.kubernetes.manifests import render
from circinus.deploy.kubernetes.pod_template import PodTemplate
from circinus.deploy.kubernetes.pods import Pinning, RenderSettings
from circinus.deploy.kubernetes.resources import MachineShape
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.rollouts import SHAPE, apply, is_ready, ours, rendered, watching
from tests.deploy.scheduled_plans import scheduled_chain
from tests.programs import need

pytestmark = pytest.mark.cluster


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str) -> Kubectl:
    """Kubectl as the administrator."""
    need("kubectl")
    return Kubectl(namespace=namespace, kubeconfig=cluster.kubeconfig)


def test_what_is_applied_is_read_back_as_rendered(cluster: Cluster, namespace: str) -> None:
    plan = rendered(namespace)
    apply(cluster, plan)
    for document in plan.objects:
        there = cluster.api.get(path_of(namespace, key_of(document)))
        assert holds(there, document), key_of(document)


def test_a_users_template_is_in_the_pods(cluster: Cluster, namespace: str) -> None:
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
        namespace=namespace, machine=SHAPE, pinning=Pinning.TIER, template=template
    )
    apply(cluster, render(scheduled_chain("q", ["edge"], shares={"edge": 0.2}), chosen))

    (pod,) = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["labels"]["team"] == "ml"
    assert pod["metadata"]["annotations"]["note"] == "mine"
    assert toleration in pod["spec"]["tolerations"]
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert container["resources"]["requests"]["memory"] == "512Mi"


def test_pods_of_a_drained_node_go_elsewhere_in_the_tier(cluster: Cluster, namespace: str) -> None:
    apply(cluster, rendered(namespace, placement=["edge"]))
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


def test_a_replan_never_leaves_a_tier_without_a_ready_pod(
    cluster: Cluster, namespace: str, kubectl: Kubectl
) -> None:
    old, new = rendered(namespace, share=0.2), rendered(namespace, share=0.3)
    kubectl.apply(old, timeout_s=60.0, force=False)
    with watching(cluster, namespace, ("device", "edge", "cloud")) as least:
        _, deleted = kubectl.apply(new, timeout_s=60.0, force=False)

    assert len(deleted) == len(old.objects)
    assert min(least().values()) >= 1
    assert kubectl.diff(new) == ("", ())


def test_deleting_leaves_nothing_and_others_alone(
    cluster: Cluster, namespace: str, kubectl: Kubectl
) -> None:
    for query in ("mine", "other"):
        kubectl.apply(rendered(namespace, query), timeout_s=60.0, force=False)

    kubectl.delete("mine")

    assert kubectl.workers("mine") == {}
    assert kubectl.diff(rendered(namespace, "other")) == ("", ())
    kubectl.delete("other")
    eventually(lambda: ours(cluster, namespace) == [], "nothing left")


def test_a_conflict_with_another_manager_is_told_and_force_takes_over(
    cluster: Cluster, namespace: str, kubectl: Kubectl
) -> None:
    plan = rendered(namespace, placement=["edge"])
    kubectl.apply(plan, timeout_s=60.0, force=False)
    (deployment,) = [d for d in plan.objects if d["kind"] == "Deployment"]
    path = path_of(namespace, key_of(deployment))
    cluster.api.merge(f"{path}?fieldManager=somebody", {"spec": {"replicas": 2}})

    assert "replicas: 2" in kubectl.diff(plan)[0]
    with pytest.raises(KubectlFailed, match="somebody"):
        kubectl.apply(plan, timeout_s=60.0, force=False)
    kubectl.apply(plan, timeout_s=60.0, force=True)
    assert (cluster.api.get(path) or {})["spec"]["replicas"] == 1


def test_what_the_cluster_refuses_is_told(cluster: Cluster, namespace: str) -> None:
    need("kubectl")
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"count/services": "1"}}}
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    cluster.api.create(path, quota)
    eventually(
        lambda: ((cluster.api.get(f"{path}/small") or {}).get("status") or {}).get("used"),
        "a quota that counts",
    )
    for where, words in ((namespace, "exceeded quota"), ("nowhere", 'namespaces "nowhere" not')):
        here = Kubectl(namespace=where, kubeconfig=cluster.kubeconfig)
        with pytest.raises(KubectlFailed, match=words):
            here.apply(rendered(where), timeout_s=5.0, force=False)


def test_a_server_that_does_not_answer_is_told(namespace: str, tmp_path: Path) -> None:
    need("kubectl")
    way = {"name": "lost", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "lost", "context": {"cluster": "lost"}}
    document = {"clusters": [way], "contexts": [context], "current-context": "lost"}
    (tmp_path / "lost").write_text(str({"kind": "Config", "apiVersion": "v1", **document}))
    with pytest.raises(KubectlFailed, match="refused"):
        Kubectl(namespace=namespace, kubeconfig=tmp_path / "lost").workers("q")


def test_pods_that_no_node_takes_are_told_and_the_plan_before_serves_on(
    cluster: Cluster, namespace: str, kubectl: Kubectl
) -> None:
    kubectl.apply(rendered(namespace, placement=["edge"]), timeout_s=60.0, force=False)
    large = rendered(namespace, placement=["edge"], share=1.0, shape=MachineShape(cpu="400"))

    with pytest.raises(NotReady, match="finds no node"):
        kubectl.apply(large, timeout_s=3.0, force=False)

    ready = [is_ready(each) for each in cluster.api.items(collection_of("Deployment", namespace))]
    assert sorted(ready) == [False, True]


def holds(live: object, wanted: object) -> bool:
    """Whether everything that was rendered is in what was read back."""
    if isinstance(wanted, dict):
        there: Object = live if isinstance(live, dict) else {}
        return all(holds(there.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        there_too = live if isinstance(live, list) else []
        return len(wanted) == len(there_too) and all(map(holds, there_too, wanted))
    return live == wanted
