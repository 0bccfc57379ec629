"""Chooses a pool in a process of its own: the compiled simulator would hold the event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from circinus.api.schemas.pools import ChoosePoolBody, PoolChoiceView
from circinus.deploy.profiling.channel import Channel
from circinus.deploy.profiling.isolated import ChildFailed, run_isolated
from circinus.deploy.profiling.warm import STARTER
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable, Violation
from circinus.pipelines.model.payload import Payload, encode

LIMIT_S = 60.0
_YIELDS = 10  # of nice: requests go first
_RETRY_AFTER_S = 1.0


@dataclass(slots=True, eq=False)
class PoolChooser:
    """Chooses pools, one after the other. Used within one event loop, which it never blocks."""

    limit_s: float = LIMIT_S
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def choose(self, body: ChoosePoolBody) -> PoolChoiceView:
        """Return the answer; InvalidInput as `choose_pool`, or if it takes too long."""
        cancelled = Event()
        async with self._turn:
            try:
                answer = await asyncio.to_thread(_chosen, body, self.limit_s, cancelled.is_set)
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
        if "violations" in answer:
            raise InvalidInput([Violation(*violation) for violation in answer["violations"]])
        return PoolChoiceView.model_validate_json(answer["choice"])


def _chosen(body: ChoosePoolBody, limit_s: float, cancelled: Callable[[], bool]) -> dict[str, Any]:
    with STARTER.used():
        request = {"body": body.model_dump_json()}
        child = STARTER.start(__name__, request, output=subprocess.DEVNULL)
        return run_isolated(child, limit_s, cancelled)


def serve(channel: Channel, request: dict[str, Any]) -> None:
    """Choose the pool of a request, see `warm`."""
    # here alone: the service does without the simulator
    from circinus.api.use_cases.pools import chosen_for

    os.nice(_YIELDS)
    answer: dict[str, Payload]
    try:
        choice = chosen_for(ChoosePoolBody.model_validate_json(request["body"]))
        answer = {"choice": choice.model_dump_json()}
    except InvalidInput as error:
        answer = {"violations": [[f.field, f.rule, f.value] for f in error.violations]}
    except CircinusError as error:
        answer = {"violations": [["pool", "must be possible to choose", str(error)]]}
    channel.send(encode(answer))
