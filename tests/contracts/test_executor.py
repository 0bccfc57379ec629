"""What every `Executor` does, whatever it runs operators on.

Over Ray only where `circinus[ray]` is installed; a local cluster is started for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec

import numpy as np
import pytest

from circinus.deploy.profiling.pool import ProfilingPoolSettings
from circinus.deploy.profiling.processes import ProcessPool
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.operators import Operator
from circinus.profiler.execution import Completed, Executor, FailedRun, InProcess
from tests.deploy.profiled_pipelines import EVERY, every
from tests.deploy.ray_cluster import local_ray
from tests.deploy.serving import deployed

PLAIN = Configuration(())
KINDS = (
    "in_process",
    "process_pool",
    "grpc_worker",
    pytest.param(
        "ray",
        marks=[
            pytest.mark.skipif(find_spec("ray") is None, reason="circinus[ray] is not installed"),
            pytest.mark.filterwarnings("ignore:::ray.*", "ignore::ResourceWarning"),
        ],
    ),
)


@pytest.fixture(scope="module", params=KINDS)
def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Executor]:
    with ExitStack() as stack:
        if request.param == "ray":
            yield stack.enter_context(local_ray(EVERY, timeout_s=10.0))
            return
        if request.param == "grpc_worker":
            logs = tmp_path_factory.mktemp("logs")
            yield stack.enter_context(deployed(EVERY, every, logs, timeout_s=10.0))
        elif request.param == "in_process":
            yield InProcess(SystemClock())
        else:
            settings = ProfilingPoolSettings(workers=1, memory_bytes=None)
            yield stack.enter_context(ProcessPool(EVERY, SystemClock(), settings))


def operator(name: str) -> Operator:
    return every.by_name[name]


def test_it_serves_at_least_one_run_at_once(executor: Executor) -> None:
    assert executor.width >= 1


@pytest.mark.parametrize(
    ("name", "cause"),
    [("raise", "KeyError: 'x'"), ("no_payload", "payload must be None, truth value")],
)
def test_what_goes_wrong_in_an_operator_is_a_failure_with_its_cause(
    executor: Executor, name: str, cause: str
) -> None:
    done = executor.run(operator(name), 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert cause in done.cause
    assert done.spent_s >= 0


def test_an_operator_that_writes_into_its_input_never_changes_it(executor: Executor) -> None:
    given = np.arange(3)
    executor.run(operator("write"), given, PLAIN)
    assert given.tolist() == [0, 1, 2]


def test_it_goes_on_after_a_failure(executor: Executor) -> None:
    executor.run(operator("raise"), 1, PLAIN)
    done = executor.run(operator("echo"), "still there", PLAIN)
    assert isinstance(done, Completed)
    assert done.output == "still there"


def test_an_operator_gets_its_knobs(executor: Executor) -> None:
    configuration = Configuration((("echo", "by", 5), ("add", "by", 2)))
    done = executor.run(operator("add"), 1, configuration)
    assert isinstance(done, Completed)
    assert done.output == 3.0


@pytest.mark.parametrize(
    "payload", [None, True, 7, 0.1, "\u00e9", b"\0", [1, [2.5]], {"$a": {"b": None}}]
)
def test_payloads_come_back_as_they_were(executor: Executor, payload: object) -> None:
    done = executor.run(operator("echo"), payload, PLAIN)  # type: ignore[arg-type]  # any payload
    assert isinstance(done, Completed)
    assert done.output == payload
    assert type(done.output) is type(payload)


def test_arrays_come_back_read_only_with_their_size(executor: Executor) -> None:
    done = executor.run(operator("echo"), np.eye(3, dtype=np.float32), PLAIN)
    assert isinstance(done, Completed)
    assert isinstance(done.output, np.ndarray)
    assert np.array_equal(done.output, np.eye(3))
    assert done.output.dtype == np.float32
    assert not done.output.flags.writeable
    assert done.output_bytes == 36


def test_seconds_are_those_of_one_call_and_a_first_call_pays_its_warm_up(
    executor: Executor,
) -> None:
    first = executor.run(operator("slow"), 1, PLAIN)
    second = executor.run(operator("slow"), 1, PLAIN)
    assert isinstance(first, Completed)
    assert isinstance(second, Completed)
    assert 0.002 <= first.seconds < 2
    assert first.spent_s >= first.seconds + 0.002
    assert second.spent_s == second.seconds >= 0.002
