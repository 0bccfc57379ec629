"""An Executor over Ray: operators run on any machine of a cluster. The one home of ray.

A Ray actor holds the loaded pipeline and times what it runs itself; requests and answers are those
of `deploy.profiling.processes`. Ray restarts nothing by itself here: a run whose actor died gets
another one, as in every `WorkerPool`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from circinus.deploy.profiling.pool import Died, WorkerPool, WorkerRun
from circinus.deploy.profiling.processes import Answering, read_answer, request
from circinus.deploy.workers.process import without_secrets
from circinus.profiler.execution import Completed, FailedRun


class RayExecutor(WorkerPool):
    """Runs operators of one pipeline in Ray actors, see `WorkerPool`; each asks for one CPU.

    The caller has connected to a cluster (`ray.init`), on whose machines the pipeline that the
    reference names can be imported. Closing ends the actors, and leaves the cluster as it is.
    """

    def start(self) -> _Actor:
        """See `WorkerPool`."""
        remote = ray.remote(num_cpus=1, max_restarts=0)(Answering)
        handle = remote.remote(self._reference, self._settings.memory_bytes)
        try:
            ray.get(handle.ready.remote(), timeout=self._settings.start_timeout_s)
        except RayError as error:
            ray.kill(handle)
            late = isinstance(error, GetTimeoutError)
            cause = f"{self._reference}: {type(error).__name__}"
            raise Died(cause, in_time=not late) from error
        return _Actor(handle)


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Be connected to a head node or `auto`, or to what this process is connected to already.

    None: to a new local cluster, which ends with the context. Where its starter just vanishes,
    some of its programs stay.
    """
    known = ray.is_initialized()
    if not known:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        with without_secrets():  # the programs of a local cluster inherit what is there
            ray.init(address=address, **quiet)
    try:
        yield
    finally:
        if not known:
            ray.shutdown()


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
