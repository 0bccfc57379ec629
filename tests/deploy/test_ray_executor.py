"""What Ray adds to `tests/contracts/test_executor.py`: actors that hang, die or cannot start."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.model.configuration import Configuration
from circinus.profiler.execution import Completed, FailedRun
from tests.deploy.profiled_pipelines import CANNOT_LOAD, EVERY, every
from tests.deploy.ray_cluster import local_ray

if TYPE_CHECKING:
    from circinus.deploy.profiling.ray import RayExecutor

PLAIN = Configuration(())
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="circinus[ray] is not installed"),
    pytest.mark.filterwarnings("ignore:::ray.*", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    with local_ray(EVERY, timeout_s=1.0) as opened:
        yield opened


def test_a_pipeline_that_cannot_be_loaded_is_said_to_be_unavailable(
    executor: RayExecutor,
) -> None:
    broken = type(executor)(CANNOT_LOAD, SystemClock())
    with pytest.raises(Unavailable, match="no worker could load the pipeline"):
        broken.run(every.by_name["echo"], 1, PLAIN)


def test_an_operator_that_never_ends_is_ended(executor: RayExecutor) -> None:
    done = executor.run(every.by_name["hang"], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert done.cause == "took longer than 1 s"


def test_an_operator_that_takes_its_actor_down_costs_that_measurement(
    executor: RayExecutor,
) -> None:
    done = executor.run(every.by_name["die"], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert done.cause == "the worker process died"
    assert executor.deaths[-3:] == ["die: the worker process died"] * 3
    assert isinstance(executor.run(every.by_name["echo"], 1, PLAIN), Completed)
