"""How a service of this configuration starts workers as pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from circinus.api.settings import Settings
from circinus.deploy.workers.transport import files_in

if TYPE_CHECKING:  # the Kubernetes client: only when asked to
    from circinus.deploy.kubernetes.api import Cluster
    from circinus.deploy.kubernetes.launcher import ClusterLauncher
    from circinus.deploy.kubernetes.ownership import ObjectOwner
    from circinus.deploy.runtime.instances import Launcher

Owning = Callable[[str], "ObjectOwner | None"]
"""Returns who owns the workers of a query."""


def make_cluster_launcher(
    settings: Settings,
    owning: Callable[[Cluster, str, ObjectOwner | None], Owning] | None = None,
    callers: Launcher | None = None,
) -> ClusterLauncher:
    """Return what starts workers as pods of the settings' namespace. Needs a running event loop.

    `owning` gives, for the cluster, the namespace and the service there, what tells who owns
    workers; None: the service. `callers` starts what calls endpoints; None: such are refused.

    InvalidInput if there is no way to the cluster, or the service is not there, NotAllowed if the
    account lacks a permission there, Unavailable if the cluster does not answer.
    """
    # The Kubernetes client: only when asked to
    from circinus.deploy.kubernetes.access import DEPLOYER, require_access
    from circinus.deploy.kubernetes.api import Cluster, own_namespace
    from circinus.deploy.kubernetes.api import connect as connect_cluster
    from circinus.deploy.kubernetes.launcher import ClusterLauncher
    from circinus.deploy.kubernetes.ownership import deployment_named
    from circinus.deploy.kubernetes.pod_template import read_pod_template
    from circinus.deploy.kubernetes.pods import RenderSettings
    from circinus.deploy.kubernetes.resources import MachineShape

    cluster = Cluster(connect_cluster())
    namespace = settings.namespace or own_namespace()
    require_access(cluster, namespace, DEPLOYER)
    own = deployment_named(cluster, namespace, settings.owner) if settings.owner else None
    shape = RenderSettings(
        namespace=namespace,
        image=settings.worker_image,
        pull_policy=settings.worker_pull_policy,
        environment=settings.worker_environment,
        tls_secret=settings.worker_tls_secret,
        machine=MachineShape(cpu=settings.machine_cpu, memory=settings.machine_memory),
        allow_import=bool(settings.extra_pipelines),
        message_bytes=settings.message_limit_bytes,
        template=read_pod_template(settings.worker_pod_template),
    )
    return ClusterLauncher(
        cluster,
        shape,
        files_in(settings.worker_tls),
        callers=callers,
        release=settings.release,
        owner_of=owning(cluster, namespace, own) if owning else lambda _: own,
    )
