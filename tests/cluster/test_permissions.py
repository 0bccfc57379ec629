"""The rights that the chart grants suffice, and each verb that is missing is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from circinus.deploy.kubernetes.access import (
    DEPLOYER,
    DISCOVERY,
    DISPATCHER,
    OPERATOR,
    RETIREMENT,
    NotAllowed,
    Permission,
    require_access,
)
from circinus.deploy.kubernetes.api import Cluster as ApiServer
from circinus.deploy.kubernetes.api import connect
from tests.cluster.accounts import Rules, grant, grant_everywhere, stranger
from tests.cluster.api import eventually
from tests.cluster.chart import NAMESPACE, RELEASE, of_kind, rendered
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> Iterator[ApiServer]:
    with stranger(cluster, tmp_path) as kubeconfig:
        yield ApiServer(connect(kubeconfig))


def rules(kind: str, name: str) -> Rules:
    documents = rendered("deployment.target=kubernetes", "discovery.enabled=true")
    found: Rules = of_kind(documents, kind, name)["rules"]
    return found


def missing(account: ApiServer, namespace: str, needs: tuple[Permission, ...]) -> list[str]:
    """Return what the account is told that it lacks, without the purposes."""
    try:
        require_access(account, namespace, needs)
    except NotAllowed as refused:
        return [told.partition(" (")[0] for told in refused.missing]
    return []


def each_verb_less(given: Rules) -> Iterator[tuple[dict[str, Any], str, Rules]]:
    """Yield every rule and verb of it, with the rules that are left without that verb."""
    for index, rule in enumerate(given):
        for verb in rule["verbs"]:
            left = {**rule, "verbs": [other for other in rule["verbs"] if other != verb]}
            rest = [*given[:index], *given[index + 1 :]]
            yield rule, verb, [*rest, left] if left["verbs"] else rest


def told_of(rule: dict[str, Any], verb: str, where: str) -> str:
    (group,), (resource,) = rule["apiGroups"], rule["resources"]
    return f"{verb} {resource}{'.' + group if group else ''}{where}"


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        (f"{RELEASE}-operator", OPERATOR),
        (f"{RELEASE}-retire", RETIREMENT),
        (RELEASE, DEPLOYER),
        (f"{RELEASE}-dispatcher", DISPATCHER),
    ],
)
def test_a_role_of_the_chart_suffices_and_each_verb_less_is_named(
    cluster: Cluster, namespace: str, account: ApiServer, name: str, needs: tuple[Permission, ...]
) -> None:
    check(
        rules("Role", name),
        partial(grant, cluster, namespace),
        partial(missing, account, namespace, needs),
        f" in namespace {namespace}",
    )


def test_the_cluster_role_of_the_chart_suffices_and_each_verb_less_is_named(
    cluster: Cluster, account: ApiServer
) -> None:
    try:
        check(
            rules("ClusterRole", f"{NAMESPACE}-{RELEASE}"),
            partial(grant_everywhere, cluster),
            partial(missing, account, "", DISCOVERY),
            "",
        )
    finally:
        grant_everywhere(cluster, [])


def check(
    given: Rules, put: Callable[[Rules], None], lacks: Callable[[], list[str]], where: str
) -> None:
    """Grant everything, then each verb less; what is lacking must be exactly that."""
    assert lacks() != []
    put(given)
    eventually(lambda: lacks() == [], "the chart's role to suffice", timeout_s=10)
    for rule, verb, left in each_verb_less(given):
        told = [told_of(rule, verb, where)]
        put(left)
        eventually(lambda told=told: lacks() == told, f"{told} to be named", timeout_s=10)  # type: ignore[misc]  # a default binds it
