"""The programs of a throw-away cluster: built once from pinned Go modules, kept by their hash.

`python -m tests.cluster.programs` builds what is missing and prints the folder of each.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
STAGES = "stages.yaml"
_VERSION_OF = "k8s.io/component-base/version"
_BUILD_S = 900.0
_KWOK_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")


class NotBuilt(RuntimeError):
    """A program is missing, and why it cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that is built.

    Attributes:
        name: Of its file.
        module: Folder of its module under `tools`.
        package: Its Go package.
    """

    name: str
    module: str
    package: str

    @property
    def folder(self) -> Path:
        """Where it is kept: one folder for each content of its module."""
        files = sorted((TOOLS / self.module).iterdir())
        content = b"".join(file.read_bytes() for file in files)
        return cache() / f"{self.module}-{hashlib.sha256(content).hexdigest()[:16]}"

    @property
    def path(self) -> Path:
        """Its file, there or not."""
        return self.folder / self.name


def _of_kubernetes(name: str) -> Program:
    return Program(name=name, module="kubernetes", package=f"k8s.io/kubernetes/cmd/{name}")


ETCD = Program(name="etcd", module="kubernetes", package="go.etcd.io/etcd/server/v3")
API_SERVER = _of_kubernetes("kube-apiserver")
CONTROLLERS = _of_kubernetes("kube-controller-manager")
SCHEDULER = _of_kubernetes("kube-scheduler")
KUBELET = _of_kubernetes("kubelet")
KWOK = Program(name="kwok", module="kwok", package="sigs.k8s.io/kwok/cmd/kwok")
HELM = Program(name="helm", module="helm", package="helm.sh/helm/v3/cmd/helm")
PAUSE = Program(name="pause", module="pause", package=".")

CONTROL_PLANE = (ETCD, API_SERVER, CONTROLLERS, SCHEDULER, KWOK)
NODE = (KUBELET, PAUSE)
ALL = (*CONTROL_PLANE, *NODE, HELM)


def cache() -> Path:
    """Give the folder with what was built."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "circinus" / "cluster"


def find(program: Program) -> Path:
    """Give a program that exists: from `KUBEBUILDER_ASSETS` if it is there, else as built.

    Raises:
        NotBuilt: If it is nowhere.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (Path(assets) / program.name).exists():
        return Path(assets) / program.name
    if not program.path.exists():
        raise NotBuilt(f"{program.name} is not built: `make cluster-programs` builds it.")
    return program.path


def stages() -> Path:
    """Give the file that tells kwok how simulated nodes and pods behave."""
    return KWOK.folder / STAGES


def build(program: Program) -> Path:
    """Give a program, built if it was not; two builds at once are one after the other.

    Raises:
        NotBuilt: If there is no Go, or it fails.
    """
    program.folder.mkdir(parents=True, exist_ok=True)
    with alone(program.folder / f".{program.name}.lock"):
        if not program.path.exists():
            scratch = program.folder / f".{program.name}.new"
            _go(program, "build", "-o", str(scratch), "-ldflags", _flags(program), program.package)
            scratch.replace(program.path)
        if program is KWOK and not stages().exists():
            _write_stages()
    return program.path


def _go(program: Program, *arguments: str) -> str:
    if shutil.which("go") is None:
        raise NotBuilt(f"{program.name} is not built, and there is no Go to build it with.")
    try:
        done = subprocess.run(
            ["go", *arguments],
            cwd=TOOLS / program.module,
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=_BUILD_S,
        )
    except subprocess.TimeoutExpired as error:  # such as a proxy of modules that does not answer
        raise NotBuilt(f"building {program.name} took more than {_BUILD_S:g} s.") from error
    if done.returncode:
        raise NotBuilt(f"building {program.name} ended with code {done.returncode}.")
    return done.stdout


def _flags(program: Program) -> str:
    found = re.search(r"k8s\.io/kubernetes (v\d+\.\d+\.\d+)", _requirements(program))
    if found is None:
        return "-s -w"
    # Without a version clients fail to parse `v0.0.0-master+$Format`.
    major, minor, _ = found[1][1:].split(".")
    values = {"gitVersion": found[1], "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(f"-X {_VERSION_OF}.{name}={v}" for name, v in values.items())


def _requirements(program: Program) -> str:
    return (TOOLS / program.module / "go.mod").read_text()


def _write_stages() -> None:
    """Copy kwok's default stages out of its module: they are not built in."""
    root = Path(_go(KWOK, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok").strip())
    folders = [root / "kustomize" / "stage" / name for name in _KWOK_STAGES]
    files = [f for folder in folders for f in sorted(folder.glob("*.yaml"))]
    texts = [f.read_text() for f in files if f.name != "kustomization.yaml"]
    scratch = KWOK.folder / f".{STAGES}.new"
    scratch.write_text("\n---\n".join(texts))
    scratch.replace(stages())


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock that one process of this machine has at a time."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        for found in ALL:
            print(build(found))
    except NotBuilt as error:
        sys.exit(f"error: {error}")
