"""The API server itself: its version, what the account may do, namespace and definition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from circinus.deploy.kubernetes.access import (
    DEPLOYER,
    DISCOVERY,
    OPERATOR,
    RETIREMENT,
    Permission,
    lacking,
)
from circinus.deploy.kubernetes.api import Cluster, Forbidden, Object
from circinus.deploy.kubernetes.fitness.check import Check
from circinus.deploy.kubernetes.fitness.needs import ClusterNeeds

OLDEST = (1, 29)
"""Version of Kubernetes: the chart asks for the same."""
_DEFINE = "circinus operator --definition | kubectl apply --server-side -f -"

_VERBS = ("get", "create", "patch", "delete")
_RBAC = "rbac.authorization.k8s.io"
_MADE = (
    ("", "serviceaccounts"),
    ("", "configmaps"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("apps", "deployments"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    (_RBAC, "roles"),
    (_RBAC, "rolebindings"),
)
_CHART = "that the chart makes"
INSTALLER = (
    Permission(
        "", "secrets", ("list", "update", *_VERBS), "of the release, its token and certificates"
    ),
    *(Permission(group, resource, _VERBS, _CHART) for group, resource in _MADE),
)
"""Of who installs the chart, in its namespace, besides what its accounts are granted."""
INSTALLER_OF_DISCOVERY = tuple(
    Permission(_RBAC, resource, _VERBS, "for discovery", of_cluster=True)
    for resource in ("clusterroles", "clusterrolebindings")
)
_DEFINITIONS = "customresourcedefinitions"
INSTALLER_OF_DEFINITION = (
    Permission(
        "apiextensions.k8s.io",
        _DEFINITIONS,
        ("get", "create", "patch"),
        "of PipelineQuery; with crds.install=false somebody else brings it",
        of_cluster=True,
    ),
)
_RELEASED = "meta.helm.sh/release-namespace"
_SPACES = Permission("", "namespaces", ("create",), "", of_cluster=True)


def version(cluster: Cluster) -> Check:
    """Check that it answers and is new enough; Unavailable or ClusterRefused if it does not."""
    info = cluster.listed("/version")
    release = str(info.get("gitVersion") or f"{info.get('major')}.{info.get('minor')}")
    # Some clusters add a sign: `29+`.
    numbers = re.match(r"(\d+)\.(\d+)", f"{info.get('major')}.{info.get('minor')}")
    fits = numbers is not None and (int(numbers[1]), int(numbers[2])) >= OLDEST
    host = cluster.client.configuration.host
    remedy = "" if fits else f"take a cluster of {OLDEST[0]}.{OLDEST[1]} or newer"
    return Check("API server", "ok" if fits else "fail", f"{release} at {host}", remedy)


def namespace(cluster: Cluster, needs: ClusterNeeds) -> Iterator[Check]:
    """Check the namespace; installing may make it."""
    name = needs.namespace
    live = cluster.get(f"/api/v1/namespaces/{name}")
    if live is None:
        makes = not lacking(cluster, "", [_SPACES])
        remedy = f"kubectl create namespace {name}, or helm install --create-namespace"
        words = f"{name} is not there"
        if not makes:
            words += ", and this account may not make it"
        yield Check("namespace", "note" if makes else "fail", words, remedy)
    elif live["metadata"].get("deletionTimestamp"):
        remedy = "wait until it is gone, or take another"
        yield Check("namespace", "fail", f"{name} is being deleted", remedy)
    else:
        yield Check("namespace", "ok", name)


def rights(cluster: Cluster, needs: ClusterNeeds) -> Iterator[Check]:
    """Check what the account may do: install, and what it grants to the accounts that run.

    One that runs is the service's or an operator's: of its parts one has to be whole.
    """
    if needs.installs:
        counting = INSTALLER_OF_DISCOVERY if needs.discovers else ()
        defining = INSTALLER_OF_DEFINITION if needs.defines else ()
        ending = RETIREMENT if needs.operates else ()
        permissions = (*INSTALLER, *counting, *defining, *ending)
        yield _right("install", cluster, needs, permissions)
    parts = (
        ("run plans as pods", DEPLOYER, needs.deploys),
        ("count nodes", DISCOVERY, needs.discovers),
        ("follow PipelineQuery objects", OPERATOR, needs.operates),
    )
    checks = [_right(doing, cluster, needs, rows) for doing, rows, needed in parts if needed]
    whole = any(one.state == "ok" for one in checks)
    for one in checks:
        others = one.state == "fail" and whole and not needs.installs
        yield replace(one, state="note") if others else one


def _right(
    doing: str, cluster: Cluster, needs: ClusterNeeds, permissions: Iterable[Permission]
) -> Check:
    name, missing = f"rights to {doing}", lacking(cluster, needs.namespace, permissions)
    if not missing:
        return Check(name, "ok", "this account has them")
    denied = "; ".join(
        f"{', '.join(one.verbs)} {one.resource}{f'.{one.group}' if one.group else ''}"
        f"{' of the cluster' if one.of_cluster else ''} ({one.purpose})"
        for one in missing
    )
    # Kubernetes lets no account grant what it does not have.
    remedy = (
        "install with an account that has them: it can grant only what it has"
        if needs.installs
        else "the chart's roles grant them (docs/kubernetes.md)"
    )
    return Check(name, "fail", f"it may not {denied}", remedy)


def definition(cluster: Cluster, needs: ClusterNeeds, wanted: Object) -> Iterator[Check]:
    """Check the definition of PipelineQuery: `wanted` is that of this release."""
    if not needs.operates:
        return
    names, group = wanted["spec"]["names"], wanted["spec"]["group"]
    version = wanted["spec"]["versions"][0]["name"]
    name, resource = f"{names['kind']} ({group}/{version})", f"{names['plural']}.{group}"
    brings = needs.installs and needs.defines
    if cluster.get(f"/apis/{group}/{version}") is None:
        words = f"{resource} is not defined"
        if brings:
            yield Check(name, "note", words, "helm install does it")
        else:
            yield Check(name, "fail", words, f"let an administrator: {_DEFINE}")
        return
    try:
        live = cluster.get(f"/apis/apiextensions.k8s.io/v1/{_DEFINITIONS}/{resource}")
    except Forbidden:
        yield Check(name, "ok", "is served; this account may not look at its fields")
        return
    fields = [] if live is None else [*_differences(_as_stored(wanted), live, "")]
    if not fields:
        yield Check(name, "ok", "is that of this release")
        return
    words = f"{resource} is that of another release ({len(fields)} differences: {fields[0]})"
    notes = (live or {})["metadata"].get("annotations") or {}
    if brings and notes.get(_RELEASED) == needs.namespace:
        yield Check(name, "note", words, "helm upgrade brings it up to date")
    else:
        yield Check(name, "fail", words, _DEFINE)


def _differences(wanted: object, live: object, path: str) -> Iterator[str]:
    """Yield `path: is -> should be` of what is wanted and not there; what is more is ignored."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        for name, value in wanted.items():
            below = f"{path}.{name}" if path else str(name)
            if name not in live and value not in ({}, []):
                yield f"{below}: absent -> {_shortened(value)}"
            elif name in live:
                yield from _differences(value, live[name], below)
    elif isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        for number, (value, there) in enumerate(zip(wanted, live, strict=True)):
            yield from _differences(value, there, f"{path}[{number}]")
    elif wanted != live:
        yield f"{path}: {_shortened(live)} -> {_shortened(wanted)}"


def _shortened(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _as_stored(wanted: Object) -> Object:
    """Return a definition as a server returns it: columns of priority zero have none."""
    versions = [
        {
            **version,
            "additionalPrinterColumns": [
                {name: value for name, value in column.items() if (name, value) != ("priority", 0)}
                for column in version.get("additionalPrinterColumns", ())
            ],
        }
        for version in wanted["spec"]["versions"]
    ]
    return {**wanted, "spec": {**wanted["spec"], "versions": versions}}
