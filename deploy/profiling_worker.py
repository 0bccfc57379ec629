"""A process that runs operators for a profiler, until its pipe is closed.

It has one numeric thread and a limit on memory, and times what it runs itself, so that waiting
for it is not counted. Requests and answers are encoded payloads: nothing is unpickled.

    request   {operator, settings of the operator, inputs}
    answer    {output, output_bytes, seconds, spent_s} or {cause, spent_s}
"""

from __future__ import annotations

import contextlib
import os
import sys
from multiprocessing.connection import Connection

from threadpoolctl import threadpool_limits

from deploy.memory import limit_memory
from pipelines.clock import SystemClock
from pipelines.configuration import Configuration
from pipelines.operators import KnobValue
from pipelines.payload import Payload, decode, encode
from pipelines.pipeline import Pipeline
from pipelines.registry import load_pipeline
from profiler.execution import Completed, Failed, InProcess

READY = b"ready"
OUT_OF_MEMORY = 12
"""Exit code of a worker whose limit on memory has no room for a request."""


def serve(pipe: Connection, reference: str, memory_bytes: int | None) -> None:
    """Answer requests until the other end closes the pipe.

    Args:
        pipe: Carries requests and answers.
        reference: What names the pipeline, see `load_pipeline`.
        memory_bytes: Most memory beyond what it has once the pipeline is loaded; None: any.
    """
    os.setpgid(0, 0)  # programs that operators call end with this process: see `_Process.end`
    answering = Answering(reference, memory_bytes)
    with contextlib.suppress(EOFError, OSError):  # the profiler is gone: nobody to answer
        pipe.send_bytes(READY)
        try:
            while True:
                pipe.send_bytes(answering.answer(pipe.recv_bytes()))
        except MemoryError:  # half of a message may be in the pipe: a new worker starts afresh
            sys.exit(OUT_OF_MEMORY)


class Answering:
    """A loaded pipeline that answers requests, with one numeric thread.

    Args:
        reference: What names the pipeline, see `load_pipeline`.
        memory_bytes: Most memory of this process beyond what it has once the pipeline is loaded;
            None: any.
    """

    def __init__(self, reference: str, memory_bytes: int | None) -> None:
        self._pipeline = load_pipeline(reference, allow_import=True)
        if self._pipeline.prepare is not None:
            self._pipeline.prepare()
        _one_thread()
        if memory_bytes is not None:
            limit_memory(memory_bytes)
        self._executor = InProcess(SystemClock())

    def ready(self) -> bool:
        """Give True: it is loaded."""
        return True

    def answer(self, data: bytes) -> bytes:
        """Give the answer to a request."""
        return encode(_answer(self._pipeline, self._executor, data))


def request(operator: str, inputs: Payload, configuration: Configuration) -> bytes:
    """Give the request for one run.

    Raises:
        InvalidInput: If the inputs are no payload.
    """
    settings: dict[str, Payload] = dict(configuration.of(operator))
    return encode({"operator": operator, "settings": settings, "inputs": inputs})


def read_answer(data: bytes) -> Completed | Failed:
    """Give what a worker answered.

    Raises:
        InvalidInput: If that is no answer.
    """
    answer = _mapping(decode(data))
    spent_s = _number(answer["spent_s"])
    if "cause" in answer:
        return Failed(cause=str(answer["cause"]), spent_s=spent_s)
    return Completed(
        output=answer["output"],
        output_bytes=int(_number(answer["output_bytes"])),
        seconds=_number(answer["seconds"]),
        spent_s=spent_s,
    )


def _answer(pipeline: Pipeline, executor: InProcess, data: bytes) -> Payload:
    asked = _mapping(decode(data))
    operator = pipeline.by_name[str(asked["operator"])]
    settings = {
        name: value
        for name, value in _mapping(asked["settings"]).items()
        if isinstance(value, bool | int | float | str)
    }
    done = executor.run(operator, asked["inputs"], _configuration(operator.name, settings))
    if isinstance(done, Failed):
        return {"cause": done.cause, "spent_s": done.spent_s}
    return {
        "output": done.output,
        "output_bytes": done.output_bytes,
        "seconds": done.seconds,
        "spent_s": done.spent_s,
    }


def _configuration(operator: str, settings: dict[str, KnobValue]) -> Configuration:
    return Configuration(tuple((operator, name, value) for name, value in settings.items()))


def _one_thread() -> None:
    threadpool_limits(1)
    torch = sys.modules.get("torch")
    if torch is not None:  # loaded by the pipeline; its own pool is not known to threadpoolctl
        torch.set_num_threads(1)


def _mapping(value: Payload) -> dict[str, Payload]:
    if not isinstance(value, dict):
        raise TypeError(f"must be a mapping, got {type(value).__name__}")
    return value


def _number(value: Payload) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"must be a number, got {type(value).__name__}")
    return value
