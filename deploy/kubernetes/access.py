"""What our accounts need to be allowed in a cluster, each with its reason.

The chart's roles are these tables (a test compares them), and programs look before they begin, so
that a missing verb is a sentence at the start and not a failure in the middle of something.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from circinus.deploy.kubernetes.api import Cluster
from circinus.pipelines.errors import CircinusError

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Permission:
    """Verbs on a kind of object."""

    group: str  # API group; empty: the core one
    resource: str  # plural, with the subresource behind a slash
    verbs: tuple[str, ...]  # all that are needed
    purpose: str  # what for, in words
    of_cluster: bool = False  # whether the objects belong to no namespace


class NotAllowed(CircinusError):
    """The account lacks permissions."""

    def __init__(self, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)  # each in words
        super().__init__(
            f"the account lacks permissions: {'; '.join(self.missing)}. "
            "The chart's roles grant them (docs/kubernetes.md)."
        )


_GROUP = "circinus.io"
FOLLOWER = (
    Permission(
        _GROUP,
        "pipelinequeries",
        ("list", "watch", "patch"),
        "to follow PipelineQuery objects and hold them until they are released",
    ),
    Permission(_GROUP, "pipelinequeries/status", ("patch",), "to write how a query fares"),
    Permission("", "events", ("create",), "to tell what happened"),
)
"""Of `circinus operator`, in each namespace that it follows."""

LEADER = (
    Permission(
        "coordination.k8s.io",
        "leases",
        ("get", "create", "update"),
        "to let one of several operators lead",
    ),
)
"""Of the same, in the namespace of its lease."""

OPERATOR = (*FOLLOWER, *LEADER)
"""Of the same, where it follows its own namespace."""

SEEING_ALL = (
    Permission(
        _GROUP,
        "pipelinequeries",
        ("list",),
        "to find objects that nobody follows",
        of_cluster=True,
    ),
    Permission(
        _GROUP,
        "pipelinequeries/status",
        ("patch",),
        "to tell that nobody follows them",
        of_cluster=True,
    ),
)
"""Rights of an operator of some namespaces, to mark objects of others as not followed."""

RETIREMENT = (
    Permission(
        _GROUP,
        "pipelinequeries",
        ("list", "delete", "update"),
        "to delete the release's PipelineQuery objects, and let those go that nobody releases",
    ),
)
"""Of `circinus operator --retire`, in its namespace."""

DISCOVERY = (
    Permission(
        "", "nodes", ("list", "watch"), "to count the machines of each tier", of_cluster=True
    ),
)
"""Of a service that plans for the nodes of its cluster."""

DISPATCHER = (
    Permission(
        "discovery.k8s.io",
        "endpointslices",
        ("list", "watch"),
        "to find the workers that are ready",
    ),
)
"""Of what sends requests to the workers of a service, in their namespace."""

DEPLOYER = (
    Permission(
        "apps",
        "deployments",
        ("create", "patch", "list", "delete"),
        "to start workers, and to end those that nobody wants",
    ),
    Permission(
        "",
        "services",
        ("create", "patch", "delete"),
        "to let the cluster tell which workers are ready",
    ),
    Permission(
        "policy",
        "poddisruptionbudgets",
        ("create", "patch", "list", "delete"),
        "to let nodes be drained one worker of a tier at a time",
    ),
    *DISPATCHER,
    Permission("", "pods", ("list",), "to say why one does not start"),
    Permission(
        _GROUP, "pipelinequeries", ("list",), "to let workers go with their query's object"
    ),
)
"""Of a service whose plans run in its cluster, in their namespace."""

CREDENTIALS = (
    Permission("", "secrets", ("get", "update"), "to fill in a release's own, and no others"),
)
"""Of `circinus credentials`, for the Secrets that the chart names."""


def require_access(cluster: Cluster, namespace: str, needs: Iterable[Permission]) -> None:
    """Return if the account may do everything that is needed in a namespace; empty: in all.

    NotAllowed names all that is missing; ClusterRefused if it may not even ask, or Unavailable.
    """
    missing = []
    for need in lacking(cluster, namespace, needs):
        group = f".{need.group}" if need.group else ""
        where = f" in namespace {namespace}" if namespace else " in all namespaces"
        where = "" if need.of_cluster else where
        objects = f"{need.resource}{group}{where} ({need.purpose})"
        missing += [f"{verb} {objects}" for verb in need.verbs]
    if missing:
        raise NotAllowed(missing)


def lacking(
    cluster: Cluster, namespace: str, needs: Iterable[Permission]
) -> tuple[Permission, ...]:
    """Return what the account may not do of what is needed, with the verbs that it lacks.

    ClusterRefused if it may not even ask, or Unavailable.
    """
    verbs = (
        (need, tuple(verb for verb in need.verbs if not _may(cluster, namespace, need, verb)))
        for need in needs
    )
    return tuple(replace(need, verbs=refused) for need, refused in verbs if refused)


def _may(cluster: Cluster, namespace: str, need: Permission, verb: str) -> bool:
    resource, _, subresource = need.resource.partition("/")
    attributes = {
        "group": need.group,
        "resource": resource,
        "subresource": subresource,
        "verb": verb,
        "namespace": "" if need.of_cluster else namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(cluster.create(_REVIEWS, review)["status"]["allowed"])
