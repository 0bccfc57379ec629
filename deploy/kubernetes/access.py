"""What our accounts need to be allowed in a cluster, each with its reason.

The chart's roles are these tables (a test compares them), and programs look before they begin, so
that a missing verb is a sentence at the start and not a failure in the middle of something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deploy.kubernetes.api import Cluster
from pipelines.errors import CircinusError

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Verbs on a kind of object.

    Attributes:
        group: API group; empty: the core one.
        resource: Plural, with the subresource behind a slash.
        verbs: All that are needed.
        purpose: What for, in words.
        of_cluster: Whether the objects belong to no namespace.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    purpose: str
    of_cluster: bool = False


class NotAllowed(CircinusError):
    """The account lacks permissions.

    Attributes:
        missing: Each in words.
    """

    def __init__(self, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"the account lacks permissions: {'; '.join(self.missing)}. "
            "The chart's roles grant them (docs/kubernetes.md)."
        )


OPERATOR = (
    Need(
        group="circinus.io",
        resource="pipelinequeries",
        verbs=("list", "watch", "patch"),
        purpose="to follow PipelineQuery objects and hold them until they are released",
    ),
    Need(
        group="circinus.io",
        resource="pipelinequeries/status",
        verbs=("patch",),
        purpose="to write how a query fares",
    ),
    Need(group="", resource="events", verbs=("create",), purpose="to tell what happened"),
    Need(
        group="coordination.k8s.io",
        resource="leases",
        verbs=("get", "create", "update"),
        purpose="to let one of several operators lead",
    ),
)
"""Of `circinus operator`, in its namespace."""

DISCOVERY = (
    Need(
        group="",
        resource="nodes",
        verbs=("list", "watch"),
        purpose="to count the machines of each tier",
        of_cluster=True,
    ),
)
"""Of a service that plans for the nodes of its cluster."""

DEPLOYER = (
    Need(
        group="apps",
        resource="deployments",
        verbs=("create", "patch", "list", "delete"),
        purpose="to start workers, and to end those that nobody wants",
    ),
    Need(
        group="",
        resource="services",
        verbs=("create", "patch", "delete"),
        purpose="to let the cluster tell which workers are ready",
    ),
    Need(
        group="discovery.k8s.io",
        resource="endpointslices",
        verbs=("list", "watch"),
        purpose="to find the workers that are ready",
    ),
    Need(group="", resource="pods", verbs=("list",), purpose="to say why one does not start"),
)
"""Of a service whose plans run in its cluster, in their namespace."""


def require_access(cluster: Cluster, namespace: str, needs: Iterable[Need]) -> None:
    """Return if the account may do everything that is needed.

    Raises:
        NotAllowed: With everything that is missing.
        ClusterRefused: If it may not even ask.
        Unavailable: If the cluster does not answer.
    """
    missing = [told for need in needs for told in _missing(cluster, namespace, need)]
    if missing:
        raise NotAllowed(missing)


def _missing(cluster: Cluster, namespace: str, need: Need) -> Iterator[str]:
    resource, _, subresource = need.resource.partition("/")
    where = "" if need.of_cluster else f" in namespace {namespace}"
    group = f".{need.group}" if need.group else ""
    for verb in need.verbs:
        asked = {
            "group": need.group,
            "resource": resource,
            "subresource": subresource,
            "verb": verb,
            "namespace": "" if need.of_cluster else namespace,
        }
        review = cluster.create(
            _REVIEWS,
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": asked},
            },
        )
        if not review["status"]["allowed"]:
            yield f"{verb} {need.resource}{group}{where} ({need.purpose})"
