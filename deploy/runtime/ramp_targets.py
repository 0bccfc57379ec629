"""What a ramp is sent to: an endpoint over HTTP, or one worker of a deployment unit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import nan

from circinus.deploy.runtime.endpoints import ANSWER_S, HttpEndpoint, opened_endpoint
from circinus.deploy.runtime.instances import Launcher, instances_of, opened
from circinus.deploy.runtime.ramping import RampTarget
from circinus.deploy.runtime.unit_workloads import UnitWorkload
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    endpoint: HttpEndpoint
    body: bytes | None

    async def __call__(self, number: int) -> float:
        await self.endpoint.answer(self.body)
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
                timeout_s=ANSWER_S,
            )
        return sum(reply.seconds.values()) * self.busy


@asynccontextmanager
async def endpoint_target(
    url: str, body: bytes | None = None, *, timeout_s: float = ANSWER_S
) -> AsyncIterator[RampTarget]:
    """Return an endpoint that a body, JSON, is sent to by POST; None: it is asked by GET.

    InvalidInput unless the URL is of HTTP or HTTPS.
    """
    async with opened_endpoint(url, timeout_s=timeout_s) as endpoint:
        yield _Asked(endpoint=endpoint, body=body)


@asynccontextmanager
async def unit_target(
    workload: UnitWorkload, pipeline: Pipeline, inputs: Sequence[Payload], launcher: Launcher
) -> AsyncIterator[RampTarget]:
    """Return one worker of a unit, started for the while, that inputs are sent to in turn.

    InvalidInput if the unit's knobs do not fit, LaunchFailed as the launcher does.
    """
    desired = workload.desired(pipeline.graph, 1)
    specs = instances_of("breakpoint", desired, pipeline.graph, workload.infrastructure)
    (spec,) = specs.values()
    at_once = min(operator.concurrency for operator in pipeline.operators)
    batched = any(operator.run_batch for operator in pipeline.operators)
    async with opened(launcher, spec) as (instance, client):
        instance.limit()
        yield _Worker(
            client=client,
            pipeline=pipeline,
            inputs=[encode(each) for each in inputs],
            places=asyncio.Semaphore(at_once),
            busy=nan if batched else 1 / at_once,
        )
