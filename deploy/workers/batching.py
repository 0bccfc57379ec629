"""Gathers calls of one operator into batches. Knows no gRPC.

One batch of an operator runs at a time, and calls that come meanwhile gather behind it. A call
that comes alone runs at once; where recent calls were together, the first of a batch waits for
more:

    until = min(newest call + quiet s, began to wait + most s, earliest deadline - s)

with s the seconds of a full batch, learnt here. So a batch starts when calls stop coming, when it
waited long enough, when a call would be late, or when it is full.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.execution.pipeline import run_operator, watch
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.operators import Operator
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.user_code import copies_ended, settled

_NEWEST = 0.2  # weight of the newest batch
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a batch waits for more calls, in parts of its own seconds."""

    # without another call, `>= 0`. 0.1: answers come back as requests within milliseconds, or not
    quiet: float = 0.1
    most: float = 1.0  # altogether, `>= 0`. 1: a call that waits longer had better run alone

    def wait_s(self, line: BatchLine, now: float, concurrency: int) -> float:
        """Return the seconds that the calls of a line should go on waiting; `<= 0` starts them."""
        calls = line.waiting[:concurrency]
        batch_s = line.seconds.predict(concurrency)
        if len(calls) == concurrency or now - line.together_at > self.most * batch_s:
            return 0.0
        began = max(calls[0].arrived_at, line.ended_at)
        newest = max(calls[-1].arrived_at, began)
        due = min(call.due for call in calls)
        until = min(newest + self.quiet * batch_s, began + self.most * batch_s, due - batch_s)
        return until - now


# deviates: batches-in-the-worker
@dataclass(slots=True, eq=False)
class GatheredCall:
    """One call on its way."""

    input: Payload
    arrived_at: float
    due: float  # when its answer should be there; infinite: whenever
    output: Payload = None
    seconds: float = 0.0  # of its batch
    error: CircinusError | None = None
    done: bool = False


@dataclass(slots=True, eq=False)
class BatchSeconds:
    """Seconds of batches, by their size. The worker's own: it has nothing of the scheduler's."""

    _mean: dict[int, float] = field(default_factory=dict)

    def observe(self, seconds: float, size: int) -> None:
        """Learn from a batch."""
        known = self._mean.setdefault(size, seconds)
        self._mean[size] = known + _NEWEST * (seconds - known)

    def predict(self, size: int) -> float:
        """Return the seconds of a batch: on the line through the smallest and largest known.

        Of one size alone: as if calls ran one by one. 0 before the first.
        """
        if not self._mean:
            return 0.0
        least, most = min(self._mean), max(self._mean)
        if least == most:
            return self._mean[most] * max(size / most, 1.0)
        slope = max(self._mean[most] - self._mean[least], 0.0) / (most - least)
        return max(self._mean[most] + slope * (size - most), 0.0)


@dataclass(slots=True, eq=False)
class BatchLine:
    """The calls of one operator with one setting of its knobs."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: list[GatheredCall] = field(default_factory=list)
    running: int = 0  # calls in the batch that runs
    ended_at: float = -inf  # the latest batch
    together_at: float = -inf  # when there were several calls in hand last
    seconds: BatchSeconds = field(default_factory=BatchSeconds)


@dataclass(slots=True, eq=False)
class Batches:
    """Runs operators that take batches. Safe to share between threads."""

    clock: Clock
    patience: Patience = Patience()
    _lines: dict[tuple[object, ...], BatchLine] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(
        self, operator: Operator, input: Payload, configuration: Configuration, due: float = inf
    ) -> tuple[Payload, float]:
        """Return the output for an input, and the seconds of its batch.

        OperatorFailed as `run_operator`: what is wrong with one input fails no other call.
        """
        line = self._line(operator, configuration)
        call = GatheredCall(input, self.clock.now(), due)
        with line.changed:
            line.waiting.append(call)
            if len(line.waiting) + line.running > 1:
                line.together_at = call.arrived_at
            line.changed.notify_all()
        while batch := self._next(line, call, operator.concurrency):
            self._run(operator, configuration, batch)
            self._ended(line, batch)
        if call.error is not None:
            raise call.error
        return call.output, call.seconds

    def _line(self, operator: Operator, configuration: Configuration) -> BatchLine:
        key = (operator.name, *sorted(configuration.of(operator.name).items()))
        with self._lock:
            return self._lines.setdefault(key, BatchLine())

    def _next(
        self, line: BatchLine, call: GatheredCall, concurrency: int
    ) -> Sequence[GatheredCall]:
        """Wait until a call is done, and return no calls; or until it is the first of a batch."""
        with line.changed:
            while not call.done:
                if line.running or line.waiting[0] is not call:
                    line.changed.wait()
                    continue
                wait_s = self.patience.wait_s(line, self.clock.now(), concurrency)
                if wait_s > 0:
                    line.changed.wait(wait_s)
                    continue
                batch = line.waiting[:concurrency]
                del line.waiting[:concurrency]
                line.running = len(batch)
                return batch
        return ()

    def _run(
        self, operator: Operator, configuration: Configuration, batch: Sequence[GatheredCall]
    ) -> None:
        began = self.clock.now()
        if len(batch) == 1 or not _ran_together(operator, configuration, batch):
            for call in batch:
                try:
                    call.output = run_operator(operator, call.input, configuration)
                except CircinusError as error:
                    call.error = error
        seconds = self.clock.now() - began
        for call in batch:
            call.seconds = seconds

    def _ended(self, line: BatchLine, batch: Sequence[GatheredCall]) -> None:
        with line.changed:
            line.seconds.observe(batch[0].seconds, len(batch))
            line.ended_at = self.clock.now()
            line.running = 0
            if len(batch) + len(line.waiting) > 1:
                line.together_at = line.ended_at
            for call in batch:
                call.done = True
            line.changed.notify_all()


def _ran_together(
    operator: Operator, configuration: Configuration, batch: Sequence[GatheredCall]
) -> bool:
    """Return whether the calls have outputs; a batch that fails is no fault of all of them."""
    if operator.run_batch is None:
        return False
    inputs, knobs = [call.input for call in batch], configuration.of(operator.name)
    try:
        # Before any call gets its output: too few or too many are wrong for all.
        with copies_ended(), watch(operator, configuration):
            outputs = settled(operator.run_batch(inputs, knobs))
        together = list(zip(batch, outputs, strict=True))
    except BaseException:  # noqa: BLE001 - the user's code: a border; no thread is interrupted
        _log.warning("batch_failed operator=%s size=%s", operator.name, len(batch), exc_info=True)
        return False
    for call, output in together:
        call.output = output
    return True
