"""Every object of the chart is valid strictly, whatever values are drawn."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.api import eventually
from tests.cluster.chart import NAMESPACE, template
from tests.cluster.cluster import Cluster
from tests.cluster.definitions import DEFINITIONS, definition_of
from tests.cluster.strictly import violations

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_names = st.from_regex(r"[a-z]([a-z0-9-]{0,12}[a-z0-9])?", fullmatch=True)
_hosts = st.lists(
    _names.map(lambda name: f"{name}.example.org"), min_size=1, max_size=3, unique=True
)
_texts = st.dictionaries(
    _names.map(lambda name: f"example.org/{name}"),
    st.text("abcXYZ019 :#{}'\"%", max_size=12),
    max_size=2,
)
_labels = st.dictionaries(_names, _names, max_size=2)
_budgets = st.fixed_dictionaries(
    {"enabled": st.booleans(), "maxUnavailable": st.sampled_from([0, 1, 2, "0%", "50%", "100%"])}
)
_documents = _names.map(lambda name: {"name": name, "tiers": [{"name": "cloud", "machines": 2}]})
_infrastructures = st.one_of(
    st.fixed_dictionaries({"preset": st.sampled_from(["", "local", "three-tier"])}),
    st.fixed_dictionaries({"document": _documents}),
)
_node_pools = st.lists(
    st.fixed_dictionaries(
        {
            "tier": _names,
            "instanceTypes": st.lists(_names, min_size=1, max_size=2, unique=True),
            "nodeClass": st.fixed_dictionaries({"name": _names}),
            "limits": st.sampled_from([{"cpu": "16"}, {"cpu": 8, "memory": "64Gi"}]),
        },
        optional={
            "machineType": _names,
            "consolidateAfter": st.sampled_from(["5m", "Never"]),
            "requirements": st.just(
                [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
            ),
            "taints": st.just([{"key": "a", "value": "b", "effect": "NoSchedule"}]),
        },
    ),
    max_size=2,
    unique_by=lambda pool: pool["tier"],
)
_authorities: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"existingSecret": _names}),
    st.fixed_dictionaries({"existingSecret": _names, "existingClientSecret": _names}),
    st.fixed_dictionaries(
        {
            "certManager": st.fixed_dictionaries(
                {
                    "enabled": st.just(True),
                    "issuerRef": st.one_of(
                        st.just({}),
                        st.fixed_dictionaries(
                            {"name": _names}, optional={"kind": st.just("ClusterIssuer")}
                        ),
                    ),
                }
            )
        }
    ),
)


def _for_pods_alone(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values without node pools where plans run in the service's pod."""
    in_pods = values["deployment"]["target"] == "kubernetes"
    return values if in_pods else {k: v for k, v in values.items() if k != "nodePools"}


VALUES = st.fixed_dictionaries(
    {
        "tls": _authorities,
        "deployment": st.fixed_dictionaries({"target": st.sampled_from(["kubernetes", "local"])}),
    },
    optional={
        "token": st.fixed_dictionaries({"existingSecret": st.one_of(st.just(""), _names)}),
        "credentials": st.fixed_dictionaries(
            {
                "days": st.integers(1, 3650),
                "schedule": st.sampled_from(["@daily", "17 3 * * 0", "*/5 * * * *"]),
            }
        ),
        "crds": st.fixed_dictionaries({"install": st.booleans()}),
        "infrastructure": _infrastructures,
        "nodePools": _node_pools,
        "discovery": st.fixed_dictionaries({"enabled": st.booleans()}),
        "environment": st.fixed_dictionaries({"hostPath": st.sampled_from(["", "/srv/env"])}),
        "persistence": st.fixed_dictionaries(
            {
                "enabled": st.booleans(),
                "storageClass": st.sampled_from(["", "-", "fast"]),
                "existingClaim": st.one_of(st.just(""), _names),
            }
        ),
        "service": st.fixed_dictionaries(
            {
                "type": st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]),
                "port": st.integers(1, 65535),
                "hosts": _hosts,
                "podDisruptionBudget": _budgets,
            }
        ),
        "dispatchers": st.fixed_dictionaries(
            {"replicas": st.integers(0, 5), "serviceUrl": st.sampled_from(["", "http://s:1"])}
        ),
        "operator": st.fixed_dictionaries(
            {
                "enabled": st.booleans(),
                "replicas": st.integers(1, 5),
                "leaseSeconds": st.sampled_from([6, 7.5, 15, 3600]),
                "healthPort": st.one_of(st.just(0), st.integers(1024, 65535)),
                "podDisruptionBudget": _budgets,
            }
        ),
        "ingress": st.fixed_dictionaries(
            {
                "enabled": st.just(True),
                "hosts": _hosts,
                "className": st.one_of(st.just(""), _names),
                "annotations": _texts,
                "tls": st.lists(
                    st.fixed_dictionaries({"secretName": _names, "hosts": _hosts}), max_size=2
                ),
            }
        ),
        "httpRoute": st.fixed_dictionaries(
            {
                "enabled": st.just(True),
                "parentRefs": st.lists(
                    st.fixed_dictionaries(
                        {"name": _names},
                        optional={"namespace": _names, "sectionName": _names},
                    ),
                    min_size=1,
                    max_size=2,
                ),
                "hostnames": st.one_of(st.just([]), _hosts),
                "annotations": _texts,
            }
        ),
        "serviceMonitor": st.fixed_dictionaries({"enabled": st.just(True), "labels": _labels}),
        "settings": st.dictionaries(
            st.sampled_from(["CIRCINUS_LOG_LEVEL", "CIRCINUS_QUOTAS", "CIRCINUS_DRIFT_S"]),
            st.one_of(st.integers(0, 10**9), st.booleans(), st.text("a=0.5,'\"{}#", max_size=8)),
        ),
        "image": st.fixed_dictionaries(
            {
                "repository": st.just("registry.example.org/service"),
                "tag": st.sampled_from(["", "1.2.3", "1e3"]),
                "pullSecrets": st.lists(_names, max_size=2),
            }
        ),
        "nodeSelector": _labels,
        "podAnnotations": _texts,
        "serviceAccount": st.fixed_dictionaries({"annotations": _texts}),
        "tolerations": st.sampled_from([[], [{"key": "a", "operator": "Exists"}]]),
    },
).map(_for_pods_alone)
EVERYTHING = {
    "deployment": {"target": "kubernetes"},
    "discovery": {"enabled": True},
    "infrastructure": {"document": {"name": "lab", "tiers": [{"name": "cloud"}]}},
    "nodePools": [
        {
            "tier": "cloud",
            "instanceTypes": ["m6i.large"],
            "nodeClass": {"name": "default"},
            "limits": {"cpu": "16"},
        }
    ],
    "service": {"podDisruptionBudget": {"enabled": True}},
    "ingress": {"enabled": True, "hosts": ["*.example.org"], "tls": [{"secretName": "t"}]},
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}], "hostnames": ["a.example.org"]},
    "serviceMonitor": {"enabled": True},
}


_TLS: tuple[dict[str, Any], ...] = ({}, {"certManager": {"enabled": True}})
_seen: set[str] = set()


def rendered_with(values: dict[str, Any]) -> list[dict[str, Any]]:
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(values, file)
        file.flush()
        done = template("--values", file.name)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(VALUES)
def test_drawn_values_give_valid_objects_each_once(values: dict[str, Any]) -> None:
    documents = rendered_with(values)
    wrong = [violation for document in documents for violation in violations(document)]
    assert wrong == []
    keys = [(d["kind"], d["metadata"]["name"]) for d in documents]
    _seen.update(kind for kind, _ in keys)
    assert len(set(keys)) == len(keys)
    for document in documents:
        labels = document["metadata"].get("labels", {})
        assert labels.get("app.kubernetes.io/instance") == "c" or "Definition" in document["kind"]


def test_the_drawn_values_had_objects_of_every_kind() -> None:
    if not _seen:
        pytest.skip("no values were drawn in this run")
    every = {d["kind"] for tls in _TLS for d in rendered_with({**EVERYTHING, "tls": tls})}
    assert every <= _seen


@pytest.mark.parametrize("kind", sorted(DEFINITIONS))
def test_a_field_that_nobody_knows_is_seen(kind: str) -> None:
    values = {**EVERYTHING, "tls": {"certManager": {"enabled": True}}}
    found = next(d for d in rendered_with(values) if d["kind"] == kind)
    assert violations(found) == []
    found["spec"]["nope"] = 1
    assert any("nope" in violation for violation in violations(found))


@pytest.mark.parametrize("tls", _TLS)
def test_a_server_takes_every_object_strictly(cluster: Cluster, tls: dict[str, Any]) -> None:
    """What schemas do not say, such as rules in CEL, the API server knows."""
    definitions = [definition_of(kind) for kind in DEFINITIONS]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for definition in definitions:
        if cluster.api.get(f"{path}/{definition['metadata']['name']}") is None:
            cluster.api.create(path, definition)
    plurals = {d["spec"]["names"]["kind"]: d["spec"]["names"]["plural"] for d in definitions}
    with cluster.namespace() as namespace:
        for document in rendered_with({**EVERYTHING, "tls": tls}):
            if document["kind"] in _OF_CLUSTER:
                continue
            plural = plurals.get(document["kind"]) or _plural(document["kind"])
            version = document["apiVersion"]
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            collection = f"{root}/namespaces/{namespace}/{plural}"
            eventually(partial(is_served, cluster, collection), f"kind {document['kind']}")
            body = json.loads(json.dumps(document).replace(f'"{NAMESPACE}"', f'"{namespace}"'))
            cluster.api.create(f"{collection}?dryRun=All&fieldValidation=Strict", body)


def is_served(cluster: Cluster, collection: str) -> bool:
    """Whether a kind that was just defined is there already."""
    try:
        return cluster.api.get(collection) is not None
    except RuntimeError as error:
        if "storage is (re)initializing" in str(error):
            return False
        raise


_OF_CLUSTER = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "NodePool"}


def _plural(kind: str) -> str:
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"
