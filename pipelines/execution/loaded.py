"""Models that operators hold between calls: the latest used ones, within a limit of memory.

An operator asks for a model at each call. Profiling goes from configuration to configuration, so
that several are in use by turns: what fits stays loaded. Seconds of loading are counted apart
from those of running, see `Loading`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from typing import TypeVar, cast

import psutil

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, SystemClock

Model = TypeVar("Model")

_PART = 0.5  # of this machine's memory, for models


@dataclass(slots=True)
class Loading:
    """Seconds of loading models, of the calls that it watches."""

    seconds: float = 0.0


_watching: ContextVar[Loading | None] = ContextVar("loading", default=None)


@contextmanager
def loading() -> Iterator[Loading]:
    """Count the seconds in which models are loaded inside, in this thread and its contexts."""
    counted = Loading()
    token = _watching.set(counted)
    try:
        yield counted
    finally:
        _watching.reset(token)


@dataclass(slots=True, kw_only=True)
class LoadedModels:
    """Models in memory. Threads may share it; a model is loaded once at a time."""

    limit_bytes: float  # most of all together, `> 0`; one that is larger alone is held alone
    clock: Clock = field(default_factory=SystemClock)  # times what loads
    _models: OrderedDict[Hashable, tuple[object, float]] = field(
        default_factory=OrderedDict, init=False, repr=False
    )  # the latest used last
    # Of one thread at a time, which may load a model while it loads another one.
    _turn: RLock = field(default_factory=RLock, init=False, repr=False)

    def __post_init__(self) -> None:
        checks.positive("limit_bytes", self.limit_bytes)

    def get(self, key: Hashable, size_bytes: float, load: Callable[[], Model]) -> Model:
        """Return the model of a key, loaded now unless it is held; it takes so much memory.

        Those that were not used for longest are dropped first, until it fits.
        """
        with self._turn:
            if key not in self._models:
                self._make_room(size_bytes)
                began = self.clock.now()
                try:
                    self._models[key] = load(), size_bytes
                finally:
                    if (counted := _watching.get()) is not None:
                        counted.seconds += self.clock.now() - began
            self._models.move_to_end(key)
            return cast("Model", self._models[key][0])

    @property
    def held(self) -> tuple[Hashable, ...]:
        """The keys of the models that are loaded, the latest used last."""
        return tuple(self._models)

    def _make_room(self, size_bytes: float) -> None:
        held = sum(size for _, size in self._models.values())
        while self._models and held + size_bytes > self.limit_bytes:
            _, (_, size) = self._models.popitem(last=False)
            held -= size


MODELS = LoadedModels(limit_bytes=_PART * psutil.virtual_memory().total)
"""Of this process."""
