"""What deployed workers add to `tests/contracts/test_executor.py`: tiers, and how workers end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from circinus.deploy.profiling.pool import ProfilingPoolSettings
from circinus.deploy.profiling.tier import ProfiledTier, TierExecutor
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.tiers import Tier
from circinus.profiler.execution import Completed, FailedRun, InProcess
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.measure import Profiler
from tests.deploy.profiled_pipelines import CANNOT_LOAD, CHAIN, EVERY, chain, every
from tests.deploy.serving import deployed, is_alive, launcher

PLAIN = Configuration(())


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TierExecutor]:
    logs = tmp_path_factory.mktemp("logs")
    with deployed(EVERY, every, logs, timeout_s=0.5) as opened:
        yield opened


def pid(executor: TierExecutor) -> int:
    done = executor.run(every.by_name["pid"], 1, PLAIN)
    assert isinstance(done, Completed)
    assert isinstance(done.output, int)
    return done.output


def test_a_pipeline_that_cannot_be_loaded_is_said_to_be_unavailable(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    logs = tmp_path_factory.mktemp("logs")
    missing = CANNOT_LOAD.replace("cannot_load", "is_not_there")
    with (
        deployed(missing, every, logs) as broken,
        pytest.raises(Unavailable, match="no worker could load the pipeline"),
    ):
        broken.run(every.by_name["echo"], 1, PLAIN)


def test_an_operator_that_never_ends_is_ended_with_its_worker(executor: TierExecutor) -> None:
    before = pid(executor)
    done = executor.run(every.by_name["hang"], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert done.cause == "took longer than 0.5 s"
    assert 0.5 <= done.spent_s < 1  # a first call, which would be made twice
    assert not is_alive(before)
    assert pid(executor) != before


def test_an_operator_that_takes_its_worker_down_costs_that_measurement(
    executor: TierExecutor,
) -> None:
    done = executor.run(every.by_name["die"], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert done.cause == "the worker process died (killed by SIGKILL)"
    assert executor.deaths[-3:] == [f"die: {done.cause}"] * 3
    assert isinstance(executor.run(every.by_name["echo"], "alive", PLAIN), Completed)


def test_a_worker_that_somebody_killed_loses_no_measurement(executor: TierExecutor) -> None:
    before = pid(executor)
    os.kill(before, signal.SIGKILL)
    assert pid(executor) != before


def test_closing_leaves_no_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    with deployed(EVERY, every, tmp_path_factory.mktemp("logs")) as opened:
        worker = pid(opened)
    assert not is_alive(worker)


def test_an_operator_that_wants_too_much_memory_fails(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    limited = launcher(tmp_path_factory.mktemp("logs"), memory_bytes=900_000_000)
    place = ProfiledTier(tier=Tier(name="cloud"))
    with TierExecutor(EVERY, every.graph, place, limited, SystemClock()) as opened:
        done = opened.run(every.by_name["eat"], 1, PLAIN)
        assert isinstance(done, FailedRun)
        assert "Unable to allocate" in done.cause
        assert isinstance(opened.run(every.by_name["echo"], 1, PLAIN), Completed)


def test_seconds_of_a_slow_tier_are_those_of_the_reference_machine(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    tier = Tier(name="edge", speed_factor=0.1, emulated=True)
    place = ProfiledTier(tier=tier, speeds={"slower": 0.1})
    logs = tmp_path_factory.mktemp("logs")
    opened = TierExecutor(EVERY, every.graph, place, launcher(logs), SystemClock())
    with opened:
        began = SystemClock().now()
        opened.run(every.by_name["slower"], 1, PLAIN)
        done = opened.run(every.by_name["slower"], 1, PLAIN)
        took = SystemClock().now() - began
    assert isinstance(done, Completed)
    # It sleeps 20 ms and waits until 200 ms are over, twice, besides the warm-up.
    assert took >= 0.4
    assert 0.02 <= done.seconds < 0.1


@pytest.mark.slow
def test_killing_workers_at_random_loses_no_measurement(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    inputs = 34  # times 3 configurations
    dataset = Dataset(
        name="numbers",
        examples=tuple(Example(input=float(i), expected=i + 1) for i in range(inputs)),
    )
    configurations = [ConfigurationSpace(chain.graph).configuration(n) for n in range(3)]
    stop, kills = threading.Event(), 0
    logs = tmp_path_factory.mktemp("logs")
    place = ProfiledTier(tier=Tier(name="cloud"))
    started: set[int] = set()
    inner = launcher(logs)

    class Watched:
        async def start(self, spec: object) -> object:
            instance = await inner.start(spec)  # type: ignore[arg-type]  # handed through
            started.add(instance.process.pid)
            return instance

    def kill() -> None:
        nonlocal kills
        rng = np.random.default_rng(0)
        while not stop.wait(float(rng.uniform(0.5, 1.5))):
            for victim in [pid for pid in started if is_alive(pid)]:
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    kills += 1

    killer = threading.Thread(target=kill)
    settings = ProfilingPoolSettings(workers=1, timeout_s=20.0)
    with TierExecutor(
        CHAIN,
        chain.graph,
        place,
        Watched(),  # type: ignore[arg-type]  # gives what the launcher gives
        SystemClock(),
        settings=settings,
    ) as opened:
        parts = {"order": np.arange(inputs), "journal": MemoryJournal()}
        profiler = Profiler(chain, dataset, executor=opened, **parts)  # type: ignore[arg-type]  # two kinds
        killer.start()
        try:
            profiles = [profiler.measure(each, inputs) for each in configurations]
        finally:
            stop.set()
            killer.join()
    truth = Profiler(
        chain,
        dataset,
        order=np.arange(inputs),
        executor=InProcess(SystemClock()),
        journal=MemoryJournal(),
    )
    for profile in profiles:
        assert not profile.failures
        assert np.array_equal(profile.score, truth.measure(profile.configuration, inputs).score)
    assert kills >= 2
