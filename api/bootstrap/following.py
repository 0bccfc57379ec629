"""What a dispatcher is made of: it sends requests to instances that a service looks after."""

from __future__ import annotations

from circinus.api.bootstrap.registry import RegisteredPipelines
from circinus.api.query_file import read_infrastructure
from circinus.api.settings import Settings
from circinus.deploy.runtime.following import ToldLauncher
from circinus.deploy.runtime.heap import freeze_heap
from circinus.deploy.runtime.instances import Launcher
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.workers.transport import files_in
from circinus.pipelines.clock import SystemClock
from circinus.scheduler.dispatch.policies import dispatch_policy


def make_follower(settings: Settings, told: ToldLauncher) -> Orchestrator:
    """Return what sends requests to the instances of a service. Needs a running event loop.

    Those of this computer are found by what `told` is told. InvalidInput, NotAllowed and
    Unavailable as `make_orchestrator`.
    """
    catalogue = RegisteredPipelines.of(settings.extra_pipelines)
    launcher = _of_pods(settings) if settings.target == "kubernetes" else told
    freeze_heap()
    return Orchestrator(
        read_infrastructure(settings.infrastructure),
        launcher,
        catalogue.referred,
        dispatch_policy(settings.chosen_method.dispatch),
        SystemClock(),
    )


def _of_pods(settings: Settings) -> Launcher:
    # The Kubernetes client: only when asked to
    from circinus.deploy.kubernetes.access import DISPATCHER, require_access
    from circinus.deploy.kubernetes.api import Cluster, own_namespace
    from circinus.deploy.kubernetes.api import connect as connect_cluster
    from circinus.deploy.kubernetes.following import FollowingLauncher

    cluster = Cluster(connect_cluster())
    namespace = settings.namespace or own_namespace()
    require_access(cluster, namespace, DISPATCHER)
    return FollowingLauncher(
        cluster,
        namespace,
        settings.release,
        files_in(settings.worker_tls),
        settings.message_limit_bytes,
    )
