"""Calibration with the samples of a pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from circinus.api.settings import Settings
from circinus.deploy.local.cgroups import available
from circinus.deploy.local.launcher import LocalLauncher
from circinus.deploy.profiling.calibration import CalibrationSettings, Workload, all_calibrated
from circinus.deploy.runtime.instances import AttachedLauncher
from circinus.deploy.workers.transport import files_in
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.configuration import ConfigurationSpace
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.pipeline import Pipeline

_CALIBRATION_STREAM = 2
_LARGEST_DRAW = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSampling:
    """With how many configurations, drawn at random, and examples for each to calibrate."""

    configurations: int
    inputs: int
    seed: int


def calibrated_infrastructure(
    infrastructure: Infrastructure,
    named: tuple[str, Pipeline],
    sampling: CalibrationSampling,
    settings: CalibrationSettings,
    *,
    addresses: Mapping[str, str],
    logs: Path,
) -> Infrastructure:
    """Give the infrastructure with the speed factors of its tiers, measured with one pipeline.

    Args:
        infrastructure: Whose tiers; those without a machine are left out.
        named: Reference and pipeline; what it needs once is prepared first.
        sampling: Which samples.
        settings: How.
        addresses: Tier -> address of a worker that runs; one is started for the others. Those on
            other computers are called with the certificates in `Settings.worker_tls`.
        logs: Folder for the logs of workers.

    Raises:
        InvalidInput: If the pipeline brings no examples.
    """
    reference, pipeline = named
    if pipeline.examples is None:
        raise InvalidInput.of("pipeline", "must bring examples", pipeline.name)
    if pipeline.prepare is not None:
        pipeline.prepare()
    space = ConfigurationSpace(pipeline.graph)
    rng = np.random.default_rng([sampling.seed, _CALIBRATION_STREAM])
    count = min(sampling.configurations, space.size)
    numbers = rng.choice(min(space.size, _LARGEST_DRAW), count, replace=False).tolist()
    dataset = pipeline.examples(sampling.inputs, sampling.seed)
    workload = Workload(
        reference=reference,
        pipeline=pipeline,
        configurations=[space.configuration(number) for number in numbers],
        inputs=[example.input for example in dataset.examples],
    )
    started = LocalLauncher(logs=logs, cgroups=available(), allow_import=":" in reference)
    launcher = AttachedLauncher(addresses, started, files_in(Settings().worker_tls))

    with threadpool_limits(1):  # a machine of a local tier is one core
        tiers = asyncio.run(
            all_calibrated(infrastructure.tiers, workload, launcher, SystemClock(), settings)
        )
    return replace(infrastructure, tiers=tuple(tiers))
