"""What every pod of ours may do: as little as runs. One place, so that none is locked down less.

Each call gives new documents: what is shared would be an alias in YAML.
"""

from __future__ import annotations

from pathlib import Path

from deploy.kubernetes.api import Object

TLS_FOLDER = Path("/etc/circinus-tls")
_USER = 10001


def pod_rights(*, shares_files: bool = False) -> Object:
    """Give the fields of a pod that take rights away.

    Args:
        shares_files: Whether volumes are given to the pod's group: a key is not for all to read.
    """
    group = {"fsGroup": _USER} if shares_files else {}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            **group,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def container_rights() -> Object:
    """Give the security context of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def storage(
    environment: str | None, tls_secret: str | None = None
) -> tuple[list[Object], list[Object]]:
    """Give the mounts and volumes of a container whose own files are read-only.

    Args:
        environment: Folder of the node with the Python packages; None: the image has them.
        tls_secret: Secret with key and certificates; None: none is needed.
    """
    mounts: list[Object] = [{"name": "scratch", "mountPath": "/tmp"}]
    volumes: list[Object] = [{"name": "scratch", "emptyDir": {}}]
    if tls_secret is not None:
        mounts.insert(0, {"name": "tls", "mountPath": str(TLS_FOLDER), "readOnly": True})
        # Not root, so the group of the pod has to be able to read the key.
        secret = {"secretName": tls_secret, "defaultMode": 0o440}
        volumes.insert(0, {"name": "tls", "secret": secret})
    if environment is not None:
        mounts.append({"name": "environment", "mountPath": "/opt/environment", "readOnly": True})
        path = {"path": environment, "type": "Directory"}
        volumes.append({"name": "environment", "hostPath": path})
    return mounts, volumes
