"""The network of real nodes: a bridge, and a network namespace and a pod subnet for each node.

Everything is named after the cluster's place and stays inside this machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.slots import Slot

SERVICE_ADDRESS = "10.96.0.1"
"""Where programs in pods look for the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNetwork:
    """The network of one node.

    Attributes:
        name: Of its namespace, at most 15 characters.
        address: Of the node.
        pods: Subnet of its pods.
    """

    name: str
    address: str
    pods: str

    @property
    def enter(self) -> list[str]:
        """The words before a command that is to run in it.

        Not `ip netns exec`: that mounts /sys anew, and the cgroups are gone.
        """
        return ["nsenter", f"--net=/var/run/netns/{self.name}"]


def host_address(slot: Slot) -> str:
    """Return the address of this machine on the bridge."""
    return f"{slot.network}.0.1"


def node_network(slot: Slot, tier: str, number: int) -> NodeNetwork:
    """Return the network of a node, made or not."""
    return NodeNetwork(
        name=f"{slot.name}-{tier}"[:15],
        address=f"{slot.network}.0.{10 + number}",
        pods=f"{slot.network}.{1 + number}.0/24",
    )


def make_bridge(slot: Slot) -> None:
    """Make the bridge, with this machine's address on it."""
    _run("ip", "link", "add", slot.name, "type", "bridge")
    _run("ip", "address", "add", f"{host_address(slot)}/24", "dev", slot.name)
    _run("ip", "link", "set", slot.name, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def make_nodes(slot: Slot, nodes: Sequence[NodeNetwork], port: int) -> None:
    """Make the networks of nodes; from all of them the API server is at its service address."""
    for number, node in enumerate(nodes):
        outer, inner = f"{slot.name}v{number}", "eth0"
        _run("ip", "netns", "add", node.name)
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", node.name)
        _run("ip", "link", "set", outer, "master", slot.name, "up")
        _run(*node.enter, "ip", "link", "set", "lo", "up")
        _run(*node.enter, "ip", "address", "add", f"{node.address}/24", "dev", inner)
        _run(*node.enter, "ip", "link", "set", inner, "up")
        _run(*node.enter, "ip", "route", "add", "default", "via", host_address(slot))
        _run(*node.enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        _run("ip", "route", "add", node.pods, "via", node.address)
        for other in nodes:
            if other is not node:
                _run(*node.enter, "ip", "route", "add", other.pods, "via", other.address)
    for rule in _rules(slot, port):
        _run("iptables", "-t", rule[0], "-A", *rule[1:])


def remove(slot: Slot) -> None:
    """Remove everything of a place that is there; the namespaces take their interfaces along."""
    if not Path("/var/run/netns").exists() and not Path(f"/sys/class/net/{slot.name}").exists():
        return
    for table in ("nat", "filter"):
        _remove_rules(slot, table)
    for entry in Path("/var/run/netns").glob(f"{slot.name}-*"):
        _run("ip", "netns", "delete", entry.name)
    if Path(f"/sys/class/net/{slot.name}").exists():
        _run("ip", "link", "delete", slot.name)


def _rules(slot: Slot, port: int) -> list[list[str]]:
    mark = ["-m", "comment", "--comment", slot.name]
    to = f"{host_address(slot)}:{port}"
    service = ["-d", SERVICE_ADDRESS, "-p", "tcp", "--dport", "443"]
    return [
        ["nat", "PREROUTING", "-i", slot.name, *service, *mark, "-j", "DNAT", "--to", to],
        ["filter", "FORWARD", "-i", slot.name, "-o", slot.name, *mark, "-j", "ACCEPT"],
    ]


def _remove_rules(slot: Slot, table: str) -> None:
    listed = _run("iptables", "-t", table, "-S").splitlines()
    for line in listed:
        words = line.replace('"', "").split()
        if words[0] == "-A" and ["--comment", slot.name] in [
            words[i : i + 2] for i in range(len(words))
        ]:
            _run("iptables", "-t", table, "-D", *words[1:])


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
