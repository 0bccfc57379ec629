"""A real Kubernetes control plane of processes of this computer.

etcd, API server with RBAC, controllers and scheduler; kwok plays kubelet for the nodes that say
so. It is for tests: etcd does not sync to disk, and the tokens are in a file beside it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.cluster import programs
from tests.cluster.api import Api
from tests.cluster.processes import Processes, free_ports

ADMIN_TOKEN = "circinus-test-admin"
SIMULATED = "kwok.x-k8s.io/node"
LOOPBACK = "127.0.0.1"
_READY_S = 90.0
_GRACE_S = 10.0
_SERVICES = "10.96.0.0/16"
_UNTHROTTLED = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""By default controllers make 20 calls a second: hundreds of Deployments would wait for that."""


@dataclass(slots=True, kw_only=True)
class ControlPlane:
    """Starts and stops it; the API server also alone, as tests kill it.

    Attributes:
        folder: For everything; exists.
        address: That the API server listens on.
        users: Token -> (user, groups), beside the administrator.
        api: A client that is the administrator.
    """

    folder: Path
    address: str = LOOPBACK
    users: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    processes: Processes = field(init=False)
    port: int = field(init=False, default=0)
    api: Api = field(init=False)
    _etcd_ports: list[int] = field(init=False)
    _etcd: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.processes = Processes(folder=self.folder)
        self.port, *self._etcd_ports = free_ports(3)
        self.api = Api(self.url, ADMIN_TOKEN, self.authority)

    @property
    def url(self) -> str:
        """The address of the API server."""
        return f"https://{self.address}:{self.port}"

    @property
    def authority(self) -> Path:
        """The certificate that clients check."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """A file with which a client is the administrator."""
        return self.folder / "kubeconfig"

    def start(self) -> None:
        """Start everything; return when it answers.

        Raises:
            NotBuilt: If a program is missing.
            NotReady: If something does not come up.
        """
        (self.folder / "certificates").mkdir()
        self._write_keys()
        self._start_etcd(*self._etcd_ports)
        self.start_api_server()
        self.write_kubeconfig(self.kubeconfig, ADMIN_TOKEN)
        self._start_controllers()
        self._start_kwok()
        self.processes.wait_until(
            self._has_service_account,
            "kube-controller-manager",
            "the default service account",
            timeout_s=_READY_S,
        )

    def start_api_server(self) -> None:
        """Start the API server on its port; return when it is ready."""
        keys = self.folder / "service-accounts.pem"
        self.processes.start(
            "kube-apiserver",
            [
                programs.find(programs.API_SERVER),
                f"--etcd-servers={self._etcd}",
                f"--bind-address={self.address}",
                f"--secure-port={self.port}",
                f"--advertise-address={self.address}",
                f"--cert-dir={self.folder / 'certificates'}",
                "--authorization-mode=Node,RBAC",
                f"--token-auth-file={self.folder / 'tokens.csv'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={keys}",
                f"--service-account-signing-key-file={keys}",
                f"--service-cluster-ip-range={_SERVICES}",
                "--endpoint-reconciler-type=none",
                "--allow-privileged=true",
                "--kubelet-preferred-address-types=InternalIP",  # there is no DNS for nodes
                "--watch-cache=true",
            ],
        )
        self.processes.wait_until(
            lambda: self.api.is_ready(), "kube-apiserver", "a ready API server", timeout_s=_READY_S
        )

    def kill_api_server(self) -> None:
        """Kill the API server as a crash would; what it stored stays."""
        self.processes.stop("kube-apiserver", grace_s=0)

    def stop(self) -> None:
        """Stop everything; may be called again."""
        self.api.close()
        # etcd goes last: what is stopped before it may still want to write.
        self.processes.stop_all(grace_s=_GRACE_S)

    def write_kubeconfig(self, path: Path, token: str) -> None:
        """Write a file with which a client shows `token`."""
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "circinus-test",
            "clusters": [{"name": "circinus-test", "cluster": cluster}],
            "users": [{"name": "circinus-test", "user": {"token": token}}],
            "contexts": [
                {
                    "name": "circinus-test",
                    "context": {"cluster": "circinus-test", "user": "circinus-test"},
                }
            ],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document))

    def _write_keys(self) -> None:
        keys = self.folder / "service-accounts.pem"
        subprocess.run(
            ["openssl", "genrsa", "-traditional", "-out", str(keys), "2048"],
            check=True,
            capture_output=True,
        )
        admin = {ADMIN_TOKEN: ("admin", ("system:masters",))}
        lines = [
            f'{token},{user},{user},"{",".join(groups)}"'
            for token, (user, groups) in {**admin, **self.users}.items()
        ]
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text("\n".join(lines) + "\n")

    def _start_etcd(self, client_port: int, peer_port: int) -> None:
        self._etcd = f"http://127.0.0.1:{client_port}"
        peers = f"http://127.0.0.1:{peer_port}"
        self.processes.start(
            "etcd",
            [
                programs.find(programs.ETCD),
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls={self._etcd}",
                f"--advertise-client-urls={self._etcd}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=default={peers}",
                "--unsafe-no-fsync",
            ],
        )

    def _start_controllers(self) -> None:
        self.processes.start(
            "kube-controller-manager",
            [
                programs.find(programs.CONTROLLERS),
                f"--kubeconfig={self.kubeconfig}",
                f"--service-account-private-key-file={self.folder / 'service-accounts.pem'}",
                f"--root-ca-file={self.authority}",
                "--leader-elect=false",
                "--secure-port=0",
                *_UNTHROTTLED,
            ],
        )
        self.processes.start(
            "kube-scheduler",
            [
                programs.find(programs.SCHEDULER),
                f"--kubeconfig={self.kubeconfig}",
                "--leader-elect=false",
                "--secure-port=0",
                *_UNTHROTTLED,
            ],
        )

    def _start_kwok(self) -> None:
        self.processes.start(
            "kwok",
            [
                programs.find(programs.KWOK),
                f"--kubeconfig={self.kubeconfig}",
                f"--config={programs.stages()}",
                "--manage-all-nodes=false",
                f"--manage-nodes-with-annotation-selector={SIMULATED}=fake",
                "--node-lease-duration-seconds=40",
            ],
        )

    def _has_service_account(self) -> bool:
        return self.api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None
