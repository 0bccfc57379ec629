"""Ramps over endpoints, and over units that run here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from circinus.deploy.local.cgroups import available
from circinus.deploy.local.launcher import LocalLauncher
from circinus.deploy.routes.ramping import (
    Ramped,
    RampObserver,
    RampSettings,
    RampTarget,
    endpoint_target,
    ramped,
    unit_target,
)
from circinus.deploy.routes.workloads import UnitWorkload
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload

_STREAM = 3
_INPUTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramping:
    """How ramps are made, and who observes them."""

    settings: RampSettings
    seed: int  # of when requests are sent, and of inputs
    observer: RampObserver

    def endpoint(self, url: str, body: bytes | None) -> Ramped:
        """Return where an endpoint breaks; errors as `endpoint_target` and `ramped`."""
        return self._made(endpoint_target(url, body))

    def unit(self, workload: UnitWorkload, pipeline: Pipeline, logs: Path) -> Ramped:
        """Return where one worker of a unit breaks, on examples of its pipeline.

        InvalidInput if it brings none; other errors as `unit_target` and `ramped`.
        """
        allows = ":" in workload.pipeline_reference
        launcher = LocalLauncher(logs=logs, cgroups=available(), allow_import=allows)
        return self._made(unit_target(workload, pipeline, self._inputs(pipeline), launcher))

    def _inputs(self, pipeline: Pipeline) -> Sequence[Payload]:
        if pipeline.examples is None:
            raise InvalidInput.of("pipeline", "must bring examples", pipeline.name)
        pipeline.make_ready()
        return [each.input for each in pipeline.examples(_INPUTS, self.seed).examples]

    def _made(self, opened: AbstractAsyncContextManager[RampTarget]) -> Ramped:
        async def made() -> Ramped:
            async with opened as target:
                generator = np.random.default_rng([self.seed, _STREAM])
                return await ramped(target, self.settings, SystemClock(), generator, self.observer)

        return asyncio.run(made())
