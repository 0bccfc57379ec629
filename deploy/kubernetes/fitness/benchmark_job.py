"""A Job that verifies a deployed plan from inside the cluster. Pure: settings in, document out.

Its pod runs `circinus verify`: requests go to the service, whose dispatcher sends them over the
pod network. What it observed is its log, one JSON document; it fails if the plan does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.names import (
    COMPONENT,
    FIELD_MANAGER,
    MANAGED_BY,
    QUERY,
    version_of,
)
from circinus.deploy.kubernetes.pod_template import locked_down
from circinus.pipelines import checks

_RETENTION_S = 3600
_LONGEST_S = 1800
_PULL_POLICIES = ("IfNotPresent", "Always", "Never")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSettings:
    """What is verified, and with what."""

    query_id: str  # of a query that serves
    requests: int | None  # how many are sent, at least 2; None: as `circinus verify` chooses
    seed: int  # of their inputs
    namespace: str  # of the Job
    image: str  # of the service, with a tag or digest
    pull_policy: str = "IfNotPresent"  # of the image
    environment: str | None = None  # folder of nodes with the packages; None: the image has them
    service_url: str  # URL of the service, as pods reach it
    token_secret: str  # Secret of the namespace with the key `token`

    def __post_init__(self) -> None:
        enough = self.requests is None or self.requests > 1
        checks.require(enough, "requests", "must be at least 2", self.requests)
        rule = f"must be one of {', '.join(_PULL_POLICIES)}"
        checks.require(self.pull_policy in _PULL_POLICIES, "pull_policy", rule, self.pull_policy)
        version_of(self.image)


def name_of(settings: BenchmarkSettings) -> str:
    """Return the Job's name: the same for the same query, requests and inputs."""
    words = f"{settings.query_id}/{settings.requests}/{settings.seed}"
    return f"benchmark-{blake2b(words.encode(), digest_size=10).hexdigest()}"


def benchmark_job(settings: BenchmarkSettings) -> Object:
    """Return the Job. It runs once: figures of a second try would not be those of the first."""
    labels = {MANAGED_BY: FIELD_MANAGER, COMPONENT: "benchmark", QUERY: settings.query_id}
    name, namespace = name_of(settings), settings.namespace
    never = {"restartPolicy": "Never"}
    pod = locked_down(_container(settings), environment=settings.environment, more=never)
    spec = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": _LONGEST_S,
        "ttlSecondsAfterFinished": _RETENTION_S,
        "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


def _container(settings: BenchmarkSettings) -> Object:
    requests = [] if settings.requests is None else ["--requests", str(settings.requests)]
    secret = {"name": settings.token_secret, "key": "token"}
    return {
        "name": "benchmark",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "args": ["verify", settings.query_id, *requests, "--seed", str(settings.seed), "--json"],
        "env": [
            {"name": "CIRCINUS_URL", "value": settings.service_url},
            {"name": "CIRCINUS_TOKEN", "valueFrom": {"secretKeyRef": secret}},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
