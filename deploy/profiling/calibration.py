"""Measures how fast a tier is, on workers that serve as a deployment's do.

A profile is measured by a pool of processes, run after run; a deployed operator serves a request
now and then, under a share of a machine, with caches that others have used since. So workers are
called over gRPC as a dispatcher calls them, all operators of a request in one call, with pauses
between requests, and profiles are made by a pool, as plans' are. Blocks of profiling and of
serving take turns, so that what else the machine does meets both.

| symbol | shape | meaning |
| --- | --- | --- |
| R, S, O | | repetitions; samples: a configuration and an input; operators |
| t, u | (R, S, O) | seconds profiled here; served on the tier; either without those of waiting |
| q | (R, S, O) | seconds in which operators waited, served |
| r, s(r) | (O,) | share of a machine; how many times as long it makes an operator |
| v | | speed factor: u = s(r) t / v |

`v = sum s(r) q(t) / sum q(u)` over the samples and the operators of a class, with q the lower
quartile over the repetitions: what else the machine does with the same sample can only add
seconds. On a quiet machine q is near the median, and the sums predict the mean latency right.

How far that is off for settings other than those measured is reported (`Calibration.within`):
each configuration is predicted by the factors of the others, and the logarithms of what is off are
taken to be normal, of a deviation estimated from C of them, one for each configuration: with d
the root of the mean of their squares, `within = exp(t(0.975, C - 1) d sqrt(1 + 1 / C))`.

What a call takes besides is measured as plans are charged for it:

- A quota holds all that the process does: `Tier.call_s` is its CPU time that was not its
  operators', over the calls. It is not measured where operators take batches: theirs is not
  separable.
- A worker that keeps to its share by waiting, as pods do, waits for its operators alone. Then
  `call_s` and `call_s_per_byte` are 0, and `Tier.call_delay_s` is what the caller waits longer
  than the operators took (q over the calls), whatever the share: the way there and back,
  receiving, answering.

`call_s` is less what `Tier.call_s_per_byte` charges for the inputs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from circinus.deploy.profiling.processes import ProcessPool
from circinus.deploy.runtime.instances import (
    AttachedLauncher,
    InstanceKey,
    InstanceSpec,
    Launcher,
    emulated_speed,
    opened,
)
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.execution import INPUT
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.deploy.workers.shares import Enforcement
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import OperatorFailed
from circinus.pipelines.execution.pipeline import Pipeline, inputs_of
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.latency import stretch_of, waits_apart_on
from circinus.pipelines.model.payload import Payload, encode, payload_bytes
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import SURE
from circinus.pipelines.model.tiers import Calibration, ClassSpeed, Tier
from circinus.profiler.execution import Executor, FailedRun

_TIMEOUT_S = 60.0
_QUIET = 0.25
_LEAST_S = 1e-6  # that an operator computes: one that only waits has no speed, and 0 / 0 is none
_WAITING = (Enforcement.DUTY_CYCLE, Enforcement.DEVICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How a tier is calibrated."""

    repetitions: int = 9  # blocks of profiling and serving, `>= 1`. 9: the spread is of thirds
    # of a machine, in (0, 1]. 0.25: plans are tightened, and a quota that is used up in a part of
    # each period leaves caches to others; at less, where workers start later, it is alike
    share: float = 0.25
    pause_s: float = 0.05  # between two requests, `>= 0`. 50 ms: longer than caches stay warm for

    def __post_init__(self) -> None:
        checks.at_least("repetitions", self.repetitions, 1)
        checks.share("share", self.share)
        checks.non_negative("pause_s", self.pause_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is run to calibrate with: every configuration on every input, at least one of each."""

    reference: str  # names the pipeline, see `pipelines.registry.load_pipeline`
    pipeline: Pipeline
    configurations: Sequence[Configuration]
    inputs: Sequence[Payload]

    def __post_init__(self) -> None:
        least = "must have at least one"
        checks.require(len(self.configurations) > 0, "configurations", least, 0)
        checks.require(len(self.inputs) > 0, "inputs", least, 0)

    @property
    def samples(self) -> list[tuple[Configuration, Payload]]:  # S
        """Return all pairs, in order."""
        return list(product(self.configurations, self.inputs))


async def calibrated(
    tier: Tier,
    workload: Workload,
    launcher: Launcher,
    clock: Clock,
    settings: CalibrationSettings | None = None,
    *,
    machine_type: str | None = None,
) -> Tier:
    """Return the tier with its calibration; the classes of other pipelines keep theirs.

    The speed factor of the tier itself becomes that of all operators together, unless its speed
    is emulated: then it states how long to wait, and stays. The launcher starts the tier's worker,
    or knows where one is, on a machine of the type if the tier has types; the clock times the
    profiling, and knows the date. Raises LaunchFailed as the launcher does, and OperatorFailed if
    an operator fails on an input.
    """
    settings = settings or CalibrationSettings()
    profiled: list[FloatArray] = []  # R times (S, O)
    served: list[FloatArray] = []
    waited: list[FloatArray] = []
    calls = _Calls(clock)
    spec = InstanceSpec(
        key=InstanceKey("calibration", workload.pipeline.name, tier.name, 0, machine_type),
        pipeline_reference=workload.reference,
        operators=workload.pipeline.graph.operators,
        configuration=workload.configurations[0],
        tier=tier,
        share=settings.share,
    )
    async with opened(launcher, spec) as (instance, client):
        await _serve(workload, client, 0, _Calls(clock), warm_up=True)
        instance.limit()  # models are loaded: at a tenth of a core that is most of the time
        with ProcessPool(workload.reference, clock) as pool:
            for _ in range(settings.repetitions):
                seconds, waits = await _profile(workload, pool, settings.pause_s)
                apart = [waits_apart_on(op, tier) for op in workload.pipeline.graph.operators]
                profiled.append(np.maximum(seconds - waits * apart, _LEAST_S))
                computed_s, waited_s = await _serve(workload, client, settings.pause_s, calls)
                served.append(computed_s)
                waited.append(waited_s)
    graph = workload.pipeline.graph
    share = np.array([settings.share])
    stretch = np.array([stretch_of(op, share)[0] for op in graph.operators])
    expected, taken = np.array(profiled) * stretch, np.array(served)
    classes = np.array(graph.classes)
    factor = tier.speed_factor if tier.emulated else _factor(expected, taken)
    waits_s = np.quantile(waited, _QUIET, axis=0)
    calibration = Calibration(
        date=datetime.fromtimestamp(clock.timestamp(), UTC).date().isoformat(),
        share=settings.share,
        tier_factor=factor,
        speeds={
            name: _speed(expected[:, :, classes == name], taken[:, :, classes == name])
            for name in dict.fromkeys(graph.classes)
        },
        within=off_by(expected, taken, classes, len(workload.configurations), waited_s=waits_s),
    )
    measured = tier.calibrated(calibration)
    if instance.enforcement in _WAITING:
        return _delayed(measured, calls.waited_s)
    return _charged(measured, calls.cpu_s * factor, workload)


async def all_calibrated(
    tiers: Sequence[Tier],
    workload: Workload,
    launcher: AttachedLauncher,
    clock: Clock,
    settings: CalibrationSettings | None = None,
    *,
    one_computer: bool = True,
) -> list[Tier]:
    """Return the tiers calibrated, see `calibrated`; those without a machine as they are.

    A tier with types is calibrated type by type, each an own one `TIER/TYPE` to the launcher.
    With `one_computer` workers that have to be started are all started on this computer: one
    measurement does for their tiers, and how long an emulated one waits besides is known. Else
    each has a machine of its own, and is measured there.
    """
    pools = {name: pool for tier in tiers for name, pool in tier.pools.items() if pool.machines}
    types = {f"{tier.name}/{each.name}": each.name for tier in tiers for each in tier.types}
    here = [name for name in pools if one_computer and name not in launcher.addresses]
    if here:
        computer = _delayed(replace(pools[here[0]], emulated=False, calibration=None), 0.0)
        measured = await calibrated(computer, workload, launcher, clock, settings)
        pools |= {name: _on_this_computer(pools[name], measured, workload) for name in here}
    for name in [name for name in pools if name not in here]:
        # A worker of a type has the name of its tier, as its instances do.
        known = {pools[name].name: launcher.addresses[name]} if name in launcher.addresses else {}
        its = replace(launcher, addresses=known)
        pools[name] = await calibrated(
            pools[name], workload, its, clock, settings, machine_type=types.get(name)
        )
    return [_with_pools(tier, pools) for tier in tiers]


def _with_pools(tier: Tier, measured: Mapping[str, Tier]) -> Tier:
    """Return the tier with its pools as measured; a call costs what it does at most."""
    pools = [measured[name] for name in tier.pools if name in measured] or [tier]
    return replace(
        tier.changed(lambda name, pool: measured.get(name, pool)),
        call_s=max(pool.call_s for pool in pools),
        call_s_per_byte=max(pool.call_s_per_byte for pool in pools),
        call_delay_s=max(pool.call_delay_s for pool in pools),
    )


def _on_this_computer(tier: Tier, computer: Tier, workload: Workload) -> Tier:
    """Return a tier whose workers are started here, as this computer was measured."""
    own = computer.calibration
    if own is None:
        return tier
    if tier.emulated:
        waiting = replace(own, tier_factor=1.0).at(emulated_speed(tier))
        measured = tier.calibrated(replace(waiting, tier_factor=tier.speed_factor))
    else:
        measured = tier.calibrated(own)
    if computer.call_delay_s:
        return _delayed(measured, computer.call_delay_s)
    # Waiting stretches operators, and no calls.
    call_s = computer.call_s * measured.speed_factor / computer.speed_factor
    return _charged(measured, call_s, workload)


def _charged(tier: Tier, call_s: float, workload: Workload) -> Tier:
    """Return the tier whose calls take so long on the reference machine, bytes included.

    As it is where operators take batches: what they take is not separable from calls.
    """
    if any(operator.run_batch for operator in workload.pipeline.operators):
        return tier
    mean_bytes = float(np.mean([payload_bytes(each) for each in workload.inputs]))
    return replace(tier, call_s=max(call_s - tier.call_s_per_byte * mean_bytes, 0.0))


def _delayed(tier: Tier, delay_s: float) -> Tier:
    """Return the tier whose calls take so long whatever the share, their bytes included."""
    return replace(tier, call_s=0.0, call_s_per_byte=0.0, call_delay_s=delay_s)


def _speed(expected: FloatArray, served: FloatArray) -> ClassSpeed:  # (R, S, O) each
    factor = _factor(expected, served)
    thirds = [_factor(expected[i::3], served[i::3]) for i in range(min(3, len(served)))]
    low, high = min(factor, *thirds), max(factor, *thirds)
    return ClassSpeed(factor=factor, low=low, high=high, repetitions=len(served))


def _factor(expected: FloatArray, served: FloatArray) -> float:  # (R, S, O) each
    above, below = (np.quantile(block, _QUIET, axis=0).sum() for block in (expected, served))
    return float(above / below)


def off_by(
    expected: FloatArray,  # (R, S, O)
    served: FloatArray,  # (R, S, O)
    classes: NDArray[np.str_],  # (O,)
    configurations: int,
    waited_s: FloatArray | None = None,  # (S, O), besides; None: 0
) -> float:
    """Return by what factor requests may be off, see above; 1 of a single configuration."""
    if configurations < 2:
        return 1.0
    of_class = np.unique(classes)[:, None] == classes  # (K, O)
    above, below = (
        np.quantile(block, _QUIET, axis=0).reshape(configurations, -1, len(classes)).sum(axis=1)
        for block in (expected, served)
    )  # (C, O)
    others = [(each.sum(axis=0) - each) @ of_class.T for each in (above, below)]  # (C, K) each
    speeds = (others[0] / others[1]) @ of_class  # (C, O), by all but one configuration each
    besides = np.zeros(configurations)  # (C,)
    if waited_s is not None:
        besides = waited_s.reshape(configurations, -1).sum(axis=1)
    off = np.log(((above / speeds).sum(axis=1) + besides) / (below.sum(axis=1) + besides))
    deviation = np.sqrt(np.mean(off**2) * (1 + 1 / configurations))
    return float(np.exp(stdtrit(configurations - 1, (1 + SURE) / 2) * deviation))


async def _profile(
    workload: Workload, executor: Executor, pause_s: float
) -> tuple[FloatArray, FloatArray]:  # (S, O) each
    """Run every sample as a profiler does, warm: the second time after a pause counts.

    Return the seconds of operators, and those of them in which they waited.
    """
    rows = []
    for configuration, sample in workload.samples:
        await asyncio.sleep(pause_s)  # schedulers of busy machines are kinder to who has slept
        _run(workload.pipeline, sample, configuration, executor)
        rows.append(_run(workload.pipeline, sample, configuration, executor))
    seconds, waited_s = np.moveaxis(np.array(rows), -1, 0)
    return seconds, waited_s


def _run(
    pipeline: Pipeline, sample: Payload, configuration: Configuration, executor: Executor
) -> list[tuple[float, float]]:
    """Return the seconds of every operator, and those of them in which it waited."""
    outputs: dict[str, Payload] = {}
    seconds = []
    for name, operator in pipeline.by_name.items():
        inputs = inputs_of(pipeline.graph, name, sample, outputs)
        done = executor.run(operator, inputs, configuration)
        if isinstance(done, FailedRun):
            raise OperatorFailed(name, done.cause)
        outputs[name] = done.output
        seconds.append((done.seconds, done.waited_s))
    return seconds


@dataclass(slots=True)
class _Calls:
    """What calls take besides operators, as far as they went."""

    clock: Clock
    _waited_s: list[float] = field(default_factory=list, init=False)  # of their callers
    _first_s: float | None = None  # of the worker when the first was answered
    _since_s: float = 0.0  # CPU seconds of the worker without its operators', since then
    _operators_s: float = 0.0  # those of its operators
    _count: int = 0

    def take(self, reply: RunReply, since: float) -> None:
        """Count a call in, which was sent at that time of the clock."""
        self._waited_s.append(self.clock.now() - since - sum(reply.seconds.values()))
        if self._first_s is None:
            self._first_s = reply.worker_cpu_s
            return
        self._operators_s += reply.operators_cpu_s
        self._since_s = reply.worker_cpu_s - self._first_s - self._operators_s
        self._count += 1

    @property
    def waited_s(self) -> float:
        """Seconds that a caller waited longer than the operators took, `>= 0`."""
        return max(float(np.quantile(self._waited_s, _QUIET)), 0.0)

    @property
    def cpu_s(self) -> float:
        """CPU seconds a call of the worker, `>= 0`; 0 of fewer than two calls."""
        return max(self._since_s / self._count, 0.0) if self._count else 0.0


async def _serve(
    workload: Workload,
    client: WorkerClient,
    pause_s: float,
    calls: _Calls,
    *,
    warm_up: bool = False,
) -> tuple[FloatArray, FloatArray]:  # (S, O) each
    """Send every sample as a request; return what operators computed and waited, in seconds."""
    computed_s, waited_s = [], []
    names = tuple(workload.pipeline.by_name)
    for configuration, sample in workload.samples:
        await asyncio.sleep(pause_s)
        inputs, since = {INPUT: encode(sample)}, calls.clock.now()
        reply = await client.run(
            names,
            inputs,
            workload.pipeline.graph.sinks,
            timeout_s=_TIMEOUT_S,
            warm_up=warm_up,
            configuration=configuration,
        )
        calls.take(reply, since)
        waited_s.append([reply.waited_s[name] for name in names])
        each = zip(names, waited_s[-1], strict=True)
        computed_s.append([max(reply.seconds[name] - waits, _LEAST_S) for name, waits in each])
    return np.array(computed_s), np.array(waited_s)
