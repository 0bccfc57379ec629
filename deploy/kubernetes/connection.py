"""The way to a cluster: from inside by the pod's service account, else by a kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import kubernetes.client
import kubernetes.config

from pipelines.errors import InvalidInput

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach the API server, for libraries with a client of their own.

    Attributes:
        server: URL.
        token: Bearer token; None: it shows none.
        authority: File with the server's certificate authority; None: the system's.
        insecure: Whether to take any certificate.
        certificate: File with a client certificate; None: it shows none.
        key: File with its key.
    """

    server: str
    token: str | None = None
    authority: str | None = None
    insecure: bool = False
    certificate: str | None = None
    key: str | None = None


def connect(kubeconfig: Path | None = None) -> kubernetes.client.ApiClient:
    """Give a client of the cluster.

    Args:
        kubeconfig: None: the pod's service account, else what `KUBECONFIG` names, else
            `~/.kube/config`.

    Raises:
        InvalidInput: If there is no way to a cluster.
    """
    chosen = kubernetes.client.Configuration()
    try:
        if kubeconfig is None and _NAMESPACE_FILE.exists():
            kubernetes.config.load_incluster_config(client_configuration=chosen)  # type: ignore[no-untyped-call]
        else:
            path = None if kubeconfig is None else str(kubeconfig)
            kubernetes.config.load_kube_config(path, client_configuration=chosen)  # type: ignore[no-untyped-call]
    except (kubernetes.config.ConfigException, OSError) as error:
        where = "the pod's service account, KUBECONFIG or ~/.kube/config"
        value = str(kubeconfig) if kubeconfig is not None else where
        raise InvalidInput.of("kubeconfig", f"must lead to a cluster ({error})", value) from error
    return kubernetes.client.ApiClient(chosen)


def make_client(server: str, *, token: str | None = None) -> kubernetes.client.ApiClient:
    """Give a client of an API server at an address."""
    chosen = kubernetes.client.Configuration(host=server)
    if token is not None:
        chosen.api_key = {"BearerToken": token}
        chosen.api_key_prefix = {"BearerToken": "Bearer"}
    return kubernetes.client.ApiClient(chosen)


def connection_of(client: kubernetes.client.ApiClient) -> Connection:
    """Give how a client reaches its API server; asked again, with a fresh token."""
    chosen = client.configuration
    header = chosen.get_api_key_with_prefix("BearerToken") or chosen.get_api_key_with_prefix(
        "authorization"
    )
    return Connection(
        server=chosen.host,
        token=header.rpartition(" ")[2] if header else None,  # "Bearer X", or in small letters
        authority=chosen.ssl_ca_cert,
        insecure=not chosen.verify_ssl,
        certificate=chosen.cert_file,
        key=chosen.key_file,
    )


def own_namespace() -> str:
    """Give the namespace of the pod that this runs in; `default` outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return DEFAULT_NAMESPACE
