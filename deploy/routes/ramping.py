"""Sends a ramp of rates to an endpoint or to one worker of a unit, and finds where it breaks.

Requests are sent when they are due, at random, whatever became of those before them (an open
loop): a sender that waits for answers slows down with what it measures, and sees no queue. Where
this process itself is late, a step measures nothing of its target, and is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf, nan
from typing import Protocol

import numpy as np

from circinus.deploy.routes.endpoints import ANSWER_S, HttpEndpoint, opened_endpoint
from circinus.deploy.routes.workloads import UnitWorkload
from circinus.deploy.runtime.instances import Launcher, instances_of, opened
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload, encode
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.routing.breaking_point import (
    BreakingLimits,
    BreakingPoint,
    NextRate,
    RampObservation,
    RampPhase,
    RampPlan,
    RampStep,
    breaking_point,
    judged,
    next_rate,
)

_LATE = 0.95  # quantile of what requests are sent late by
_MOST_LATE_S, _MOST_LATE = 0.005, 0.1
_MOST_LATE_OF_STEP = 0.01  # where only what is served counts: a tenth of what is counted at once
_TRIES = 3  # of a step that was sent late
_WARM_UPS = 3
_FIRST = 0.5  # part of what one that serves one at a time would take at most
_FIRST_OF_MOST = 0.25  # from where it is a few steps up


class RampTarget(Protocol):
    """Something that serves requests."""

    async def __call__(self, number: int) -> float:
        """Return when the number-th request, from 0, is answered; many are made at once.

        Return the seconds that the unit was busy with it; nan: not known. A CircinusError if it
        failed. It ends by itself, in some time.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SentLate:
    """A step that is not counted."""

    per_s: float
    late_s: float  # that requests were sent after they were due, of 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class RampSettings:
    """How a ramp is made, see `RampPlan`."""

    limits: BreakingLimits = field(default_factory=BreakingLimits)
    step_s: float = 5.0
    most_per_s: float = 1000.0
    least_requests: int = 60

    def plan(self, alone_s: float) -> RampPlan:
        """Return which rates are tried of something that takes so long for one request."""
        return RampPlan(
            first_per_s=min(_FIRST / alone_s, self.most_per_s * _FIRST_OF_MOST),
            most_per_s=self.most_per_s,
            step_s=self.step_s,
            least_requests=self.least_requests,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramped:
    """The result of a ramp."""

    steps: tuple[RampStep, ...]  # as they were made
    late: tuple[SentLate, ...]  # those that are not counted
    point: BreakingPoint | None  # None: no step was counted
    failure: str = ""  # of the last request that failed, in words; empty: none did


class RampObserver(Protocol):
    """Receives the progress of a ramp."""

    def begins(self, rate: NextRate) -> None:
        """Receive the rate that is tried now."""

    def ended(self, step: RampStep | SentLate) -> None:
        """Receive its result."""


async def ramped(
    target: RampTarget,
    settings: RampSettings,
    clock: Clock,
    generator: np.random.Generator,
    observer: RampObserver,
) -> Ramped:
    """Return where a target breaks; a CircinusError if it fails with one request at a time.

    The generator draws when requests are sent. What was sent late three times ends the ramp: as
    many cannot be sent from here.
    """
    sender = _Sender(target, clock)
    plan = settings.plan(await sender.alone_s())
    steps: list[RampStep] = []
    late: list[SentLate] = []
    while (rate := next_rate(plan, steps)) is not None:
        observer.begins(rate)
        observation, late_s = await sender.send(rate, generator)
        if late_s > _most_late_s(observation, settings.limits):
            late.append(SentLate(per_s=rate.per_s, late_s=late_s))
            observer.ended(late[-1])
            if sum(each.per_s == rate.per_s for each in late) >= _TRIES:
                break
            continue
        steps.append(judged(observation, settings.limits))
        observer.ended(steps[-1])
    return Ramped(
        steps=tuple(steps),
        late=tuple(late),
        point=breaking_point(steps) if steps else None,
        failure=sender.failure,
    )


async def share_in_time(
    target: RampTarget,
    per_s: float,
    lasts_s: float,
    within_s: float,
    clock: Clock,
    generator: np.random.Generator,
) -> float:
    """Return the share of the requests that are answered in time at a rate, held for so long.

    A CircinusError if the target fails with one request at a time; InvalidInput if so many cannot
    be sent from here.
    """
    sender = _Sender(target, clock)
    await sender.alone_s()
    rate = NextRate(per_s=per_s, phase=RampPhase.UP, lasts_s=lasts_s)
    observation, late_s = await sender.send(rate, generator)
    rule = f"must be so low that requests are sent when due, and they were {late_s:.3g} s late"
    sent = late_s <= _most_late_s(observation, BreakingLimits(latency_s=within_s))
    checks.require(sent, "rate", rule, per_s)
    return float((observation.response_s <= within_s).mean())


def _most_late_s(observation: RampObservation, limits: BreakingLimits) -> float:
    """Return by how much requests may be sent late: a tenth of what the step is judged by."""
    if limits.latency_s is not None:
        return max(_MOST_LATE_S, _MOST_LATE * limits.latency_s)
    answered = observation.response_s[np.isfinite(observation.response_s)]
    half_s = float(np.median(answered)) if len(answered) else 0.0
    return max(_MOST_LATE_S, _MOST_LATE * half_s, _MOST_LATE_OF_STEP * observation.lasted_s)


@dataclass(slots=True)
class _Sender:
    target: RampTarget
    clock: Clock
    failure: str = ""
    _sent: int = 0

    async def alone_s(self) -> float:
        """Return what a request takes that is alone, of a few the last one's; errors as it has."""
        response_s = 0.0
        for _ in range(_WARM_UPS):
            since = self.clock.now()
            await self.target(self._next())
            response_s = self.clock.now() - since
        checks.positive("seconds of a request", response_s)
        return response_s

    async def send(
        self, rate: NextRate, generator: np.random.Generator
    ) -> tuple[RampObservation, float]:
        """Return the observation of a step, and how late 95 % of it was sent at most."""
        count = max(int(generator.poisson(rate.per_s * rate.lasts_s)), 1)
        due_s = np.sort(generator.uniform(0.0, rate.lasts_s, count))  # (n,)
        rows = np.full((count, 3), nan)  # sent, took and busy seconds
        since = self.clock.now()
        async with asyncio.TaskGroup() as going:
            for i, at_s in enumerate(due_s.tolist()):
                await asyncio.sleep(max(since + at_s - self.clock.now(), 0.0))
                going.create_task(self._one(since, rows[i]))
        sent_s, response_s, busy_s = rows.T
        observation = RampObservation(
            per_s=rate.per_s,
            lasted_s=rate.lasts_s,
            sent_s=sent_s,
            response_s=response_s,
            busy_s=None if np.isnan(busy_s).all() else busy_s,
        )
        return observation, float(np.quantile(sent_s - due_s, _LATE))

    async def _one(self, since: float, row: FloatArray) -> None:  # (3,)
        number, sent = self._next(), self.clock.now()
        row[:2] = sent - since, inf
        try:
            row[2] = await self.target(number)
            row[1] = self.clock.now() - sent
        except CircinusError as error:
            self.failure = str(error)

    def _next(self) -> int:
        self._sent += 1
        return self._sent - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endpoint:
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
    """Return an endpoint that gets a JSON body by POST; None: a GET request.

    InvalidInput unless the URL is of HTTP or HTTPS.
    """
    async with opened_endpoint(url, timeout_s=timeout_s) as endpoint:
        yield _Endpoint(endpoint=endpoint, body=body)


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
