"""The worker process: `python -m deploy.workers.server --pipeline NAME --operators a,b ...`.

When it is ready it writes one line of JSON with its address to standard output, and
nothing after: what operators print goes to standard error with the log. SIGTERM lets
the call in hand finish.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from deploy.memory import limit_memory
from deploy.workers.execution import Execution
from deploy.workers.options import WorkerOptions, parse
from deploy.workers.parent import end_with
from deploy.workers.precision import sharpen_timers
from deploy.workers.proto import worker_pb2, worker_pb2_grpc
from deploy.workers.service import OperatorService
from deploy.workers.transport import MESSAGE_OPTIONS, server_credentials, split_address
from pipelines.clock import SystemClock
from pipelines.configuration import ConfigurationSpace
from pipelines.errors import InvalidInput
from pipelines.registry import load_pipeline

SERVICE = worker_pb2.DESCRIPTOR.services_by_name["Worker"].full_name
DRAIN_S = 10.0
_WAITING_CALLS = 7  # beyond those that run: they wait, or ask for health

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Serve until told to stop; give the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    announce = os.dup(1)
    os.dup2(2, 1)
    try:
        options = parse(arguments)
        if options.parent is not None:
            end_with(options.parent)
        sharpen_timers()
        servers, health_service, address = _start(options)
    except InvalidInput as error:
        _log.error("refused reason=%s", error)
        return 2
    # Not an Event: its lock may be ours already when the handler interrupts us.
    stops: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stops.put(received))
    os.write(announce, json.dumps({"address": address, "pid": os.getpid()}).encode() + b"\n")
    os.close(announce)
    stops.get()
    health_service.enter_graceful_shutdown()
    servers[0].stop(DRAIN_S).wait()
    for server in servers[1:]:
        server.stop(None)
    return 0


def _start(options: WorkerOptions) -> tuple[list[grpc.Server], health.HealthServicer, str]:
    execution = _execution(options)
    if options.memory_bytes is not None:
        limit_memory(options.memory_bytes)
    server = grpc.server(
        ThreadPoolExecutor(max_workers=execution.concurrency + _WAITING_CALLS),
        options=[*MESSAGE_OPTIONS, ("grpc.so_reuseport", 0)],
    )
    worker_pb2_grpc.add_WorkerServicer_to_server(OperatorService(execution), server)
    health_service = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    address = _listen(server, options)
    servers = [server]
    if options.health is not None:
        servers.append(_health_server(health_service, options.health))
    server.start()
    for name in ("", SERVICE):
        health_service.set(name, health_pb2.HealthCheckResponse.SERVING)
    _log.info("serving address=%s operators=%s", address, ",".join(options.operators))
    return servers, health_service, address


def _health_server(service: health.HealthServicer, address: str) -> grpc.Server:
    """Let anybody ask for health, and for nothing else."""
    server = grpc.server(ThreadPoolExecutor(max_workers=1), options=[("grpc.so_reuseport", 0)])
    health_pb2_grpc.add_HealthServicer_to_server(service, server)
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise InvalidInput.of("health", "must be an address that is free", address) from error
    server.start()
    return server


def _execution(options: WorkerOptions) -> Execution:
    pipeline = load_pipeline(options.pipeline, allow_import=options.allow_import)
    return Execution(
        pipeline=pipeline,
        served=frozenset(options.operators),
        configuration=ConfigurationSpace(pipeline.graph).parse(options.configuration),
        pace=options.pace,
        clock=SystemClock(),
        cpu_seconds=_cpu_seconds,
    )


def _cpu_seconds() -> float:
    """Give those of this thread (gRPC's own are not the operator's) and of ended programs."""
    programs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time() + programs.ru_utime + programs.ru_stime


def _listen(server: grpc.Server, options: WorkerOptions) -> str:
    host = split_address(options.bind)[0]
    try:
        if options.tls is None:
            port = server.add_insecure_port(options.bind)
        else:
            port = server.add_secure_port(options.bind, server_credentials(options.tls))
    except RuntimeError as error:
        raise InvalidInput.of("bind", "must be an address that is free", options.bind) from error
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
