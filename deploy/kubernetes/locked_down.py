"""Pods that may do as little as runs: what workers and benchmarks have in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from circinus.deploy.kubernetes.api import Object

TLS_FOLDER = Path("/etc/circinus-tls")
"""Where a pod finds its certificate, key and authority."""
SCRATCH, ENVIRONMENT = Path("/tmp"), Path("/opt/environment")
"""What a container may write to, and where it finds the packages of its node."""
_USER = 10001
_SCRATCH_SIZE = "1Gi"  # beyond it the node evicts the pod instead of filling its disk


def locked_down(
    container: Object,
    *,
    environment: str | None,
    tls_secret: str | None = None,
    more: Mapping[str, object],
) -> Object:
    """Return the pod of one container, with `more` fields. Its own files are read-only.

    `environment` is a folder of the node with the packages; None: the image has them. Without a
    `tls_secret` it has no certificates.
    """
    mounts: list[Object] = [{"name": "scratch", "mountPath": str(SCRATCH)}]
    volumes: list[Object] = [{"name": "scratch", "emptyDir": {"sizeLimit": _SCRATCH_SIZE}}]
    if tls_secret is not None:
        mounts.insert(0, {"name": "tls", "mountPath": str(TLS_FOLDER), "readOnly": True})
        # Not root, so the group of the pod has to be able to read the key.
        secret = {"secretName": tls_secret, "defaultMode": 0o440}
        volumes.insert(0, {"name": "tls", "secret": secret})
    if environment is not None:
        mounts.append({"name": "environment", "mountPath": str(ENVIRONMENT), "readOnly": True})
        path = {"path": environment, "type": "Directory"}
        volumes.append({"name": "environment", "hostPath": path})
    rights = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            **({} if tls_secret is None else {"fsGroup": _USER}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **more,
        "containers": [{**container, "securityContext": rights, "volumeMounts": mounts}],
        "volumes": volumes,
    }
