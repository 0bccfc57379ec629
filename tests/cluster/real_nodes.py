"""Real nodes: kubelet and containerd in a network namespace each, whose pods really run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cluster import debian, networks, node_cgroups, programs, sandbox_image
from tests.cluster.control_plane import ControlPlane
from tests.cluster.networks import NodeNetwork
from tests.cluster.simulated import MACHINE, MACHINE_TYPE, TIER, is_ready
from tests.cluster.slots import Slot

TIERS = ("device", "edge", "cloud")
TYPES = {"cloud": "small"}
"""Machine types of the nodes of tiers that have some."""
_PLUGINS = Path("/usr/lib/cni")
_START_S = 120.0


def missing() -> str:
    """Say what this machine lacks for real nodes; empty: nothing."""
    if os.getuid() != 0:
        return "real nodes need root."
    lacking = debian.lacking(*debian.NODES)
    return f"real nodes need more: {lacking}" if lacking else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealNode:
    """A node.

    Attributes:
        name: Of its Node object.
        tier: That it stands for.
        network: Its own.
        folder: For everything of it.
    """

    name: str
    tier: str
    network: NodeNetwork
    folder: Path

    @property
    def socket(self) -> Path:
        """Where its containerd listens."""
        return self.folder / "containerd.sock"

    def load_image(self, archive: Path) -> None:
        """Put the images of an archive, as `docker save` writes it, into its store."""
        self.ctr("images", "import", "--no-unpack", str(archive))

    def ctr(self, *arguments: str) -> str:
        """Return what containerd's own client says."""
        command = ["ctr", "-a", str(self.socket), "-n", "k8s.io", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout


def start(slot: Slot, control: ControlPlane, tiers: Sequence[str] = TIERS) -> list[RealNode]:
    """Start a node per tier; return when they are ready. The bridge exists."""
    nodes = [_node(slot, tier, number) for number, tier in enumerate(tiers)]
    networks.make_nodes(slot, [node.network for node in nodes], control.port)
    archive = slot.folder / "pause.tar"
    sandbox_image.write(programs.find(programs.PAUSE), archive)
    for node in nodes:
        _start_containerd(node, control)
    for node in nodes:
        processes = control.processes
        name = f"containerd-{node.tier}"
        processes.wait_until(lambda node=node: _answers(node), name, name, timeout_s=_START_S)  # type: ignore[misc]  # a default binds it
        node.load_image(archive)
    for node in nodes:
        # A kubelet that starts empties /var/lib/kubelet/device-plugins, which no setting moves,
        # and then binds a socket there: of two at once, one finds the other's and gives up.
        with programs.alone(slot.folder.parent / "kubelet.lock"):
            _start_kubelet(node, control)
            control.processes.wait_until(
                lambda node=node: is_ready(control.api, node.name),  # type: ignore[misc]  # a default binds it
                f"kubelet-{node.tier}",
                f"a ready node {node.name}",
                timeout_s=_START_S,
            )
    return nodes


def remove(slot: Slot) -> None:
    """Remove what is left of the nodes of a place; their own programs are gone."""
    if os.getuid() != 0:
        return
    node_cgroups.remove(slot.name)
    unmount_below(slot.folder)
    networks.remove(slot)
    for left in Path("/var/lib/cni/results").glob("*"):
        if f"{slot.folder}/" in left.read_text():  # where the sandbox's namespace was
            left.unlink(missing_ok=True)


def unmount_below(folder: Path) -> None:
    """Unmount everything below a folder, so that it can be removed."""
    for point in _mounts(folder):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def _node(slot: Slot, tier: str, number: int) -> RealNode:
    folder = slot.folder / f"node-{tier}"
    folder.mkdir()
    network = networks.node_network(slot, tier, number)
    return RealNode(name=f"{tier}-real", tier=tier, network=network, folder=folder)


def _answers(node: RealNode) -> bool:
    try:
        node.ctr("version")
    except RuntimeError:
        return False
    return True


def _start_containerd(node: RealNode, control: ControlPlane) -> None:
    plugins = node.folder / "cni"
    plugins.mkdir()
    (plugins / "10-pods.conflist").write_text(json.dumps(_pod_network(node)))
    settings = node.folder / "containerd.toml"
    settings.write_text(_containerd_settings(node, plugins))
    command = [*node.network.enter, "containerd", "--config", str(settings)]
    control.processes.start(f"containerd-{node.tier}", command)


def _pod_network(node: RealNode) -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "isDefaultGateway": True,  # else pods cannot answer
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(node.folder / "addresses"),
            "ranges": [[{"subnet": node.network.pods}]],
        },
    }
    return {"cniVersion": "0.4.0", "name": node.network.name, "plugins": [bridge]}


def _containerd_settings(node: RealNode, plugins: Path) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{node.folder}/root"
state = "{node.folder}/state"
[grpc]
  address = "{node.socket}"
[{cri}]
  sandbox_image = "{sandbox_image.NAME}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
[{cri}.cni]
  bin_dir = "{_PLUGINS}"
  conf_dir = "{plugins}"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def _start_kubelet(node: RealNode, control: ControlPlane) -> None:
    node_cgroups.make(node.network.name)
    settings = node.folder / "kubelet.yaml"
    settings.write_text(yaml.safe_dump(_kubelet_settings(node)))
    labels = f"{TIER}={node.tier},{MACHINE}=0"
    if node.tier in TYPES:
        labels += f",{MACHINE_TYPE}={TYPES[node.tier]}"
    command = [
        *node.network.enter,
        str(programs.find(programs.KUBELET)),
        f"--config={settings}",
        f"--kubeconfig={control.kubeconfig}",
        f"--root-dir={node.folder / 'kubelet'}",
        f"--cert-dir={node.folder / 'certificates'}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.network.address}",
        f"--node-labels={labels}",
    ]
    control.processes.start(f"kubelet-{node.tier}", command)


def _kubelet_settings(node: RealNode) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.network.address,
        "healthzPort": 0,
        # Whoever reaches it may use it: only this machine does.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.network.name}",
        "failCgroupV1": False,
        "localStorageCapacityIsolation": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "evictionHard": {"memory.available": "100Mi"},
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "podLogsDir": str(node.folder / "pod-logs"),
        "resolvConf": "",
        "volumePluginDir": str(node.folder / "volume-plugins"),
    }


def _mounts(folder: Path) -> list[str]:
    """Return what is mounted below a folder, the latest first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1] for line in lines]
    return [point for point in reversed(points) if point.startswith(f"{folder}/")]
