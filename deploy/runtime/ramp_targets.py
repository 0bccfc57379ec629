"""What a ramp is sent to: an endpoint over HTTP, or one worker of a deployment unit."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import nan
from urllib.parse import urlsplit

import httpcore

from circinus.deploy.runtime.instances import Launcher, instances_of, opened
from circinus.deploy.runtime.ramping import RampTarget
from circinus.deploy.runtime.unit_workloads import UnitWorkload
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.payload import Payload, encode
from circinus.pipelines.pipeline import Pipeline

_TIMEOUT_S = 60.0
_FAILED = 400
_STAGES = ("connect", "read", "write", "pool")
_AWAY = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)


class EndpointFailed(CircinusError):
    """An endpoint did not answer a request, or with an error."""


@dataclass(slots=True, kw_only=True)
class _Endpoint:
    """Calls it over as many connections as there are requests at once.

    A pool of httpcore's looks at all of them for each request: with many that wait, the sender
    would be what is measured.
    """

    url: httpcore.URL
    body: bytes | None
    timeout_s: float
    tls: ssl.SSLContext | None
    idle: list[httpcore.AsyncHTTPConnection] = field(default_factory=list)

    async def __call__(self, number: int) -> float:
        connection = self._connection()
        try:
            status = (await self._request(connection)).status
        except _AWAY as error:
            cause = str(error) or type(error).__name__
            raise EndpointFailed(f"{_text(self.url)}: {cause}") from error
        finally:
            if connection.is_idle():
                self.idle.append(connection)
            else:
                await connection.aclose()
        if status >= _FAILED:
            raise EndpointFailed(f"{_text(self.url)}: answered {status}")
        return nan

    def _connection(self) -> httpcore.AsyncHTTPConnection:
        while self.idle:
            connection = self.idle.pop()
            if not connection.has_expired():  # closed by the server meanwhile
                return connection
        return httpcore.AsyncHTTPConnection(self.url.origin, ssl_context=self.tls)

    async def _request(self, connection: httpcore.AsyncHTTPConnection) -> httpcore.Response:
        headers: dict[bytes | str, bytes | str] = {"host": _host(self.url)}
        if self.body is not None:
            headers["content-type"] = "application/json"
        return await connection.request(
            "GET" if self.body is None else "POST",
            self.url,
            headers=headers,
            content=self.body,
            extensions={"timeout": dict.fromkeys(_STAGES, self.timeout_s)},
        )


def _host(url: httpcore.URL) -> str:
    host = url.host.decode("ascii")
    return host if url.port is None else f"{host}:{url.port}"


def _text(url: httpcore.URL) -> str:
    return f"{url.scheme.decode()}://{_host(url)}{url.target.decode('ascii')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    client: WorkerClient
    pipeline: Pipeline
    inputs: Sequence[bytes]
    places: asyncio.Semaphore  # as a dispatcher does, which lets the others wait in turn
    busy: float  # part of the worker that a request at work takes; nan: it is shared by batches

    async def __call__(self, number: int) -> float:
        async with self.places:
            reply = await self.client.run(
                tuple(self.pipeline.by_name),
                {INPUT: self.inputs[number % len(self.inputs)]},
                self.pipeline.graph.sinks,
                timeout_s=_TIMEOUT_S,
            )
        return sum(reply.seconds.values()) * self.busy


@asynccontextmanager
async def endpoint_target(
    url: str, body: bytes | None = None, *, timeout_s: float = _TIMEOUT_S
) -> AsyncIterator[RampTarget]:
    """Give an endpoint that a body, JSON, is sent to by POST; None: it is asked by GET.

    InvalidInput unless the URL is of HTTP or HTTPS.
    """
    parts = urlsplit(url)
    well = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii()
    checks.require(well, "--url", "must be of http or https", url)
    tls = httpcore.default_ssl_context() if parts.scheme == "https" else None
    target = _Endpoint(url=httpcore.URL(url), body=body, timeout_s=timeout_s, tls=tls)
    try:
        yield target
    finally:
        for connection in target.idle:
            await connection.aclose()


@asynccontextmanager
async def unit_target(
    workload: UnitWorkload, pipeline: Pipeline, inputs: Sequence[Payload], launcher: Launcher
) -> AsyncIterator[RampTarget]:
    """Give one worker of a unit, started for the while, that inputs are sent to in turn.

    InvalidInput if the unit's knobs do not fit, LaunchFailed as the launcher does.
    """
    desired = workload.desired(pipeline.graph, 1)
    specs = instances_of("breakpoint", desired, pipeline.graph, workload.infrastructure)
    (spec,) = specs.values()
    at_once = min(operator.concurrency for operator in pipeline.operators)
    batched = any(operator.run_batch for operator in pipeline.operators)
    async with opened(launcher, spec) as (_, client):
        yield _Worker(
            client=client,
            pipeline=pipeline,
            inputs=[encode(each) for each in inputs],
            places=asyncio.Semaphore(at_once),
            busy=nan if batched else 1 / at_once,
        )
