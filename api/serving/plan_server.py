"""Answers requests to a plan without a service: `python -m circinus.api.serving.plan_server FILE`.

FILE is a plan file (`api.schemas.plans`); another program starts and restarts its workers.
Requests and answers are those of a service: at the path of the plan's query. The other settings
of a deployment are read from the environment as a service does (`api.settings`). It ends by
SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import Response
from starlette.types import Receive, Scope

from circinus.api.bootstrap.planning import installed_version
from circinus.api.http.bodies import JSON, REQUESTS
from circinus.api.http.metrics import MEDIA_TYPE, exposition
from circinus.api.schemas.base import HealthView
from circinus.api.schemas.plans import PlanFile, to_plan
from circinus.api.schemas.violations import checked
from circinus.api.serving.edge import (
    FunctionEndpoint,
    listening_at,
    run_serving,
    server_before,
)
from circinus.api.settings import Settings
from circinus.api.store.records import NotFound
from circinus.deploy.runtime.deployment import DeploymentPhase
from circinus.deploy.runtime.following import AddressedLauncher
from circinus.deploy.runtime.instances import DesiredDeployment, instances_of
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable
from circinus.pipelines.io.files import read_file
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict
from circinus.pipelines.io.strict import read_json
from circinus.pipelines.registry import load_pipeline
from circinus.scheduler.dispatch.policies import dispatch_policy

_LARGEST_FILE = 2**22  # bytes
_STARTS_WITHIN_S = 600.0  # a worker on a small share of a core
_AGAIN_S = 2.0  # after which a plan whose workers did not start is tried again


@dataclass(frozen=True, slots=True)
class _Others:
    """Answers what is no request that the plan answers."""

    orchestrator: Orchestrator
    query_id: str

    async def answer(self, scope: Scope, _receive: Receive) -> Response:
        """Return the answer; raise an error if there is none."""
        path = scope["path"]
        request = REQUESTS.fullmatch(path)
        if path == "/metrics":
            return Response(exposition(self.orchestrator.reports()), media_type=MEDIA_TYPE)
        if path != "/readyz" and (request is None or request[1] != self.query_id):
            raise NotFound("path", path)
        if self.orchestrator.plan_serving(self.query_id) is None:
            raise Unavailable("the plan's workers are starting", retry_after_s=1.0)
        if request is not None:
            rule = "must be left out: without a service there are none"
            raise InvalidInput.of("example", rule, "an example")
        view = HealthView(version=installed_version("circinus"))
        return Response(view.model_dump_json(), media_type=JSON)


async def serve(file: PlanFile, settings: Settings) -> None:
    """Answer requests to a plan until SIGTERM.

    InvalidInput if the file does not fit its pipeline, or the address is not free.
    """
    pipeline = load_pipeline(file.pipeline, allow_import=":" in file.pipeline)
    infrastructure = infrastructure_from_dict(file.infrastructure)
    desired = DesiredDeployment(
        pipeline_reference=file.pipeline,
        plan=to_plan(file.plan, pipeline.graph),
        deadline_s=file.deadline_s,
        machine_types=tuple(file.machine_types),
    )
    keys = list(instances_of(file.query_id, desired, pipeline.graph, infrastructure))
    if len(keys) != len(file.addresses):
        rule = f"must be those of {len(keys)} instances"
        raise InvalidInput.of("addresses", rule, file.addresses)
    listening = listening_at(settings.host, settings.port)
    launcher = AddressedLauncher(settings.message_limit_bytes, patience_s=_STARTS_WITHIN_S)
    launcher.set_addresses(dict(zip(map(str, keys), file.addresses, strict=True)))
    orchestrator = Orchestrator(
        infrastructure,
        launcher,
        lambda _: pipeline,
        dispatch_policy(settings.chosen_method.dispatch),
        SystemClock(),
    )
    others = _Others(orchestrator, file.query_id)
    server = server_before(FunctionEndpoint(others.answer), orchestrator, settings)
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: setattr(server, "should_exit", True)
    )
    starting = asyncio.create_task(_until_served(orchestrator, file.query_id, desired))
    try:
        await server.serve(sockets=[listening])
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await orchestrator.close()


async def _until_served(
    orchestrator: Orchestrator, query_id: str, desired: DesiredDeployment
) -> None:
    while True:
        await orchestrator.apply({query_id: desired})
        if orchestrator.status(query_id).phase is not DeploymentPhase.FAILED:
            return
        await asyncio.sleep(_AGAIN_S)


def main() -> int:
    """Serve the plan of a file; return the exit code."""
    try:
        settings = Settings()
        content = read_file(Path(sys.argv[1]), "plan file", _LARGEST_FILE)
        file = checked(PlanFile, read_json(content, "plan file"))
        run_serving(serve(file, settings), settings)
    except CircinusError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
