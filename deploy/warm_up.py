"""A first run before requests come, so that what operators load on first use is there.

Free of share and emulated speed: loading a model at a tenth of the speed helps nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from deploy.segments import Segment
from deploy.workers.client import WorkerClient
from deploy.workers.execution import INPUT
from pipelines.errors import CircinusError
from pipelines.payload import Payload, encode

_log = logging.getLogger(__name__)


class WarmUp:
    """Runs a sample through every instance; keeps what each segment got, for restarts.

    A sample that fails is no reason not to serve: other inputs may do, so it is logged.
    """

    def __init__(
        self, segments: Sequence[Segment], sample: Payload | None, *, timeout_s: float
    ) -> None:
        self._segments = segments
        self._known = {} if sample is None else {INPUT: encode(sample)}
        self._timeout_s = timeout_s

    async def all(self, clients: Mapping[str, Sequence[WorkerClient]]) -> None:
        """Warm up all instances of a deployment, segment by segment.

        Args:
            clients: Tier -> its instances.
        """
        for segment in self._segments:
            for client in clients[segment.tier]:
                await self._run(segment, client)

    async def one(self, tier: str, client: WorkerClient) -> None:
        """Warm up an instance that joins later."""
        for segment in self._segments:
            if segment.tier == tier:
                await self._run(segment, client)

    async def _run(self, segment: Segment, client: WorkerClient) -> None:
        needs = (*segment.needs, *((INPUT,) if segment.takes_input else ()))
        if not self._known.keys() >= set(needs):
            return
        inputs = {name: self._known[name] for name in needs}
        try:
            reply = await client.run(
                segment.operators,
                inputs,
                segment.wants,
                timeout_s=self._timeout_s,
                warm_up=True,
            )
        except CircinusError as error:
            _log.warning("warm_up_failed operators=%s cause=%s", segment.operators, error)
        else:
            self._known.update(reply.outputs)
