"""Measures how fast a tier is, on workers that serve as a deployment's do.

A profile is measured in a hot loop; a deployed operator serves a request now and then, under a
share of a machine, with caches that others have used since. So workers are called over gRPC as a
dispatcher calls them, all operators of a request in one call, with pauses between requests.
Blocks of profiling and of serving take turns, so that what else the machine does meets both.

| symbol | shape | meaning |
| --- | --- | --- |
| R, S, O | | repetitions; samples: a configuration and an input; operators |
| t, u | (R, S, O) | seconds profiled here; served on the tier |
| r, s(r) | (O,) | share of a machine; how many times as long it makes an operator |
| v | | speed factor: u = s(r) t / v |

`v = sum s(r) q(t) / sum q(u)` over the samples and the operators of a class, with q the lower
quartile over the repetitions: what else the machine does with the same sample can only add
seconds. On a quiet machine q is near the median, and the sums predict the mean latency right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from deploy.attached import AttachedLauncher
from deploy.emulation import emulated_speed
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
from pipelines.profile import FloatArray
from profiler.execution import Failed, InProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_TIMEOUT_S = 60.0
_QUIET = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How a tier is calibrated.

    Attributes:
        repetitions: Blocks of profiling and serving, `>= 1`. 9: three in each of the thirds that
            give the spread.
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


Blocks = list[FloatArray]
"""Per repetition the seconds of every sample and operator, (S, O)."""


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
    profiled: Blocks = []
    served: Blocks = []
    async with _worker(tier, workload, launcher, settings.share) as client:
        executor = InProcess(clock)
        await _serve(workload, client, settings.pause_s, warm_up=True)
        for _ in range(settings.repetitions):
            profiled.append(await _profile(workload, executor, settings.pause_s))
            served.append(await _serve(workload, client, settings.pause_s))
    return _with_speeds(tier, workload, (np.array(profiled), np.array(served)), clock, settings)


async def all_calibrated(
    tiers: Sequence[Tier],
    workload: Workload,
    launcher: AttachedLauncher,
    clock: Clock,
    settings: CalibrationSettings | None = None,
) -> list[Tier]:
    """Give the tiers calibrated, see `calibrated`; those without a machine as they are.

    Workers that have to be started are all started on this computer: one measurement does for
    their tiers, and how long an emulated one waits besides is known.
    """
    here = [tier for tier in tiers if tier.machines and tier.name not in launcher.addresses]
    found = {tier.name: tier for tier in tiers}
    if here:
        computer = replace(here[0], emulated=False, calibration=None)
        own = (await calibrated(computer, workload, launcher, clock, settings)).calibration
        found |= {tier.name: _on_this_computer(tier, own) for tier in here if own is not None}
    for tier in tiers:
        if tier.machines and tier.name in launcher.addresses:
            found[tier.name] = await calibrated(tier, workload, launcher, clock, settings)
    return [found[tier.name] for tier in tiers]


def _on_this_computer(tier: Tier, own: Calibration) -> Tier:
    if not tier.emulated:
        return tier.calibrated(own)
    waiting = replace(own, tier_factor=1.0).at(emulated_speed(tier))
    return tier.calibrated(replace(waiting, tier_factor=tier.speed_factor))


def _with_speeds(
    tier: Tier,
    workload: Workload,
    blocks: tuple[FloatArray, FloatArray],  # (R, S, O) each
    clock: Clock,
    settings: CalibrationSettings,
) -> Tier:
    graph = workload.pipeline.graph
    share = np.array([settings.share])
    stretch = np.array([stretch_of(op, share)[0] for op in graph.operators])
    expected, served = blocks[0] * stretch, blocks[1]
    members: dict[str, list[int]] = {}
    for position, name in enumerate(graph.classes):
        members.setdefault(name, []).append(position)
    speeds = {
        name: _speed(expected[:, :, operators], served[:, :, operators])
        for name, operators in members.items()
    }
    return tier.calibrated(
        Calibration(
            date=datetime.fromtimestamp(clock.timestamp(), UTC).date().isoformat(),
            share=settings.share,
            tier_factor=tier.speed_factor if tier.emulated else _factor(expected, served),
            speeds=speeds,
        )
    )


def _speed(expected: FloatArray, served: FloatArray) -> ClassSpeed:  # (R, S, O) each
    factor = _factor(expected, served)
    thirds = [_factor(expected[i::3], served[i::3]) for i in range(min(3, len(served)))]
    return ClassSpeed(
        factor=factor,
        low=min(factor, *thirds),
        high=max(factor, *thirds),
        repetitions=len(served),
    )


def _factor(expected: FloatArray, served: FloatArray) -> float:  # (R, S, O) each
    above, below = (np.quantile(block, _QUIET, axis=0).sum() for block in (expected, served))
    return float(above / below)


async def _profile(
    workload: Workload, executor: InProcess, pause_s: float
) -> FloatArray:  # (S, O)
    """Run every sample as a profiler does, warm: the second time after a pause counts.

    The pauses are for schedulers of busy machines, which are kinder to who has slept.

    Raises:
        OperatorFailed: If an operator fails.
    """
    rows = []
    for configuration in workload.configurations:
        for given in workload.inputs:
            await asyncio.sleep(pause_s)
            _run(workload.pipeline, given, configuration, executor)
            rows.append(_run(workload.pipeline, given, configuration, executor))
    return np.array(rows)


def _run(
    pipeline: Pipeline, given: Payload, configuration: Configuration, executor: InProcess
) -> list[float]:
    """Give the seconds of every operator.

    Raises:
        OperatorFailed: If one fails.
    """
    outputs: dict[str, Payload] = {}
    seconds = []
    for name, operator in pipeline.by_name.items():
        inputs = inputs_of(pipeline.graph, name, given, outputs)
        done = executor.run(operator, inputs, configuration)
        if isinstance(done, Failed):
            raise OperatorFailed(name, done.cause)
        outputs[name] = done.output
        seconds.append(done.seconds)
    return seconds


async def _serve(
    workload: Workload, client: WorkerClient, pause_s: float, *, warm_up: bool = False
) -> FloatArray:  # (S, O)
    """Send every sample as a request, with pauses.

    Raises:
        OperatorFailed: If an operator fails.
    """
    rows = []
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
            rows.append([reply.seconds[name] for name in names])
    return np.array(rows)


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
