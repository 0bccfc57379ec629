"""Makes examples in a process of its own, one by one into a file.

They are a pipeline author's code: it may be slow, large or hang, and whoever answers requests must
not. The process keeps to the limits on memory and file that it is told, yields to whatever else
runs, and ends with who started it.

    arguments   what is wanted, as JSON, and the descriptor of the file
    output      a line for each example once it is in the file: `LENGTH HASH`, the hash that of its
                input; then `.`, or a JSON object of what went wrong
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from circinus.deploy.profiling.fresh_process import running
from circinus.deploy.workers.process import limit_memory
from circinus.pipelines import checks
from circinus.pipelines.dataset import Example
from circinus.pipelines.dataset_files import opened
from circinus.pipelines.errors import (
    CircinusError,
    Fault,
    InvalidInput,
    OperatorFailed,
    words_of,
)
from circinus.pipelines.forks import copies_ended
from circinus.pipelines.payload import Payload, content_hash, decode, encode
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.registry import load_pipeline

_YIELDS = 10
_END = "."
_LONGEST_LINE = 2**22
_BESIDE_BYTES = 256 * 2**20  # of memory, beyond what one set may have


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSet:
    """Which examples: those that a pipeline makes, or a data set unpacked in a folder."""

    reference: str = ""  # names the pipeline, see `load_pipeline`; empty: it is a data set
    count: int = 0
    seed: int = 0
    kind: str = ""  # of the data set, see `pipelines.dataset_files`
    folder: str = ""
    inputs_only: bool = False  # whether hashes of the inputs are wanted, and nothing else

    def examples(self, pipeline: Callable[[str], Pipeline]) -> Iterable[Example]:
        """Return them, made one by one where the pipeline can; InvalidInput if there are none."""
        if not self.reference:
            return opened(self.kind, Path(self.folder)).examples
        making = pipeline(self.reference)
        if making.examples is None:
            rule = "must bring examples: hand over data of your own, and name its data set"
            raise InvalidInput.of("pipeline", rule, making.name)
        one_by_one = getattr(making.examples, "one_by_one", None)
        if one_by_one is not None:
            made: Iterable[Example] = one_by_one(self.count, self.seed)
            return made
        return making.examples(self.count, self.seed).examples


def to_bytes(example: Example) -> bytes:
    """Return an example as the file has it; InvalidInput if it is no payload."""
    return encode([example.input, example.expected])


def from_bytes(data: bytes) -> Example:
    """Return the example again."""
    both = decode(data)
    if not isinstance(both, list):
        raise InvalidInput.of("example", "must be an input and what is expected", both)
    return Example(input=both[0], expected=both[1])


async def making(
    wanted: ExampleSet, file: int, limit_bytes: int
) -> AsyncGenerator[tuple[int, str], None]:
    """Yield length and hash of each example once it is in a file, given by its descriptor.

    Whoever leaves early closes the iterator, which ends the process. InvalidInput as the pipeline
    says, or if they have more bytes than allowed; OperatorFailed if making them fails.
    """
    told = json.dumps({**asdict(wanted), "limit_bytes": limit_bytes})
    async with running(__name__, told, file=file, longest_line=_LONGEST_LINE) as process:
        async for length, name in _told(process):
            yield length, name


async def _told(process: Process) -> AsyncIterator[tuple[int, str]]:
    while process.stdout is not None:
        line = (await process.stdout.readline()).decode().strip()
        if line == _END:
            return
        if not line:
            code = await process.wait()
            raise OperatorFailed("examples", f"making them ended with exit code {code}")
        if line.startswith("{"):
            wrong = json.loads(line)
            if faults := wrong["faults"]:
                raise InvalidInput([Fault(*fault) for fault in faults])
            raise OperatorFailed("examples", wrong["cause"])
        try:
            length, name = line.split()
            yield int(length), name
        except ValueError as error:
            cause = f"making them wrote {line[:80]!r} in place of an example"
            raise OperatorFailed("examples", cause) from error


def _make(asked: dict[str, object], file: int, tell: Callable[[str], None]) -> None:
    limit = int(str(asked.pop("limit_bytes")))
    wanted = ExampleSet(**asked)  # type: ignore[arg-type]  # as `making` wrote it
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
            tell(f"{len(data)} {content_hash(example.input)}")
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


def _main(told: str, descriptor: str) -> None:
    output = os.dup(1)
    os.dup2(2, 1)  # what pipelines print goes with the log
    os.nice(_YIELDS)

    def tell(line: str) -> None:
        _write(output, f"{line}\n".encode())

    wrong: dict[str, Payload] | None = None
    try:
        _make(json.loads(told), int(descriptor), tell)
    except InvalidInput as error:
        wrong = {"faults": [[f.field, f.rule, f.value] for f in error.faults]}
    except CircinusError as error:
        wrong = {"faults": [], "cause": str(error)}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's code: a border
        wrong = {"faults": [], "cause": words_of(error)}
    with contextlib.suppress(BrokenPipeError):
        tell(_END if wrong is None else json.dumps(wrong))


if __name__ == "__main__":
    _main(*sys.argv[1:])
