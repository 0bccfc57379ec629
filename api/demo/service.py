"""A service of the demo's own: a real process on a free loopback port, gone afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from circinus.api.client import Client
from circinus.deploy.methods import Method
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.io.infrastructure_file import infrastructure_to_dict
from circinus.pipelines.model.infrastructure import Infrastructure

_STARTS_WITHIN_S = 90.0
_STOPS_WITHIN_S = 15.0
_POLL_S = 0.1
_LAST_LINES = 15


class ServiceFailed(CircinusError):
    """The service did not start, or stopped on its own."""


# It starts once its stdin has text and is closed, and not if the parent is gone.
_WAITS_TO_START = "import sys, circinus.api.serving.service as s; sys.stdin.read() and s.main()"


@contextmanager
def running_service(
    infrastructure: Callable[[], Infrastructure],
    clock: Clock,
    method: Method | None = None,
    *,
    pipeline: str = "",
) -> Iterator[Client]:
    """Return a client of a service that runs until the block is left; the clock times its start.

    It imports its modules while the infrastructure is computed. Without a method it plans,
    schedules and dispatches by the environment. A pipeline (`module:attribute`) is registered
    beside the built-in ones. Raises ServiceFailed if it does not answer in
    time.
    """
    with TemporaryDirectory(prefix="circinus-demo-") as name:
        log, tiers = Path(name, "service.log"), Path(name, "infrastructure.yaml")
        held = socket.create_server(("127.0.0.1", 0))  # its port, until the service listens there
        port: int = held.getsockname()[1]
        settings = {
            "CIRCINUS_DATABASE_URL": f"sqlite:///{name}/demo.sqlite3",
            "CIRCINUS_HOST": "127.0.0.1",
            "CIRCINUS_PORT": str(port),
            "CIRCINUS_INFRASTRUCTURE": str(tiers),
            "CIRCINUS_EXTRA_PIPELINES": pipeline,
            "CIRCINUS_DRIFT_S": "1",
        }
        if method is not None:
            settings["CIRCINUS_METHOD"] = method.name
        # Without a token, as on loopback by default: the page opens by its address alone.
        environment = {n: value for n, value in os.environ.items() if n != "CIRCINUS_TOKEN"}
        with log.open("wb") as output:
            # In a session of its own: Ctrl-C reaches the demo, which stops the service in order.
            process = subprocess.Popen(
                [sys.executable, "-c", _WAITS_TO_START],
                env=environment | settings,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            document = infrastructure_to_dict(infrastructure())
            tiers.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
            held.close()
            with suppress(BrokenPipeError):  # it ended, which is checked below
                if process.stdin is not None:
                    process.stdin.write(b"start")
                    process.stdin.close()
            with Client(f"http://127.0.0.1:{port}") as client:
                _wait_until_up(client, process, log, clock)
                yield client
        finally:
            held.close()
            process.terminate()  # nothing, if it ended
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_STOPS_WITHIN_S)
            with suppress(ProcessLookupError):  # whatever it left behind
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_up(
    client: Client, process: subprocess.Popen[bytes], log: Path, clock: Clock
) -> None:
    deadline = clock.now() + _STARTS_WITHIN_S
    while True:
        try:
            client.ready()
        except CircinusError as error:
            if process.poll() is not None or clock.now() > deadline:
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                tail = "\n".join(lines[-_LAST_LINES:]) or "(it wrote nothing)"
                raise ServiceFailed(f"the service did not start:\n{tail}") from error
            clock.sleep(_POLL_S)
        else:
            return
