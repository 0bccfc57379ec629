"""What requests are predicted to take, held against what workers take that keep to their share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from circinus.deploy.local.cgroups import Cgroups, available
from circinus.deploy.profiling.processes import ProcessPool
from circinus.deploy.runtime.instances import InstanceKey, InstanceSpec, opened
from circinus.deploy.workers.execution import INPUT
from circinus.deploy.workers.process import processor_seconds
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work, request_seconds
from circinus.pipelines.model.payload import encode
from circinus.pipelines.model.plan import Deployment
from circinus.pipelines.model.tiers import Tier
from circinus.profiler.execution import Completed
from tests.deploy.serving import DUTY_CYCLES, launcher
from tests.deploy.waiting_pipelines import COMPUTES_S, PIPELINE, PROGRAM_S, WAITS_S

TIER = Tier(name="here")
SHAPES = (
    ("w1",),
    ("c1",),
    ("b1",),
    ("t1",),
    ("w1", "c3"),
    ("c1", "w3"),
    ("w1", "w2"),
    ("c1", "c2"),
    ("w1", "c1"),
)
RUNS, REQUESTS = 12, 6
SLACK_MS = 5  # a call, and waits that end late
ATTEMPTS = 3  # other tests may keep a core busy for minutes
REFERENCE = "tests.deploy.waiting_pipelines:PIPELINE"
CONFIGURATION = ConfigurationSpace(PIPELINE.graph).configuration(0)


@pytest.fixture(scope="module")
def profiled() -> dict[str, Completed]:
    """The quickest of some runs of each operator, by a pool."""
    found = {}
    with ProcessPool(REFERENCE, SystemClock()) as pool:
        for operator in PIPELINE.operators:
            runs = [pool.run(operator, 1, CONFIGURATION) for _ in range(RUNS)]
            done = [run for run in runs if isinstance(run, Completed)]
            found[operator.name] = min(done, key=lambda run: run.seconds - run.waited_s)
    return found


@pytest.mark.slow
def test_the_profile_tells_waiting_from_computing(profiled: dict[str, Completed]) -> None:
    computed = {name: run.seconds - run.waited_s for name, run in profiled.items()}
    assert computed["w1"] < 0.2 * WAITS_S
    for name in ("c1", "t1", "b1"):
        assert computed[name] >= COMPUTES_S
    assert computed["p1"] >= PROGRAM_S
    for name in ("w1", "b1"):
        assert profiled[name].waited_s == pytest.approx(WAITS_S, rel=0.2)


@pytest.fixture(scope="module")
def work_of() -> dict[str, tuple[float, float]]:
    """What each operator computes and waits, without what else a busy machine does meanwhile."""
    clock, found = SystemClock(), {}
    for operator in PIPELINE.operators:
        each = []
        for _ in range(RUNS):
            before, began = processor_seconds(), clock.now()
            operator.run(1, {})
            elapsed_s = clock.now() - began
            used = processor_seconds().since(before)
            each.append((used.cpu_s, used.waited_s(elapsed_s)))
        found[operator.name] = min(each)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("quotas", [True, False], ids=["quota", "waits"])
@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_requests_take_what_is_predicted(
    work_of: dict[str, tuple[float, float]], share: float, quotas: bool, tmp_path: Path
) -> None:
    cgroups = available() if quotas else DUTY_CYCLES
    if quotas and not isinstance(cgroups, Cgroups):
        pytest.skip(f"no quotas: {cgroups}")
    quickest = dict.fromkeys(SHAPES, np.inf)
    for attempt in range(ATTEMPTS):
        served = asyncio.run(_served(share, cgroups, tmp_path / str(attempt)))
        quickest = {shape: min(each, served[shape]) for shape, each in quickest.items()}
        off = {
            shape: (round(each * 1e3), round(_predicted(shape, share, work_of) * 1e3))
            for shape, each in quickest.items()
        }
        wrong = {
            s: each
            for s, each in off.items()
            if abs(each[0] - each[1]) > 0.15 * each[1] + SLACK_MS
        }
        if not wrong:
            return
    raise AssertionError(off)


def _predicted(
    shape: tuple[str, ...], share: float, work_of: dict[str, tuple[float, float]]
) -> float:
    """Predict a plan whose slice, of all that can run at once, has the share."""
    graph = PipelineGraph(
        name="shape", operators=tuple(PIPELINE.by_name[name].spec for name in shape)
    )
    each = np.array([work_of[name] for name in shape])  # (O, 2)
    work = Work(
        operator_s=each.sum(axis=1, keepdims=True),
        waited_s=each[:, [1]],
        output_bytes=np.zeros((len(shape), 1)),
        input_bytes=np.zeros(1),
    )
    width = graph.width(range(len(shape)))
    deployment = Deployment(
        placement=dict.fromkeys(shape, TIER.name),
        allocation=dict.fromkeys(shape, share / width),
        replicas=dict.fromkeys(shape, 1),
    )
    return float(
        request_seconds(graph, Infrastructure(name="i", tiers=(TIER,)), work, deployment)[0]
    )


async def _served(
    share: float, cgroups: Cgroups | str, logs: Path
) -> dict[tuple[str, ...], float]:
    """Return the quickest of some requests of each shape."""
    spec = InstanceSpec(
        key=InstanceKey("q", "p", TIER.name, 0),
        pipeline_reference=REFERENCE,
        operators=PIPELINE.graph.operators,
        configuration=CONFIGURATION,
        tier=TIER,
        share=share,
    )
    found: dict[tuple[str, ...], float] = {}
    clock = SystemClock()
    async with opened(launcher(logs, cgroups), spec) as (_instance, client):
        for shape in SHAPES:
            took = []
            for _ in range(REQUESTS):
                await asyncio.sleep(0.05)
                began = clock.now()
                await client.run(shape, {INPUT: encode(1)}, shape, timeout_s=60.0)
                took.append(clock.now() - began)
            found[shape] = min(took)
    return found
