"""Chooses a pool in a process of its own: the compiled simulator would hold the event loop.

The body that was asked goes there in a file in memory, the answer comes as JSON. One at a time;
what takes too long is ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL
from dataclasses import dataclass, field
from typing import Any

from circinus.api.schemas.pools import ChoosePoolBody, PoolChoiceView
from circinus.deploy.profiling.fresh_process import running
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable, Violation

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
        async with self._turn:
            try:
                async with asyncio.timeout(self.limit_s):
                    told = _read(await _asked(body.model_dump_json().encode()))
            except TimeoutError as error:
                rule = (
                    f"must be few enough to choose within {self.limit_s:g} s, with fewer types or "
                    "a smaller budget; the method bound simulates none"
                )
                raise InvalidInput.of("requests", rule, body.requests) from error
        if "violations" in told:
            raise InvalidInput([Violation(*violation) for violation in told["violations"]])
        return PoolChoiceView.model_validate(told)


async def _asked(body: bytes) -> bytes:
    file = os.memfd_create("pool")
    try:
        os.write(file, body)
        os.lseek(file, 0, os.SEEK_SET)
        async with running(__name__, file=file, stderr=DEVNULL) as process:
            told = b"" if process.stdout is None else await process.stdout.read()
    finally:
        os.close(file)
    return told


def _read(answer: bytes) -> dict[str, Any]:
    """Return an answer; Unavailable if it is none, or was cut off."""
    try:
        told = json.loads(answer)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        cause = "choosing a pool ended without an answer"
        raise Unavailable(cause, retry_after_s=_RETRY_AFTER_S)
    return told


def _main(descriptor: str) -> None:
    # here alone: the service does without the simulator
    from circinus.api.use_cases.pools import chosen_for

    os.nice(_YIELDS)
    with os.fdopen(int(descriptor), "rb") as file:
        body = ChoosePoolBody.model_validate_json(file.read())
    try:
        told = chosen_for(body).model_dump_json()
    except InvalidInput as error:
        told = json.dumps({"violations": [[f.field, f.rule, f.value] for f in error.violations]})
    except CircinusError as error:
        told = json.dumps({"violations": [["pool", "must be possible to choose", str(error)]]})
    sys.stdout.write(told)
    sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
