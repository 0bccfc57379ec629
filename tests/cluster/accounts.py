"""An account that may do nothing but what a test grants it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import USERS, Cluster

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_GROUP = "rbac.authorization.k8s.io"
Rules = Sequence[dict[str, Any]]


@contextmanager
def stranger(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Return the kubeconfig of an account without roles, or skip the test without one."""
    if cluster.control is None:
        pytest.skip("the accounts of this cluster are not ours")
    (token,) = USERS
    path = folder / "stranger.kubeconfig"
    cluster.control.write_kubeconfig(path, token)
    yield path


def grant(cluster: Cluster, namespace: str, rules: Rules) -> None:
    """Let the account do that in a namespace, and nothing else there."""
    roles = f"{_RBAC}/namespaces/{namespace}"
    _put(cluster, f"{roles}/roles", f"{roles}/rolebindings", "Role", rules)


def grant_everywhere(cluster: Cluster, rules: Rules) -> None:
    """Let the account do that in the whole cluster; none: nothing."""
    _put(cluster, f"{_RBAC}/clusterroles", f"{_RBAC}/clusterrolebindings", "ClusterRole", rules)


def _put(cluster: Cluster, roles: str, bindings: str, kind: str, rules: Rules) -> None:
    ((user, _),) = USERS.values()
    name = f"test-{user}"
    if cluster.api.get(f"{roles}/{name}") is not None:
        cluster.api.merge(f"{roles}/{name}", {"rules": list(rules)})
        return
    metadata = {"name": name}
    cluster.api.create(roles, {"metadata": metadata, "rules": list(rules)})
    binding = {
        "metadata": metadata,
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": name},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }
    cluster.api.create(bindings, binding)
