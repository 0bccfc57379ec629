"""Measures how fast a tier is, on workers that serve as a deployment's do.

A profile is measured in a hot loop; a deployed operator serves a request now and then, under a
share of a machine, with caches that others have used since. So workers are called over gRPC as a
dispatcher calls them, all operators of a request in one call, with pauses between requests.
Blocks of profiling and of serving take turns, so that what else the machine does meets both.

| symbol | meaning |
| --- | --- |
| t, u | seconds of an operator profiled here; served on the tier |
| r, s(r) | share of a machine; how many times as long it makes the operator |
| v | speed factor: u = s(r) t / v |

A repetition gives `v = s(r) sum t / sum u` over its samples: the figure with which the mean
latency is predicted right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from deploy.instances import InstanceKey, InstanceSpec, Launcher
from deploy.workers.client import WorkerClient
from deploy.workers.execution import INPUT
from pipelines import checks
from pipelines.calibration import Calibration, ClassSpeed
from pipelines.clock import Clock
from pipelines.configuration import Configuration
from pipelines.errors import OperatorFailed
from pipelines.infrastructure import Tier
from pipelines.latency import stretch_of
from pipelines.payload import Payload, encode
from pipelines.pipeline import Pipeline, inputs_of
from profiler.execution import Failed, InProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How a tier is calibrated.

    Attributes:
        repetitions: Blocks of profiling and serving, `>= 1`. 9: their median leaves out what else
            the machine did in four of them.
        share: Of a machine, for the workers, in (0, 1]. 0.5: plans are tightened, few have a
            whole machine.
        pause_s: Between two requests, `>= 0`. 50 ms: longer than caches stay warm for.
    """

    repetitions: int = 9
    share: float = 0.5
    pause_s: float = 0.05

    def __post_init__(self) -> None:
        rule = "must be >= 1"
        checks.require(self.repetitions >= 1, "repetitions", rule, self.repetitions)
        checks.share("share", self.share)
        checks.non_negative("pause_s", self.pause_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is run to calibrate with.

    Attributes:
        reference: Names the pipeline, see `pipelines.registry.load_pipeline`.
        pipeline: The same.
        configurations: Of it, at least one.
        inputs: For each of them, at least one.
    """

    reference: str
    pipeline: Pipeline
    configurations: Sequence[Configuration]
    inputs: Sequence[Payload]

    def __post_init__(self) -> None:
        least = "must have at least one"
        checks.require(len(self.configurations) > 0, "configurations", least, 0)
        checks.require(len(self.inputs) > 0, "inputs", least, 0)


Seconds = dict[str, float]
"""Operator -> seconds, added up over the samples of a block."""


async def calibrated(
    tier: Tier,
    workload: Workload,
    launcher: Launcher,
    clock: Clock,
    settings: CalibrationSettings | None = None,
) -> Tier:
    """Give the tier with its calibration; the classes of other pipelines keep theirs.

    The speed factor of the tier itself becomes that of all operators together, unless its speed
    is emulated: then it says how much is waited, and stays.

    Args:
        tier: To calibrate.
        workload: With what.
        launcher: Starts its worker, or knows where one is.
        clock: Times the profiling, paces the requests, and knows the date.
        settings: How.

    Raises:
        LaunchFailed: If the worker does not start.
        OperatorFailed: If an operator fails on an input.
    """
    settings = settings or CalibrationSettings()
    profiled: list[Seconds] = []
    served: list[Seconds] = []
    async with _worker(tier, workload, launcher, settings.share) as client:
        executor = InProcess(clock)
        _profile(workload, executor)  # what is loaded on first use is there then
        await _serve(workload, client, settings.pause_s, warm_up=True)
        for _ in range(settings.repetitions):
            profiled.append(_profile(workload, executor))
            served.append(await _serve(workload, client, settings.pause_s))
    return _with_speeds(tier, workload, (profiled, served), clock, settings)


def _with_speeds(
    tier: Tier,
    workload: Workload,
    blocks: tuple[list[Seconds], list[Seconds]],
    clock: Clock,
    settings: CalibrationSettings,
) -> Tier:
    graph = workload.pipeline.graph
    stretch = {
        op.name: float(stretch_of(op, np.array([settings.share]))[0]) for op in graph.operators
    }
    members: dict[str, list[str]] = {}
    for operator, name in zip(graph.operators, graph.classes, strict=True):
        members.setdefault(name, []).append(operator.name)
    speeds = {name: _speed(operators, blocks, stretch) for name, operators in members.items()}
    overall = _speed([op.name for op in graph.operators], blocks, stretch).factor
    own = tier.speed_factor if tier.emulated else overall
    before = {} if tier.calibration is None else dict(tier.calibration.speeds)
    return replace(
        tier,
        speed_factor=own,
        calibration=Calibration(
            date=datetime.fromtimestamp(clock.timestamp(), UTC).date().isoformat(),
            share=settings.share,
            tier_factor=own,
            speeds={**before, **speeds},
        ),
    )


def _speed(
    operators: Sequence[str],
    blocks: tuple[list[Seconds], list[Seconds]],
    stretch: Mapping[str, float],
) -> ClassSpeed:
    factors = []
    for profiled, served in zip(*blocks, strict=True):
        expected_s = sum(profiled[name] * stretch[name] for name in operators)
        factors.append(expected_s / sum(served[name] for name in operators))
    return ClassSpeed(
        factor=median(factors), low=min(factors), high=max(factors), repetitions=len(factors)
    )


def _profile(workload: Workload, executor: InProcess) -> Seconds:
    """Run every sample as a profiler does.

    Raises:
        OperatorFailed: If an operator fails.
    """
    total = dict.fromkeys(workload.pipeline.by_name, 0.0)
    for configuration in workload.configurations:
        for given in workload.inputs:
            outputs: dict[str, Payload] = {}
            for name, operator in workload.pipeline.by_name.items():
                inputs = inputs_of(workload.pipeline.graph, name, given, outputs)
                done = executor.run(operator, inputs, configuration)
                if isinstance(done, Failed):
                    raise OperatorFailed(name, done.cause)
                outputs[name] = done.output
                total[name] += done.seconds
    return total


async def _serve(
    workload: Workload, client: WorkerClient, pause_s: float, *, warm_up: bool = False
) -> Seconds:
    """Send every sample as a request, with pauses.

    Raises:
        OperatorFailed: If an operator fails.
    """
    total = dict.fromkeys(workload.pipeline.by_name, 0.0)
    names = tuple(workload.pipeline.by_name)
    for configuration in workload.configurations:
        knobs: dict[str, dict[str, Payload]] = {
            name: dict(configuration.of(name)) for name in names
        }
        settings = {name: encode(dict(values)) for name, values in knobs.items() if values}
        for given in workload.inputs:
            await asyncio.sleep(0 if warm_up else pause_s)
            reply = await client.run(
                names,
                {INPUT: encode(given)},
                workload.pipeline.graph.sinks,
                timeout_s=_TIMEOUT_S,
                warm_up=warm_up,
                settings=settings,
            )
            for name, seconds in reply.seconds.items():
                total[name] += seconds
    return total


@asynccontextmanager
async def _worker(
    tier: Tier, workload: Workload, launcher: Launcher, share: float
) -> AsyncIterator[WorkerClient]:
    spec = InstanceSpec(
        key=InstanceKey("calibration", workload.pipeline.name, tier.name, 0),
        pipeline_reference=workload.reference,
        operators=workload.pipeline.graph.operators,
        configuration=workload.configurations[0],
        tier=tier,
        share=share,
    )
    instance = await launcher.start(spec)
    client = WorkerClient(instance.address, instance.tls)
    try:
        instance.limit()
        yield client
    finally:
        await client.close()
        await instance.stop()
