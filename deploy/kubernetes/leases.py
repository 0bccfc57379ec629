"""The lease of a controller, as the cluster's `coordination.k8s.io/v1` keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from deploy.kubernetes.api import Cluster, Object
from deploy.kubernetes.errors import Clash
from pipelines import checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who leads, as the cluster has it.

    Attributes:
        holder: Who; empty: nobody, it was given up.
        renewed: When the holder renewed it last, by its own clock; to be compared for equality
            only.
        version: Of the record: writing needs the one that was read. None: there is no record.
    """

    holder: str = ""
    renewed: str = ""
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLeases:
    """A lease of a name in a namespace. Calls block.

    Attributes:
        cluster: That keeps it.
        namespace: Where.
        name: Of the lease.
        duration_s: Told to others who look, in whole seconds.
    """

    cluster: Cluster
    namespace: str
    name: str
    duration_s: float

    def __post_init__(self) -> None:
        checks.positive("duration_s", self.duration_s)

    def read(self) -> Lease:
        """Give the lease; one without version if there is none.

        Raises:
            ClusterRefused: If the cluster says no.
            Unavailable: If it does not answer.
        """
        found = self.cluster.get(f"{self._collection}/{self.name}")
        return Lease() if found is None else _lease(found)

    def write(self, lease: Lease, holder: str, *, at: float) -> Lease | None:
        """Put a holder, renewed at that time, into the lease that was read.

        None: somebody else was faster.

        Raises:
            ClusterRefused: If the cluster says no.
            Unavailable: If it does not answer.
        """
        body = self._document(lease, holder, at)
        try:
            if lease.version is None:
                return _lease(self.cluster.create(self._collection, body))
            return _lease(self.cluster.replace(f"{self._collection}/{self.name}", body))
        except Clash:
            return None

    @property
    def _collection(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    def _document(self, lease: Lease, holder: str, at: float) -> Object:
        metadata = {"name": self.name, "namespace": self.namespace}
        if lease.version is not None:
            metadata["resourceVersion"] = lease.version
        renewed = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder or None,
                "leaseDurationSeconds": max(1, round(self.duration_s)),
                "renewTime": renewed,
            },
        }


def _lease(found: Object) -> Lease:
    spec = found.get("spec") or {}
    return Lease(
        holder=spec.get("holderIdentity") or "",
        renewed=spec.get("renewTime") or "",
        version=found["metadata"]["resourceVersion"],
    )
