"""Examples that requests name: made once, apart, and kept in files without a name.

Who asks for an example waits for no other set, and not for the rest of its own. A set that nobody
waits for is made on for a while, as whoever gave up may come again, but makes way for others.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from circinus.deploy.profiling.examples import ExampleSet, from_bytes, making
from circinus.pipelines import checks
from circinus.pipelines.dataset import Example
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable

_PLACES = 4  # processes
_LINE = 32  # sets that are made or wait for a place, beyond which nobody more is let wait
_IDLE_S = 10.0  # that a set is made on when nobody waits for it
_FULL_S = 2.0  # after which a client may ask again


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Made:
    """A set, as far as it is made."""

    file: int  # descriptor
    ends: list[int] = field(default_factory=lambda: [0])  # of the examples in the file
    hashes: set[str] = field(default_factory=set)  # of their inputs
    waiting: int = 0  # requests
    whole: bool = False
    error: CircinusError | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    task: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        return len(self.ends) - 1

    @property
    def goes_on(self) -> bool:
        return self.task is not None

    def read(self, index: int) -> Example:
        start, end = self.ends[index : index + 2]
        return from_bytes(os.pread(self.file, end - start, start))


class ExampleFiles:
    """An `ExampleSource` by processes and files. Used within one event loop.

    A set has at most so many bytes, and so have all that are kept, of which there are `most` then:
    each holds a descriptor, however small it is.
    """

    def __init__(self, folder: Path, limit_bytes: int, most: int = 64) -> None:
        self._folder, self._limit, self._most = folder, limit_bytes, most
        self._tasks: set[asyncio.Task[None]] = set()
        self._sets: OrderedDict[ExampleSet, _Made] = OrderedDict()  # the latest asked for last
        self._places = asyncio.Semaphore(_PLACES)

    async def example(self, wanted: ExampleSet, index: int, timeout_s: float) -> Example:
        """See `ExampleSource`."""
        made = await self._until(wanted, timeout_s, lambda made: made.count > index)
        rule = f"must be in [0, {made.count}): there are no more examples"
        checks.require(index < made.count, "example.index", rule, index)
        return await asyncio.to_thread(made.read, index)

    async def hashes(self, wanted: ExampleSet, timeout_s: float) -> Collection[str]:
        """See `ExampleSource`."""
        return (await self._until(wanted, timeout_s, lambda made: made.whole)).hashes

    async def count(self, wanted: ExampleSet, timeout_s: float) -> int:
        """See there."""
        return (await self._until(wanted, timeout_s, lambda made: made.whole)).count

    async def close(self) -> None:
        """End all processes."""
        self._sets.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _until(
        self, wanted: ExampleSet, timeout_s: float, enough: Callable[[_Made], bool]
    ) -> _Made:
        made = self._sets.get(wanted)
        if made is None or not (enough(made) or made.goes_on or made.whole or made.error):
            made = self._begun(wanted)
        self._sets.move_to_end(wanted)
        made.waiting += 1
        try:
            async with asyncio.timeout(timeout_s), made.changed:
                await made.changed.wait_for(lambda: enough(made) or not made.goes_on)
        except TimeoutError as error:
            reason = "the examples were not made in time: ask for fewer, or give it longer"
            raise Unavailable(reason, retry_after_s=_FULL_S) from error
        finally:
            made.waiting -= 1
            if made.goes_on and not made.waiting:
                asyncio.get_running_loop().call_later(_IDLE_S, self._leave, wanted)
        if enough(made) or made.whole:
            return made
        if made.error is None:
            raise Unavailable("others needed the place", retry_after_s=_FULL_S)
        if not isinstance(made.error, InvalidInput):
            self._forget(wanted, made)  # it may go better another time
        raise made.error

    def _begun(self, wanted: ExampleSet) -> _Made:
        going = [(key, made) for key, made in self._sets.items() if made.goes_on]
        if len(going) >= _PLACES:
            left = next((key for key, made in going if not made.waiting), None)
            if left is not None:
                self._leave(left)
            elif len(going) >= _LINE:
                reason = f"{len(going)} sets of examples are being made"
                raise Unavailable(reason, retry_after_s=_FULL_S)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            made = _Made(os.dup(file.fileno()))
        weakref.finalize(made, os.close, made.file)
        made.task = asyncio.create_task(self._make(wanted, made))
        self._tasks.add(made.task)
        made.task.add_done_callback(self._tasks.discard)
        self._sets[wanted] = made
        self._make_room()
        return made

    async def _make(self, wanted: ExampleSet, made: _Made) -> None:
        try:
            async with self._places, aclosing(making(wanted, made.file, self._limit)) as lines:
                async for length, name in lines:
                    made.ends.append(made.ends[-1] + length)
                    made.hashes.add(name)
                    await _tell(made)
                    self._make_room()
            made.whole = True
        except CircinusError as error:
            made.error = error
        except OSError as error:
            made.error = Unavailable(f"no process to make examples ({error})", retry_after_s=60.0)
        finally:
            made.task = None
            await _tell(made)

    def _make_room(self) -> None:
        held = sum(made.ends[-1] for made in self._sets.values())
        for wanted, made in list(self._sets.items()):
            too_much = held > self._limit or len(self._sets) > self._most
            if too_much and not made.goes_on and not made.waiting:
                self._forget(wanted, made)
                held -= made.ends[-1]

    def _leave(self, wanted: ExampleSet) -> None:
        """Make a set no further if nobody waits for it; what there is of it stays."""
        made = self._sets.get(wanted)
        if made is not None and made.task is not None and not made.waiting:
            made.task.cancel()
            made.task = None
            if made.count == 0:
                self._forget(wanted, made)

    def _forget(self, wanted: ExampleSet, made: _Made) -> None:
        if self._sets.get(wanted) is made:
            del self._sets[wanted]


async def _tell(made: _Made) -> None:
    async with made.changed:
        made.changed.notify_all()
