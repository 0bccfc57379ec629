"""The service process: `python -m circinus.api.serving.service`, or `circinus serve`.

Clients talk to the serving process; the service listens at a socket beside it. The
database is first: without it nothing is started, and a running serving process is left to the
next service.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from pydantic_settings import SettingsError

from circinus.api.bootstrap.parts import opened_parts, tighten
from circinus.api.event_log import start_event_log
from circinus.api.http.app import create_app
from circinus.api.http.routes.service import end_streams
from circinus.api.schemas.violations import violations_of
from circinus.api.serving.link import opened_deployer
from circinus.api.serving.process import service_socket
from circinus.api.settings import Settings, allow_descriptors, pin_numeric_threads
from circinus.api.store.failures import DatabaseFailed
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.workers.process import PRIVATE
from circinus.pipelines.errors import CircinusError, InvalidInput

_GRACE_S = 5  # seconds, that answers on their way have when it ends
_IDLE_S = 86_400  # the serving process closes its connections: none ends just as a request arrives
_FAILED, _BAD_INPUT, _DATABASE = 1, 2, 9


def serve(settings: Settings) -> None:
    """Run the service until it is interrupted.

    InvalidInput if it cannot start with its settings, DatabaseFailed if not with the database.
    """
    os.umask(PRIVATE)
    tighten(settings)
    pin_numeric_threads()
    allow_descriptors()
    with contextlib.suppress(KeyboardInterrupt), opened_parts(settings) as parts:
        start_event_log(settings.log_level)
        asyncio.run(_serve(parts))


async def _serve(parts: ServiceParts) -> None:
    settings = parts.settings
    folder = settings.runtime / str(settings.port or f"process-{os.getpid()}")
    async with opened_deployer(settings, folder) as deployer:
        app = create_app(parts, deployer)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                uds=str(service_socket(folder)),
                ws="none",
                lifespan="off",  # its own would hide why it cannot start
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,  # the serving process writes one
                timeout_keep_alive=_IDLE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        _stop_in_order(server, app)
        try:
            async with app.router.lifespan_context(app):
                await server.serve()
        except DatabaseFailed:
            raise  # the next service takes the deployments over
        except Exception:
            await deployer.close()
            raise


def _stop_in_order(server: uvicorn.Server, app: FastAPI) -> None:
    """Let interrupts end the server, which raises them again when it has ended, and no more.

    It waits for answers on their way; streams of events would never end by themselves.
    """

    def stop() -> None:
        server.should_exit = True
        end_streams(app)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def main() -> None:
    """Run the service by the environment; print why it cannot start, with an exit code."""
    try:
        serve(Settings())
    except (ValidationError, InvalidInput) as error:
        violations = (
            error.violations
            if isinstance(error, InvalidInput)
            else violations_of(error, model=Settings)
        )
        _leave(_BAD_INPUT, *map(str, violations))
    except SettingsError as error:
        _leave(_BAD_INPUT, str(error))
    except DatabaseFailed as error:
        _leave(_DATABASE, error.whole)
    except CircinusError as error:
        _leave(_FAILED, str(error))
    except Exception as error:  # noqa: BLE001 - the edge of the process
        _leave(_FAILED, f"internal error: {type(error).__name__}: {error}")


def _leave(code: int, *lines: str) -> None:
    sys.stderr.writelines(f"error: {line}\n" for line in lines)
    raise SystemExit(code) from None


if __name__ == "__main__":
    main()
