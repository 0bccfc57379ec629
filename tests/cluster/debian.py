"""What a machine must have installed for a throw-away cluster, and the line that installs it."""

from __future__ import annotations

import shutil

PACKAGES = {
    "openssl": "openssl",
    "setpriv": "util-linux",
    "nsenter": "util-linux",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "ip": "iproute2",
    "iptables": "iptables",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
}
"""Program -> Debian's package with it."""
CONTROL_PLANE = ("openssl", "setpriv")
NODES = ("nsenter", "containerd", "ctr", "runc", "/usr/lib/cni/bridge", "ip", "iptables")
IMAGES = ("buildah", "debootstrap")
_INSTALL = "apt-get install -y"
LINE = f"{_INSTALL} {' '.join(sorted(set(PACKAGES.values()) - {'util-linux'}))}"
"""Installs everything that no Debian has anyway."""


def lacking(*programs: str, path: str | None = None) -> str:
    """Return the line that installs what is missing of these programs; empty: nothing is.

    Args:
        programs: Of `PACKAGES`.
        path: Folders to look in, as in PATH; None: those of PATH.
    """
    missing = {PACKAGES[name] for name in programs if shutil.which(name, path=path) is None}
    return f"{_INSTALL} {' '.join(sorted(missing))}" if missing else ""
