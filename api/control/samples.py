"""Inputs to warm deployments up with: by pipelines' own code, in time or not at all.

A sample is a convenience: without one a deployment's first request waits for what operators load.
So a pipeline that has none, fails to make one, or hangs over it is deployed like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Thread

from circinus.api.event_log import trouble
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.model.payload import Payload

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Samples:
    """Asks each pipeline once, in a thread of its own that nobody waits for at the end."""

    make: Callable[[str], Payload]  # of a pipeline, by name; raises if it has none
    patience_s: float = 5.0  # with a pipeline; later ones find what it made after all
    _made: dict[str, Future[Payload]] = field(default_factory=dict, init=False)

    async def of(self, pipelines: Iterable[str]) -> Mapping[str, Payload]:
        """Return the samples that there are."""
        asked = {name: self._asked(name) for name in pipelines}
        if asked:
            waited = [asyncio.wrap_future(made) for made in asked.values()]
            await asyncio.wait(waited, timeout=self.patience_s)
        return {name: made.result() for name, made in asked.items() if made.done()}

    def _asked(self, pipeline: str) -> Future[Payload]:
        if pipeline not in self._made:
            future = self._made[pipeline] = Future()
            ask = partial(self._ask, pipeline, future)
            Thread(target=ask, name=f"sample of {pipeline}", daemon=True).start()
        return self._made[pipeline]

    def _ask(self, pipeline: str, future: Future[Payload]) -> None:
        sample = None
        try:
            sample = self.make(pipeline)
        except CircinusError:
            pass  # it has none, or is not offered: whoever deploys it says so
        except Exception as error:  # noqa: BLE001 - the pipeline author's code
            trouble(_LOG, "sample.failed", pipeline=pipeline, error=error)
        future.set_result(sample)
