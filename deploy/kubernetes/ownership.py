"""Whose the objects of a namespace are, so that everybody deletes their own and nothing else.

A release is what `helm install` made, or a service that was started by hand and given a name. What
it makes bears that name, by which it finds and prunes it, and has an owner: the cluster itself
deletes it when the owner is gone, even if nothing of the release is left to do so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from circinus.deploy.kubernetes.api import Absent, Cluster, Object, collection_of
from circinus.deploy.kubernetes.names import (
    COMPONENT,
    FIELD_MANAGER,
    NAME,
    OF_QUERY,
    PART_OF,
    WORKER_APP,
    selector_of,
)
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput

RELEASE = "circinus.io/release"
"""Label of what a release makes, and of the PipelineQuery objects that it follows: its name.

Not `app.kubernetes.io/instance`, which means the same to people: tools that deliver objects from a
repository set that to a name of their own."""
DEFAULT_RELEASE = "circinus"

GROUP, KIND, PLURAL = "circinus.io", "PipelineQuery", "pipelinequeries"
"""Of the custom resource, which the operator follows."""
API_VERSION = f"{GROUP}/v1alpha1"
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RELEASE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,51}[a-z0-9])?")
_WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectOwner:
    """An object of the same namespace, with which the cluster deletes what it owns."""

    api_version: str
    kind: str
    name: str
    uid: str  # of this object, never used again

    @property
    def reference(self) -> Object:
        """Return what an object that it owns has in `metadata.ownerReferences`."""
        known = {"kind": self.kind, "name": self.name, "uid": self.uid}
        return {"apiVersion": self.api_version, **known}


def check_release(release: str) -> None:
    """Raise InvalidInput unless a name is one that `helm install` takes."""
    rule = "must be at most 53 of a-z, 0-9, '-', '.', with a letter or digit at both ends"
    checks.require(_RELEASE.fullmatch(release) is not None, "release", rule, release)


def labels_of_release(release: str) -> dict[str, str]:
    """Return the labels of everything that a release makes, the same through its upgrades.

    The name is not that of the service: policies let the service in by it.
    """
    return {NAME: WORKER_APP, OF_QUERY: release, PART_OF: FIELD_MANAGER, RELEASE: release}


def selector_of_workers(release: str) -> str:
    """Return the selector of the workers of a release, and of what stands around them.

    That is nothing of another release, and nothing of `circinus deploy`, which is of none.
    """
    return selector_of({COMPONENT: _WORKER, RELEASE: release})


def owned_metadata(owner: ObjectOwner | None) -> Object:
    """Return what is in the metadata of what it owns; None owns nothing."""
    return {} if owner is None else {"ownerReferences": [owner.reference]}


def belonging(document: Object, release: str, owner: ObjectOwner | None) -> Object:
    """Return an object with the labels of its release, on its pods too, and with its owner."""
    labels = labels_of_release(release)
    metadata = document["metadata"]
    owned = {
        **document,
        "metadata": {
            **metadata,
            "labels": {**metadata.get("labels", {}), **labels},
            **owned_metadata(owner),
        },
    }
    template = document.get("spec", {}).get("template")
    if template is None:
        return owned
    of_pods = {**template["metadata"], "labels": {**template["metadata"]["labels"], **labels}}
    return {**owned, "spec": {**document["spec"], "template": {**template, "metadata": of_pods}}}


def queries_path(namespace: str | None) -> str:
    """Return the path of the PipelineQuery objects of a namespace; None: of all."""
    where = "" if namespace is None else f"/namespaces/{namespace}"
    return f"/apis/{API_VERSION}{where}/{PLURAL}"


def query_path(obj: Object) -> str:
    """Return the path of a PipelineQuery object."""
    return f"{queries_path(obj['metadata']['namespace'])}/{obj['metadata']['name']}"


def deployment_named(cluster: Cluster, namespace: str, name: str) -> ObjectOwner:
    """Return a Deployment as an owner; InvalidInput if there is none, else as `Cluster` raises."""
    path = collection_of("Deployment", namespace)
    deployments = cluster.listed(path, fieldSelector=f"metadata.name={name}")["items"]
    if not deployments:
        raise InvalidInput.of("owner", f"must be a Deployment of namespace {namespace}", name)
    return _owner("apps/v1", "Deployment", deployments[0]["metadata"])


def _owner(api_version: str, kind: str, metadata: Object) -> ObjectOwner:
    name, uid = metadata["name"], metadata["uid"]
    return ObjectOwner(api_version=api_version, kind=kind, name=name, uid=uid)


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerOwners:
    """Finds the owner of a query's workers: its PipelineQuery if it has one, else the service.

    The operator submits a query under a key that begins with the uid of its object. An owner must
    be in the namespace of what it owns, or the cluster deletes that at once: so it is looked for
    there, and objects of other namespaces own nothing.
    """

    cluster: Cluster
    namespace: str  # of the workers
    release: str  # whose objects count
    key_of: Callable[[str], str | None]  # the idempotency key of a query; None: it has none
    service: ObjectOwner | None  # of queries without an object; None: their workers have no owner
    _known: Mapping[str, ObjectOwner] = field(default_factory=dict, init=False)  # by uid

    def of(self, query_id: str) -> ObjectOwner | None:
        """Return the owner of a query's workers. Blocks, and raises as `Cluster` does."""
        uid = (self.key_of(query_id) or "").partition("/")[0]
        if _UID.fullmatch(uid) is None:
            return self.service
        if uid not in self._known:
            self._known = self._listed()
        return self._known.get(uid, self.service)

    def _listed(self) -> dict[str, ObjectOwner]:
        chosen = f"{RELEASE}={self.release}"
        try:
            queries = self.cluster.listed(queries_path(self.namespace), labelSelector=chosen)
        except Absent:  # a cluster without the custom resource
            return {}
        owners = (_owner(API_VERSION, KIND, item["metadata"]) for item in queries["items"])
        return {owner.uid: owner for owner in owners}
