"""`python -m tests.cluster start|stop|serve`: the throw-away cluster for people.

`start` starts `serve` in the background and prints the kubeconfig; `stop` ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster import debian, programs, real_nodes
from tests.cluster.cluster import running

_STATE = Path(tempfile.gettempdir()) / f"circinus-cluster-{os.getuid()}"
_KUBECONFIG = _STATE / "kubeconfig"
_PID = _STATE / "pid"
_LOG = _STATE / "serve.log"
_START_S = 180.0


def main(arguments: list[str]) -> int:
    """Do what the first argument says; give the exit code."""
    commands = {"start": start, "stop": stop, "serve": serve}
    if len(arguments) != 1 or arguments[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    _STATE.mkdir(mode=0o700, exist_ok=True)
    return commands[arguments[0]]()


def start() -> int:
    """Start a cluster unless one runs; print its kubeconfig."""
    if _serving() is None:
        _KUBECONFIG.unlink(missing_ok=True)
        lacking = debian.lacking(*debian.CONTROL_PLANE)
        try:
            if not lacking:
                programs.build_all()
        except programs.NotBuilt as error:
            lacking = str(error)
        if lacking:
            print(f"error: {lacking}", file=sys.stderr)
            return 1
        command = [sys.executable, "-m", "tests.cluster", "serve"]
        with _LOG.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + _START_S
        while not _KUBECONFIG.exists():
            if process.poll() is not None or time.monotonic() > end:
                print(f"error: it did not start:\n{_LOG.read_text()}", file=sys.stderr)
                return 1
            time.sleep(0.1)
    print(f"export KUBECONFIG={_KUBECONFIG}")
    print("stop it with: make cluster-stop", file=sys.stderr)
    return 0


def stop() -> int:
    """End the cluster and wait until nothing of it is left; fine when none runs."""
    pid = _serving()
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        while _serving() is not None:
            time.sleep(0.1)
    return 0


def serve() -> int:
    """Be the cluster until told to stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    _PID.write_text(str(os.getpid()))
    try:
        lacking = real_nodes.missing()
        print(f"only simulated nodes: {lacking}" if lacking else "with real nodes", flush=True)
        with running(real=not lacking) as cluster:
            scratch = _KUBECONFIG.with_suffix(".new")
            scratch.touch(mode=0o600)
            scratch.write_text(cluster.kubeconfig.read_text())
            scratch.replace(_KUBECONFIG)
            while True:
                signal.pause()
    finally:
        _KUBECONFIG.unlink(missing_ok=True)
        _PID.unlink(missing_ok=True)


def _end(_number: int, _frame: object) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the end is not to be interrupted
    raise SystemExit(0)


def _serving() -> int | None:
    try:
        pid = int(_PID.read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if b"tests.cluster" in words and b"serve" in words else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
