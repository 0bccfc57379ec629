"""An Executor over Ray: operators run on any machine of a cluster. The one home of ray.

A Ray actor holds the loaded pipeline and times what it runs itself; requests and answers are those
of `deploy.profiling.processes`. Ray restarts nothing by itself here: a run whose actor died gets
another one, as in every `WorkerPool`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from circinus.deploy.profiling.pool import Died, ProfilingPoolSettings, WorkerPool, WorkerRun
from circinus.deploy.profiling.processes import Answering, read_answer, request
from circinus.pipelines.clock import Clock
from circinus.profiler.execution import Completed, FailedRun


class RayExecutor(WorkerPool):
    """Runs operators of one pipeline in Ray actors, see `WorkerPool`; each asks for one CPU.

    The caller has connected to a cluster (`ray.init`), on whose machines the pipeline that the
    reference names can be imported. Closing ends the actors, and leaves the cluster as it is.
    """

    def __init__(
        self, reference: str, clock: Clock, settings: ProfilingPoolSettings | None = None
    ) -> None:
        super().__init__(partial(_started, reference), clock, settings)


def connect(address: str | None) -> None:
    """Connect to the cluster of a head node, or `auto`; an earlier connection is kept.

    None: a cluster of this computer alone is started.
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
    """A `ProfilingWorker` in a cluster."""

    handle: ray.actor.ActorHandle

    def run(self, run: WorkerRun, timeout_s: float) -> Completed | FailedRun:
        data = request(run)
        try:
            return read_answer(ray.get(self.handle.answer.remote(data), timeout=timeout_s))
        except GetTimeoutError as error:
            raise Died(f"took longer than {timeout_s:g} s", in_time=False) from error
        except RayActorError as error:
            raise Died("the worker process died") from error

    def end(self) -> None:
        ray.kill(self.handle)


def _started(reference: str, settings: ProfilingPoolSettings) -> _Actor:
    remote = ray.remote(num_cpus=1, max_restarts=0)(Answering)
    handle = remote.remote(reference, settings.memory_bytes)
    try:
        ray.get(handle.ready.remote(), timeout=settings.start_timeout_s)
    except RayError as error:
        ray.kill(handle)
        late = isinstance(error, GetTimeoutError)
        raise Died(f"{reference}: {type(error).__name__}", in_time=not late) from error
    return _Actor(handle)
