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
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from tests.cluster.progress import Tell, to_stderr, told

TOOLS = Path(__file__).parent / "tools"
STAGES = "stages.yaml"
_VERSION_OF = "k8s.io/component-base/version"
_BUILD_S = 1800.0
_OLDEST_GO = (1, 21)
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
    """Return the folder with what was built."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "circinus" / "cluster"


def find(program: Program) -> Path:
    """Return a program that exists: from `KUBEBUILDER_ASSETS` if it is there, else as built.

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
    """Return the file that tells kwok how simulated nodes and pods behave."""
    return KWOK.folder / STAGES


def missing() -> str:
    """Say what is needed to build the programs that are not built; empty: nothing is."""
    return _lacking_go() if any(not program.path.exists() for program in ALL) else ""


def build_all(tell: Tell = to_stderr) -> list[Path]:
    """Return all programs, built where they were not; raises as `build`."""
    return [build(program, tell) for program in ALL]


def build(program: Program, tell: Tell = to_stderr) -> Path:
    """Return a program, built if it was not; two builds at once are one after the other.

    Hears of progress at least every ten seconds while something is built or waited for.

    Raises:
        NotBuilt: If there is no Go, or it fails.
    """
    program.folder.mkdir(parents=True, exist_ok=True)
    waiting = told(lambda: f"{program.name}: waits for somebody who builds it", tell)
    with ExitStack() as stack:
        with waiting:
            stack.enter_context(alone(program.folder / f".{program.name}.lock"))
        if not program.path.exists():
            scratch = program.folder / f".{program.name}.new"
            flags = ("-v", "-o", str(scratch), "-ldflags", _flags(program))
            start = time.monotonic()
            _require_go(program)
            tell(f"{program.name}: is built")
            _go(program, tell, "build", *flags, program.package)
            scratch.replace(program.path)
            size_mb = program.path.stat().st_size / 1e6
            tell(f"{program.name}: built in {time.monotonic() - start:.0f} s, {size_mb:.0f} MB")
        if program is KWOK and not stages().exists():
            _write_stages(tell)
    return program.path


def _go(program: Program, tell: Tell, *arguments: str) -> str:
    """Return what Go prints; what it does is told meanwhile."""
    _require_go(program)
    said: list[str] = []  # of modules that it fetches, packages that it compiles, errors
    with subprocess.Popen(
        ["go", *arguments],
        cwd=TOOLS / program.module,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None  # a line at most, so it need not be read meanwhile
        reader = Thread(target=_read, args=(process.stderr, said), daemon=True)
        reader.start()
        try:
            with told(lambda: _so_far(program, said), tell):
                code = process.wait(_BUILD_S)
        except subprocess.TimeoutExpired as error:  # such as modules that do not come
            raise NotBuilt(f"building {program.name} took more than {_BUILD_S:g} s.") from error
        finally:
            process.kill()
        reader.join()
        if code:
            words = "\n".join(line for line in said if " " in line and not _fetches(line))
            raise NotBuilt(f"building {program.name} ended with code {code}:\n{words[-2000:]}")
        return process.stdout.read()


def _require_go(program: Program) -> None:
    if lacking := _lacking_go():
        raise NotBuilt(f"{program.name} is not built: {lacking}")


def _read(lines: Iterable[str] | None, said: list[str]) -> None:
    said.extend(line.strip() for line in lines or ())  # one by one, as they come


def _so_far(program: Program, said: Sequence[str]) -> str:
    packages = sum(" " not in line for line in said)
    return f"{program.name}: {packages} packages compiled, {said[-1] if said else 'begins'}"


def _fetches(line: str) -> bool:
    return line.startswith("go: downloading")


def _lacking_go() -> str:
    """Say which Go is needed; empty: it is there."""
    needed = (
        f"install Go {'.'.join(map(str, _OLDEST_GO))} or newer, which fetches the version that it "
        "needs (https://go.dev/doc/install; golang-go of Debian 12 is too old)"
    )
    if shutil.which("go") is None:
        return needed
    # Outside of our modules, and without fetching another one.
    environment, command = {**os.environ, "GOTOOLCHAIN": "local"}, ["go", "env", "GOVERSION"]
    done = subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, check=False
    )
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    fits = found is not None and (int(found[1]), int(found[2])) >= _OLDEST_GO
    return "" if fits else f"{needed}; here is {done.stdout.strip() or 'one that says nothing'}"


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


def _write_stages(tell: Tell) -> None:
    """Copy kwok's default stages out of its module: they are not built in."""
    root = Path(_go(KWOK, tell, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok").strip())
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


def main() -> int:
    """Build what is missing; give the exit code."""
    try:
        print(*build_all(), sep="\n")
    except NotBuilt as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; the next build goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
