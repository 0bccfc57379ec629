"""A Ray cluster of this computer alone, for the tests that have `circinus[ray]`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from circinus.deploy.profiling.pool import ProfilingPoolSettings
from circinus.pipelines.clock import SystemClock

if TYPE_CHECKING:
    from circinus.deploy.profiling.ray import RayExecutor


@contextmanager
def local_ray(reference: str, timeout_s: float) -> Iterator[RayExecutor]:
    """Return an executor of one actor; the cluster ends with it."""
    import ray  # an extra: only where it is installed

    from circinus.deploy.profiling.ray import RayExecutor

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parents[2])}},
    )
    settings = ProfilingPoolSettings(workers=1, memory_bytes=None, timeout_s=timeout_s)
    try:
        with RayExecutor(reference, SystemClock(), settings) as executor:
            yield executor
    finally:
        ray.shutdown()
