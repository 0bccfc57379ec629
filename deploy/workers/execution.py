"""Runs the operators of one call, at the worker's pace. Knows no gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from circinus.deploy.workers.shares import Pace, ShareMeter
from circinus.pipelines.clock import Clock
from circinus.pipelines.configuration import Configuration
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.payload import Payload, encode, payload_bytes
from circinus.pipelines.pipeline import Pipeline, inputs_of, run_operator

INPUT = "$input"
"""Key of the pipeline's input among a call's inputs; no operator can be called so."""


class CallEnded(Exception):
    """The caller is gone, or its deadline passed: nobody waits for the rest."""


Pause = Callable[[float], None]
"""Returns after so many seconds, at once if `<= 0`; raises CallEnded as soon as nobody waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a call gives."""

    outputs: Mapping[str, bytes]  # encoded payload of each wanted operator
    seconds: Mapping[str, float]  # of each operator that ran, waits for share and speed included
    sizes: Mapping[str, int]  # bytes of each output as links are charged for it
    concurrency: int = 1  # calls that the worker takes at a time, `>= 1`


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Operators of a configured pipeline."""

    pipeline: Pipeline  # whose
    served: frozenset[str]  # names of the operators that may be asked for
    configuration: Configuration  # of the pipeline
    pace: Pace  # share and speed to keep to
    clock: Clock  # for the seconds
    # CPU time so far of the calling thread and of the programs it called
    cpu_seconds: Callable[[], float]

    def __post_init__(self) -> None:
        for name in sorted(self.served):
            self.pipeline.graph.position(name)

    @property
    def concurrency(self) -> int:
        """Give the calls that may run at once, `>= 1`: as many as every operator served takes."""
        served = (self.pipeline.by_name[name].concurrency for name in self.served)
        return min(served, default=1)

    def run(
        self,
        operators: Sequence[str],
        inputs: Mapping[str, Payload],
        wants: Sequence[str],
        pause: Pause,
        pace: Pace | None = None,
    ) -> Reply:
        """Give the outputs of `wants`, having run `operators` in the order given, parents first.

        The inputs are outputs of operators elsewhere, and the pipeline's input as `INPUT`. Without
        a pace it is the worker's own.

        Raises:
            InvalidInput: If an operator is not served or an input is missing.
            OperatorFailed: If one raises or gives no payload.
            CallEnded: If nobody waits any more.
        """
        self._check(operators, inputs, wants)
        known = dict(inputs)
        seconds: dict[str, float] = {}
        meter = ShareMeter(pace or self.pace)
        for name in operators:
            pause(0)
            known[name], seconds[name] = self._run_one(name, known, meter)
        pause(meter.wait_s)
        return Reply(
            outputs={name: _encoded(name, known[name]) for name in wants},
            seconds=seconds,
            sizes={name: payload_bytes(known[name]) for name in wants},
            concurrency=self.concurrency,
        )

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

    def _run_one(
        self, name: str, known: Mapping[str, Payload], meter: ShareMeter
    ) -> tuple[Payload, float]:
        operator = self.pipeline.by_name[name]
        inputs = inputs_of(self.pipeline.graph, name, known.get(INPUT), known)
        began, cpu_began = self.clock.now(), self.cpu_seconds()
        output = run_operator(operator, inputs, self.configuration)
        elapsed = self.clock.now() - began
        return output, meter.ran(operator.spec, elapsed, self.cpu_seconds() - cpu_began)


def _encoded(name: str, output: Payload) -> bytes:
    try:
        return encode(output)
    except InvalidInput as error:
        raise OperatorFailed(name, str(error)) from error
