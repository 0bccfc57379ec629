"""An Executor over Ray: operators run on any machine of a cluster. The one home of ray.

A Ray actor holds the loaded pipeline and times what it runs itself; requests and answers are the
encoded payloads of `deploy.profiling_worker`. Ray restarts nothing by itself here: a run whose
actor died gets another one, as in `ProcessPool`.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass, field, replace
from types import TracebackType

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from deploy.profiling_pool import PoolSettings
from deploy.profiling_worker import Answering, read_answer, request
from pipelines.clock import Clock
from pipelines.configuration import Configuration
from pipelines.errors import InvalidInput, Unavailable
from pipelines.operators import KnobValue, Operator
from pipelines.payload import Payload
from profiler.execution import Completed, Failed
from profiler.read_only import freeze

_RUNS = 3
_RETRY_AFTER_S = 60.0


@dataclass(slots=True)
class _Actor:
    handle: ray.actor.ActorHandle
    warm: set[tuple[str, tuple[tuple[str, KnobValue], ...]]] = field(default_factory=set)


class RayExecutor:
    """Runs operators of one pipeline in Ray actors, see `Executor`.

    The caller has connected to a cluster (`ray.init`), on whose machines the pipeline can be
    imported. As many threads as there are workers may call `run` at once. A context manager: it
    ends its actors, and leaves the cluster as it is.

    Args:
        reference: What names the pipeline, see `pipelines.registry.load_pipeline`.
        clock: Times what a dead actor had taken.
        settings: How; each actor asks the cluster for one CPU.
    """

    def __init__(self, reference: str, clock: Clock, settings: PoolSettings | None = None) -> None:
        self._reference = reference
        self._clock = clock
        self._settings = settings or PoolSettings()
        self._idle: queue.Queue[_Actor | None] = queue.Queue()
        for _ in range(self._settings.workers):
            self._idle.put(None)
        self.deaths: list[str] = []
        """Causes of the actors that died or were killed, oldest first."""

    def __enter__(self) -> RayExecutor:
        """Give itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all actors."""
        self.close()

    @property
    def width(self) -> int:
        """Number of actors."""
        return self._settings.workers

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | Failed:
        """Give what the operator makes of the inputs, see `Executor`.

        Raises:
            Unavailable: If the cluster starts no actor, or the pipeline cannot be loaded there.
        """
        try:
            data = request(operator.name, inputs, configuration)
        except InvalidInput as error:
            return Failed(cause=str(error), spent_s=0.0)
        key = (operator.name, tuple(configuration.of(operator.name).items()))
        actor = self._idle.get()
        spent_s, cause = 0.0, ""
        try:
            for _ in range(_RUNS):
                actor = actor or self._started()
                start_s = self._clock.now()
                try:
                    done = self._once(actor, data, key)
                    return replace(done, spent_s=done.spent_s + spent_s)
                except (GetTimeoutError, RayActorError) as error:
                    spent_s += self._clock.now() - start_s
                    in_time = not isinstance(error, GetTimeoutError)
                    cause = "the worker process died" if in_time else self._too_long(actor, key)
                    self.deaths.append(f"{operator.name}: {cause}")
                    ray.kill(actor.handle)
                    actor = None
                    if not in_time:
                        break
            return Failed(cause=cause, spent_s=spent_s)
        finally:
            self._idle.put(actor)

    def close(self) -> None:
        """End all actors; runs that are under way end first."""
        for _ in range(self._settings.workers):
            actor = self._idle.get()
            if actor is not None:
                ray.kill(actor.handle)
        for _ in range(self._settings.workers):
            self._idle.put(None)

    def _once(
        self, actor: _Actor, data: bytes, key: tuple[str, tuple[tuple[str, KnobValue], ...]]
    ) -> Completed | Failed:
        answer = ray.get(actor.handle.answer.remote(data), timeout=self._patience_s(actor, key))
        done = read_answer(answer)
        if isinstance(done, Completed):
            actor.warm.add(key)
            freeze(done.output)
        return done

    def _patience_s(
        self, actor: _Actor, key: tuple[str, tuple[tuple[str, KnobValue], ...]]
    ) -> float:
        return (1 if key in actor.warm else 2) * self._settings.timeout_s

    def _too_long(self, actor: _Actor, key: tuple[str, tuple[tuple[str, KnobValue], ...]]) -> str:
        return f"took longer than {self._patience_s(actor, key):g} s"

    def _started(self) -> _Actor:
        remote = ray.remote(num_cpus=1, max_restarts=0)(Answering)
        handle = remote.remote(self._reference, self._settings.memory_bytes)
        try:
            ray.get(handle.ready.remote(), timeout=self._settings.start_timeout_s)
        except RayError as error:
            ray.kill(handle)
            self.deaths.append(f"start: {type(error).__name__}")
            message = f"no actor could load the pipeline {self._reference}: {error}"
            raise Unavailable(message, retry_after_s=_RETRY_AFTER_S) from error
        return _Actor(handle)
