"""The service process: `python -m circinus.api.keeper.service`, or `circinus serve`.

Clients talk to the keeper; the service listens at a socket beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

import uvicorn
from pydantic import ValidationError

from circinus.api.bootstrap.private import tighten
from circinus.api.bootstrap.serving import require_fit
from circinus.api.event_log import start_event_log
from circinus.api.http.app import create_app
from circinus.api.keeper.link import kept
from circinus.api.keeper.process import service_socket
from circinus.api.schemas.faults import faults_of
from circinus.api.settings import Settings, pin_numeric_threads
from circinus.deploy.workers.settings import PRIVATE
from circinus.pipelines.errors import InvalidInput

_GRACE_S = 5  # seconds, that answers on their way have when it ends
_NOT_STARTED = 3


def serve(settings: Settings) -> None:
    """Run the service until it is interrupted; InvalidInput if it cannot start as it is told."""
    os.umask(PRIVATE)
    tighten(settings)
    start_event_log(settings.log_level)
    pin_numeric_threads()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    folder = settings.runtime / str(settings.port or f"process-{os.getpid()}")
    async with kept(settings, folder) as deployer:
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(settings, deployer),
                uds=str(service_socket(folder)),
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,  # the keeper writes one
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        try:
            await server.serve()
        finally:
            if not server.started:
                await deployer.close()
                raise SystemExit(_NOT_STARTED)


def main() -> None:
    """Run the service as the environment says; what it cannot start with is a line, and exit 2."""
    try:
        settings = Settings()
        require_fit(settings)
        serve(settings)
    except (ValidationError, InvalidInput) as error:
        faults = (
            error.faults if isinstance(error, InvalidInput) else faults_of(error, model=Settings)
        )
        sys.stderr.writelines(f"error: {fault}\n" for fault in faults)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
