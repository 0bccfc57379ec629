"""What a ramp is sent to: an endpoint over HTTP, or one worker of a deployment unit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
_CONNECTIONS = 10_000  # as many as may wait at once


class EndpointFailed(CircinusError):
    """An endpoint did not answer a request, or with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endpoint:
    url: str
    body: bytes | None
    content_type: str
    pool: httpcore.AsyncConnectionPool
    timeout_s: float

    async def __call__(self, number: int) -> float:
        limits = dict.fromkeys(("connect", "read", "write", "pool"), self.timeout_s)
        headers = {"content-type": self.content_type} if self.body is not None else {}
        try:
            reply = await self.pool.request(
                "GET" if self.body is None else "POST",
                self.url,
                headers=headers,
                content=self.body,
                extensions={"timeout": limits},
            )
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise EndpointFailed(f"{self.url}: {str(error) or type(error).__name__}") from error
        if reply.status >= _FAILED:
            raise EndpointFailed(f"{self.url}: answered {reply.status}")
        return nan


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
    url: str,
    body: bytes | None = None,
    *,
    content_type: str = "application/json",
    timeout_s: float = _TIMEOUT_S,
) -> AsyncIterator[RampTarget]:
    """Give an endpoint that a body is sent to by POST; None: it is asked by GET.

    InvalidInput unless the URL is of HTTP or HTTPS.
    """
    parts = urlsplit(url)
    well = parts.scheme in ("http", "https") and bool(parts.hostname)
    checks.require(well, "--url", "must be of http or https", url)
    async with httpcore.AsyncConnectionPool(
        max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS
    ) as pool:
        yield _Endpoint(
            url=url, body=body, content_type=content_type, pool=pool, timeout_s=timeout_s
        )


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
