"""Runs the operators of one call, at the worker's pace. Knows no gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from circinus.deploy.workers.batching import Batches
from circinus.deploy.workers.calling import Attempt, Attempts, to_wire
from circinus.deploy.workers.errors import CallFailed
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.deploy.workers.shares import Pace, ProcessorSeconds, ShareMeter
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.loaded import loading
from circinus.pipelines.execution.pipeline import Pipeline, inputs_of, run_operator
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.operators import Operator
from circinus.pipelines.model.payload import Payload, encode, payload_bytes

INPUT = "$input"
"""Key of the pipeline's input among a call's inputs; no operator can be called so."""


class CallEnded(Exception):
    """The caller is gone, or its deadline passed: no caller waits for the rest."""


Pause = Callable[[float], None]
"""Returns after so many seconds, at once if `<= 0`; raises CallEnded once no caller waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Operators of a configured pipeline."""

    pipeline: Pipeline
    served: frozenset[str]  # names of the operators that may be asked for
    configuration: Configuration
    pace: Pace
    clock: Clock
    processor_seconds: Callable[[], ProcessorSeconds]  # so far, of the calling thread's operators
    batches: Batches  # of what its operators gather; shared by executions of other settings
    # of operators that call endpoints; None: none of those served may, under any settings
    attempts: Attempts | None = None
    # calls that may run at once, `>= 1`; None: as many as every operator served takes
    concurrent: int | None = None

    def __post_init__(self) -> None:
        for name in sorted(self.served):
            self.pipeline.graph.position(name)

    @property
    def concurrency(self) -> int:
        """Return the calls that may run at once, `>= 1`, see `concurrent`."""
        if self.concurrent is not None:
            return self.concurrent
        served = (self.pipeline.by_name[name].concurrency for name in self.served)
        return min(served, default=1)

    def run(  # noqa: PLR0913 - the fields of the request
        self,
        operators: Sequence[str],
        inputs: Mapping[str, Payload],
        wants: Sequence[str],
        pause: Pause,
        pace: Pace | None = None,
        due: float = inf,
        attempt: int = 1,
    ) -> RunReply:
        """Return the outputs of `wants`, having run `operators` in the order given, parents first.

        The inputs are outputs of operators elsewhere, and the pipeline's input as `INPUT`. Without
        a pace it is the worker's own. By `due` on its clock the answer should be there: as long
        batches may wait for more calls. Operators that call endpoints are tried once, which is
        their `attempt`-th, from 1. InvalidInput if an operator is not served or an input is
        missing, OperatorFailed if one raises or gives no payload, CallFailed if it called, or one
        before it did, CallEnded if no caller waits.
        """
        self._check(operators, inputs, wants)
        known = dict(inputs)
        seconds: dict[str, float] = {}
        waited_s: dict[str, float] = {}
        used: dict[str, Mapping[str, Usage]] = {}
        operators_cpu_s = 0.0
        meter = ShareMeter(pace or self.pace)
        for name in operators:
            pause(0)
            operator = self.pipeline.by_name[name]
            payload = inputs_of(self.pipeline.graph, name, known.get(INPUT), known)
            try:
                if self._calls(operator):
                    made = self._called(operator, payload, attempt)
                    known[name], elapsed_s, processor = (*made[:2], ProcessorSeconds())
                    used[name] = made[2]
                else:
                    known[name], elapsed_s, processor = self._ran(operator, payload, due)
            except OperatorFailed as error:
                if not used:
                    raise
                raise _with_used(error, used) from error
            waited_before_s = meter.waited_s
            seconds[name] = meter.ran(operator.spec, elapsed_s, processor)
            waited_s[name] = meter.waited_s - waited_before_s
            operators_cpu_s += processor.cpu_s
        pause(meter.wait_s)
        return RunReply(
            outputs={name: _encoded(name, known[name]) for name in wants},
            seconds=seconds,
            sizes={name: payload_bytes(known[name]) for name in wants},
            concurrency=self.concurrency,
            used=to_wire(used),
            operators_cpu_s=operators_cpu_s,
            waited_s=waited_s,
        )

    def _calls(self, operator: Operator) -> bool:
        return bool(operator.spec.called(self.configuration.of(operator.name)))

    def _called(self, operator: Operator, payload: Payload, number: int) -> Attempt:
        if self.attempts is None:
            rule = "must call no endpoint on a tier with machines"
            raise InvalidInput.of("operators", rule, operator.name)
        return self.attempts.make(operator, payload, self.configuration, number)

    def _ran(
        self, operator: Operator, payload: Payload, due: float
    ) -> tuple[Payload, float, ProcessorSeconds]:
        """Return the output of an operator, its seconds, and those of processors."""
        if operator.run_batch is not None:
            # Another call's thread may have run it; no quota is put on batched operators.
            output, batch_s = self.batches.run(operator, payload, self.configuration, due)
            return output, batch_s, ProcessorSeconds()
        before, began = self.processor_seconds(), self.clock.now()
        with loading() as loaded:  # a model that made room for another one
            output = run_operator(operator, payload, self.configuration)
        elapsed_s = max(self.clock.now() - began - loaded.seconds, 0.0)
        return output, elapsed_s, self.processor_seconds().since(before)

    def _check(
        self, operators: Sequence[str], inputs: Mapping[str, Payload], wants: Sequence[str]
    ) -> None:
        available = set(inputs)
        for name in operators:
            if name not in self.served:
                rule = f"must be among {', '.join(sorted(self.served))}"
                raise InvalidInput.of("operators", rule, name)
            needed = self.pipeline.graph.operator(name).after or (INPUT,)
            missing = [need for need in needed if need not in available]
            if missing:
                raise InvalidInput.of("inputs", f"must have what {name} needs, missing", missing)
            available.add(name)
        strange = [name for name in wants if name not in operators]
        if strange:
            raise InvalidInput.of("wants", "must be among the operators", strange)


def _encoded(name: str, output: Payload) -> bytes:
    try:
        return encode(output)
    except InvalidInput as error:
        raise OperatorFailed(name, str(error)) from error


def _with_used(error: OperatorFailed, before: Mapping[str, Mapping[str, Usage]]) -> CallFailed:
    """Return the failure with what was used by operators that ran before it."""
    used, again_in_s = dict(before), None
    if isinstance(error, CallFailed):
        used |= error.used
        again_in_s = error.again_in_s
    return CallFailed(error.operator, error.cause, error.violations, used, again_in_s)
