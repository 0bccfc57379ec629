"""Examples that requests name: made once, in a process of their own, into files without a name.

Making them runs a pipeline author's code, which may be slow, large or hang. A reader of an example
waits for no other set, and not for the rest of its own. A set without readers is made on for
a while, as a client that gave up may return, but makes way for others.

    request   the fields of an `ExampleSet`, `limit_bytes`, and the descriptor of the `file`
    answers   {example: [length, hash of its input]} once one is in the file; then {whole: true},
              {cause}, or {violations}, see `deploy.profiling.isolated`
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from circinus.deploy.profiling.isolated import (
    ChildFailed,
    answering,
    first_request,
    start_program,
)
from circinus.deploy.workers.process import limit_memory, worker_environment
from circinus.pipelines import checks
from circinus.pipelines.errors import (
    CircinusError,
    InvalidInput,
    OperatorFailed,
    Unavailable,
    words_of,
)
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Example, open_dataset
from circinus.pipelines.model.payload import Payload, content_hash, decode, encode
from circinus.pipelines.registry import load_pipeline
from circinus.pipelines.user_code import copies_ended

_PLACES = 4  # processes
_LINE = 32  # sets that are made or wait for a place, beyond which no more may wait
_IDLE_S = 10.0  # that a set is made on without a reader
_FULL_S = 2.0  # after which a client may ask again
_YIELDS = 10
_BESIDE_BYTES = 256 * 2**20  # of memory, beyond what one set may have


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSet:
    """Which examples: those that a pipeline makes, or a data set unpacked in a folder."""

    reference: str = ""  # names the pipeline, see `load_pipeline`; empty: it is a data set
    count: int = 0
    seed: int = 0
    kind: str = ""  # of the data set, see `pipelines.io.datasets`
    folder: str = ""
    inputs_only: bool = False  # whether hashes of the inputs are wanted, and nothing else

    def examples(self, pipeline: Callable[[str], Pipeline]) -> Iterable[Example]:
        """Return them, made one by one where the pipeline can; InvalidInput if there are none."""
        if not self.reference:
            return open_dataset(self.kind, Path(self.folder)).examples
        making = pipeline(self.reference)
        if making.examples is None:
            rule = "must bring examples: hand over data of your own, and name its data set"
            raise InvalidInput.of("pipeline", rule, making.name)
        one_by_one = getattr(making.examples, "one_by_one", None)
        if one_by_one is not None:
            made: Iterable[Example] = one_by_one(self.count, self.seed)
            return made
        return making.examples(self.count, self.seed).examples


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Made:
    """A set, as far as it is made."""

    file: int  # descriptor
    ends: list[int] = field(default_factory=lambda: [0])  # of the examples in the file
    hashes: set[str] = field(default_factory=set)  # of their inputs
    waiting: int = 0  # requests
    whole: bool = False
    error: CircinusError | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # set at its next change
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

    def notify(self) -> None:
        """Wake all that wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class ExampleFiles:
    """An `ExampleSource` by processes and files. Used within one event loop.

    A set has at most so many bytes, and so have all stored sets, of which there are `most` then:
    each holds a descriptor, however small it is.
    """

    def __init__(self, folder: Path, limit_bytes: int, most: int = 64) -> None:
        self._folder, self._limit, self._most = folder, limit_bytes, most
        self._tasks: set[asyncio.Task[None]] = set()
        self._sets: OrderedDict[ExampleSet, _Made] = OrderedDict()  # the most recently used last
        # Each waits for one process, which ends with it.
        self._places = ThreadPoolExecutor(_PLACES, "examples")

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
        await asyncio.to_thread(self._places.shutdown)

    async def _until(
        self, wanted: ExampleSet, timeout_s: float, enough: Callable[[_Made], bool]
    ) -> _Made:
        made = self._sets.get(wanted)
        if made is None or not (enough(made) or made.goes_on or made.whole or made.error):
            made = self._begun(wanted)
        self._sets.move_to_end(wanted)
        made.waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                while made.goes_on and not enough(made):
                    await made.changed.wait()
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
        over, loop = Event(), asyncio.get_running_loop()

        def record(length: int, name: str) -> None:
            loop.call_soon_threadsafe(self._record, made, length, name)

        try:
            await loop.run_in_executor(
                self._places, _made_apart, wanted, made.file, self._limit, record, over.is_set
            )
            made.whole = True
        except CircinusError as error:
            made.error = error
        except OSError as error:
            made.error = Unavailable(f"no process to make examples ({error})", retry_after_s=60.0)
        finally:
            over.set()
            made.task = None
            made.notify()

    def _record(self, made: _Made, length: int, name: str) -> None:
        made.ends.append(made.ends[-1] + length)
        made.hashes.add(name)
        made.notify()
        self._make_room()

    def _make_room(self) -> None:
        held = sum(made.ends[-1] for made in self._sets.values())
        for wanted, made in list(self._sets.items()):
            too_much = held > self._limit or len(self._sets) > self._most
            if too_much and not made.goes_on and not made.waiting:
                self._forget(wanted, made)
                held -= made.ends[-1]

    def _leave(self, wanted: ExampleSet) -> None:
        """Make a set no further if no reader waits for it; what there is of it stays."""
        made = self._sets.get(wanted)
        if made is not None and made.task is not None and not made.waiting:
            made.task.cancel()
            made.task = None
            if made.count == 0:
                self._forget(wanted, made)

    def _forget(self, wanted: ExampleSet, made: _Made) -> None:
        if self._sets.get(wanted) is made:
            del self._sets[wanted]


def to_bytes(example: Example) -> bytes:
    """Return an example as the file has it; InvalidInput if it is no payload."""
    return encode([example.input, example.expected])


def from_bytes(data: bytes) -> Example:
    """Return the example again."""
    both = decode(data)
    if not isinstance(both, list):
        raise InvalidInput.of("example", "must be an input and what is expected", both)
    return Example(input=both[0], expected=both[1])


def _made_apart(
    wanted: ExampleSet,
    file: int,
    limit_bytes: int,
    record: Callable[[int, str], None],
    cancelled: Callable[[], bool],
) -> None:
    """Make a set into a file, given by its descriptor; record length and hash of each example.

    InvalidInput as the pipeline does, or if they have more bytes than allowed; OperatorFailed if
    making them fails; Stopped once `cancelled` is true.
    """
    request = {**asdict(wanted), "limit_bytes": limit_bytes, "file": file}
    try:
        with start_program(__name__, request, worker_environment(), [file]) as child:
            while "example" in (answer := child.answer(cancelled=cancelled)):
                length, name = answer["example"]
                record(length, name)
    except ChildFailed as error:
        raise OperatorFailed("examples", f"making them failed: {error}") from error
    if "whole" not in answer:
        raise OperatorFailed("examples", str(answer.get("cause")))


def _make(request: dict[str, Any], record: Callable[[int, str], None]) -> None:
    limit, file = int(request.pop("limit_bytes")), int(request.pop("file"))
    wanted = ExampleSet(**request)
    written, rule = 0, f"must make at most {limit} bytes (CIRCINUS_EXAMPLES_LIMIT_BYTES)"

    def pipeline(reference: str) -> Pipeline:
        loaded = load_pipeline(reference, allow_import=True)
        limit_memory(limit + _BESIDE_BYTES)
        return loaded

    try:
        for example in _one_by_one(wanted.examples(pipeline)):
            data = b"" if wanted.inputs_only else to_bytes(example)
            written += len(data)
            checks.require(written <= limit, "example.count", rule, wanted.count)
            _write(file, data)
            record(len(data), content_hash(example.input))
    except MemoryError as error:
        raise InvalidInput.of("example.count", rule, wanted.count) from error


def _one_by_one(examples: Iterable[Example]) -> Iterator[Example]:
    left = iter(examples)
    while True:
        with copies_ended():
            example = next(left, None)
        if example is None:
            return
        yield example


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _main(descriptor: str) -> None:
    channel, request = first_request(descriptor)
    os.dup2(2, 1)  # what pipelines print goes with the log
    os.nice(_YIELDS)

    def record(length: int, name: str) -> None:
        channel.send(encode({"example": [length, name]}))

    def make() -> dict[str, Payload]:
        try:
            _make(request, record)
        except InvalidInput:
            raise
        except CircinusError as error:
            return {"cause": str(error)}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's code: a border
            return {"cause": words_of(error)}
        return {"whole": True}

    with suppress(OSError):  # the caller is gone
        answering(channel, make)


if __name__ == "__main__":
    _main(*sys.argv[1:])
