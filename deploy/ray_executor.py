"""An Executor over Ray: operators run on any machine of a cluster. The one home of ray.

A Ray actor holds the loaded pipeline and times what it runs itself; requests and answers are the
encoded payloads of `deploy.profiling_worker`. Ray restarts nothing by itself here: a run whose
actor died gets another one, as in every `WorkerPool`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from deploy.profiling_pool import Died, PoolSettings, Run, WorkerPool
from deploy.profiling_worker import Answering, read_answer, request
from pipelines.clock import Clock
from profiler.execution import Completed, Failed


class RayExecutor(WorkerPool):
    """Runs operators of one pipeline in Ray actors, see `WorkerPool`.

    The caller has connected to a cluster (`ray.init`), on whose machines the pipeline can be
    imported. Closing ends the actors, and leaves the cluster as it is.

    Args:
        reference: What names the pipeline, see `pipelines.registry.load_pipeline`.
        clock: Times what a dead actor had taken.
        settings: How; each actor asks the cluster for one CPU.
    """

    def __init__(self, reference: str, clock: Clock, settings: PoolSettings | None = None) -> None:
        settings = settings or PoolSettings()
        super().__init__(partial(_started, reference, settings), clock, settings)


def connect(address: str | None) -> None:
    """Connect to a cluster; an earlier connection is kept.

    Args:
        address: Of its head node, or `auto`; None: a cluster of this computer alone is started.
    """
    if not ray.is_initialized():
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )


@dataclass(slots=True)
class _Actor:
    """A `Worker` in a cluster."""

    handle: ray.actor.ActorHandle

    def run(self, run: Run, timeout_s: float) -> Completed | Failed:
        """See `Worker`."""
        # The actor itself knows which runs are its first.
        data = request(run.operator.name, run.inputs, run.configuration)
        try:
            return read_answer(ray.get(self.handle.answer.remote(data), timeout=timeout_s))
        except GetTimeoutError as error:
            raise Died(f"took longer than {timeout_s:g} s", in_time=False) from error
        except RayActorError as error:
            raise Died("the worker process died") from error

    def end(self) -> None:
        """See `Worker`."""
        ray.kill(self.handle)


def _started(reference: str, settings: PoolSettings) -> _Actor:
    remote = ray.remote(num_cpus=1, max_restarts=0)(Answering)
    handle = remote.remote(reference, settings.memory_bytes)
    try:
        ray.get(handle.ready.remote(), timeout=settings.start_timeout_s)
    except RayError as error:
        ray.kill(handle)
        late = isinstance(error, GetTimeoutError)
        raise Died(f"{reference}: {type(error).__name__}", in_time=not late) from error
    return _Actor(handle)
