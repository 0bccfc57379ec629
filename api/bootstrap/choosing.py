"""Chooses a pool in a process of its own: the compiled simulator would hold the event loop."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from circinus.api.schemas.pools import ChoosePoolBody, PoolChoiceView
from circinus.deploy.profiling.channel import Channel
from circinus.deploy.profiling.isolated import ChildFailed, answering
from circinus.deploy.profiling.warm import WarmStarter, run_copy
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable, Violation
from circinus.pipelines.model.payload import Payload

LIMIT_S = 60.0
_YIELDS = 10  # of nice: requests go first
_RETRY_AFTER_S = 1.0
_SIMULATOR = "circinus.api.use_cases.pools"  # takes seconds to load


@dataclass(slots=True, eq=False)
class PoolChooser:
    """Chooses pools, one after the other. Used within one event loop, which it never blocks.

    The process with the simulator is started by the first choice and stays: others copy it.
    """

    limit_s: float = LIMIT_S
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _starter: WarmStarter = field(init=False)
    _stays: ExitStack = field(default_factory=ExitStack, init=False)

    def __post_init__(self) -> None:
        self._starter = WarmStarter([__name__, _SIMULATOR])
        self._stays.enter_context(self._starter.used())

    async def choose(self, body: ChoosePoolBody) -> PoolChoiceView:
        """Return the answer; InvalidInput as `choose_pool`, or if it takes too long."""
        cancelled, request = Event(), {"body": body.model_dump_json()}
        async with self._turn:
            try:
                answer = await asyncio.to_thread(
                    run_copy, __name__, request, self.limit_s, cancelled.is_set, self._starter
                )
            except TimeoutError as error:
                rule = (
                    f"must be few enough to choose within {self.limit_s:g} s, with fewer types or "
                    "a smaller budget; the method bound simulates none"
                )
                raise InvalidInput.of("requests", rule, body.requests) from error
            except ChildFailed as error:
                cause = "choosing a pool ended without an answer"
                raise Unavailable(cause, retry_after_s=_RETRY_AFTER_S) from error
            finally:
                cancelled.set()
        return PoolChoiceView.model_validate_json(answer["choice"])


def serve(channel: Channel, request: dict[str, Any]) -> None:
    """Choose the pool of a request, see `warm`."""
    # here alone: the service does without the simulator
    from circinus.api.use_cases.pools import chosen_for

    def choose() -> dict[str, Payload]:
        try:
            choice = chosen_for(ChoosePoolBody.model_validate_json(request["body"]))
        except InvalidInput:
            raise
        except CircinusError as error:
            violation = Violation("pool", "must be possible to choose", str(error))
            raise InvalidInput([violation]) from error
        return {"choice": choice.model_dump_json()}

    os.nice(_YIELDS)
    answering(channel, choose)
