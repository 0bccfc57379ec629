from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from pydantic import ValidationError

from circinus.api.bootstrap.execution import opened_executor
from circinus.api.settings import ExecutorChoice, ExecutorKind, Settings, executor_choice
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import Calibration, ClassSpeed, Tier
from circinus.profiler.execution import Completed
from tests.deploy.profiled_pipelines import EVERY, every


@pytest.mark.parametrize("text", ["", "process", "worker", "worker:", "pool:3", "in-process:x"])
def test_a_text_that_names_no_executor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="executor must be in-process, pool, worker:TIER"):
        executor_choice(text)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"workers": 0}, "executor.workers must be >= 1, got 0."),
        ({"timeout_s": 0.0}, "executor.timeout_s must be finite and > 0, got 0.0."),
        ({"memory_bytes": 0}, "executor.memory_bytes must be finite and > 0, got 0."),
    ],
)
def test_figures_out_of_range_are_refused(how: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        executor_choice("pool", **how)


def test_several_workers_in_the_process_that_plans_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"executor.workers must be 1 in-process, got 2."):
        executor_choice("in-process", workers=2)
    with pytest.raises(ValidationError, match="must be 1 in-process"):
        Settings(executor="in-process", executor_workers=2)
    assert Settings(executor="pool", executor_workers=2).executor_choice.workers == 2


@pytest.mark.parametrize(
    ("text", "kind", "detail"),
    [
        ("in-process", ExecutorKind.IN_PROCESS, ""),
        ("pool", ExecutorKind.POOL, ""),
        ("worker:edge", ExecutorKind.WORKER, "edge"),
        ("ray", ExecutorKind.RAY, ""),
        ("ray:10.0.0.1:6379", ExecutorKind.RAY, "10.0.0.1:6379"),
    ],
)
def test_a_text_names_a_kind_and_where(text: str, kind: ExecutorKind, detail: str) -> None:
    assert executor_choice(text) == ExecutorChoice(kind=kind, detail=detail)


def test_a_setting_that_names_no_executor_is_refused() -> None:
    with pytest.raises(ValidationError, match="executor must be"):
        Settings(executor="somewhere")


def test_a_tier_that_is_not_there_is_refused(tmp_path: Path) -> None:
    choice = executor_choice("worker:moon")
    with (
        pytest.raises(InvalidInput, match="tier must be among device, edge, cloud"),
        opened_executor(choice, EVERY, every, PRESETS["local"], tmp_path),
    ):
        pass


@pytest.mark.skipif(find_spec("ray") is not None, reason="circinus[ray] is installed")
def test_ray_that_is_not_installed_is_said_to_be_missing(tmp_path: Path) -> None:
    choice = executor_choice("ray")
    told = "executor must be available here (missing: ray (pip install 'circinus[ray]'))"
    with (
        pytest.raises(InvalidInput, match=re.escape(told)),
        opened_executor(choice, EVERY, every, PRESETS["local"], tmp_path),
    ):
        pass


@pytest.mark.parametrize("text", ["in-process", "pool", "worker:cloud"])
def test_what_is_chosen_runs_operators(text: str, tmp_path: Path) -> None:
    choice = executor_choice(text)
    with opened_executor(choice, EVERY, every, PRESETS["local"], tmp_path) as executor:
        done = executor.run(every.by_name["echo"], [1, 2], Configuration(()))
    assert isinstance(done, Completed)
    assert done.output == [1, 2]


def test_what_a_calibration_found_cold_is_not_in_the_seconds_of_a_warm_worker(
    tmp_path: Path,
) -> None:
    cold = ClassSpeed(factor=0.01, low=0.01, high=0.01, repetitions=1)
    found = Calibration(
        date="2026-11-21", share=1.0, tier_factor=1.0, speeds={"every.slower": cold}
    )
    seconds = {}
    for emulated in (False, True):
        tier = Tier(name="edge", emulated=emulated, calibration=found)
        infrastructure = Infrastructure(name="one", tiers=(tier,))
        choice = executor_choice("worker:edge")
        with opened_executor(choice, EVERY, every, infrastructure, tmp_path) as executor:
            done = executor.run(every.by_name["slower"], 1, Configuration(()))
        assert isinstance(done, Completed)
        seconds[emulated] = done.seconds
    assert seconds[True] >= 0.02  # it sleeps so long; on other machines it is a matter of speed
    assert seconds[False] < seconds[True]
