from __future__ import annotations

import pytest

from circinus.deploy.workers.batching import Batches
from circinus.deploy.workers.execution import INPUT, CallEnded, Execution
from circinus.deploy.workers.shares import Pace, ProcessorSeconds
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.payload import Payload, decode
from tests.deploy.serving import tiny


class ClockedCall:
    """Pauses by moving the clock; ends after so many seconds."""

    def __init__(self, clock: ManualClock, ends_at: float = 1e9) -> None:
        self.clock = clock
        self.ends_at = ends_at

    def pause(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        if self.clock.now() >= self.ends_at:
            raise CallEnded


class TickingClock(ManualClock):
    """Moves on by a second whenever an operator has run."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def now(self) -> float:
        self.reads += 1
        if self.reads % 2 == 0:
            self.sleep(1.0)
        return super().now()


class RecordingCall:
    """Keeps the pauses asked for."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def execution(clock: ManualClock, pace: Pace | None = None) -> Execution:
    pipeline = tiny("arithmetic")
    return Execution(
        pipeline=pipeline,
        served=frozenset({"double", "add"}),
        configuration=ConfigurationSpace(pipeline.graph).parse({"add": {"amount": 10}}),
        pace=pace or Pace(),
        clock=clock,
        processor_seconds=ProcessorSeconds,
        batches=Batches(ManualClock()),
    )


@pytest.mark.parametrize(
    ("operators", "inputs", "wants", "message"),
    [
        (["describe"], {"add": 1}, [], "operators must be among add, double, got 'describe'"),
        (["double"], {}, [], r"inputs must have what double needs, missing, got \['\$input'\]"),
        (["add", "double"], {INPUT: 1}, [], r"what add needs, missing, got \['double'\]"),
        (["double"], {INPUT: 1}, ["add"], r"wants must be among the operators, got \['add'\]"),
    ],
)
def test_a_call_that_cannot_be_served_is_refused(
    operators: list[str], inputs: dict[str, Payload], wants: list[str], message: str
) -> None:
    clock = ManualClock()
    with pytest.raises(InvalidInput, match=message):
        execution(clock).run(operators, inputs, wants, ClockedCall(clock).pause)


def test_an_operator_the_pipeline_has_not_cannot_be_served() -> None:
    pipeline = tiny("echo")
    with pytest.raises(InvalidInput, match="operator must be among echo, got 'moon'"):
        Execution(
            pipeline=pipeline,
            served=frozenset({"moon"}),
            configuration=ConfigurationSpace(pipeline.graph).parse({}),
            pace=Pace(),
            clock=ManualClock(),
            processor_seconds=ProcessorSeconds,
            batches=Batches(ManualClock()),
        )


def test_operators_run_one_after_the_other_and_only_what_is_wanted_comes_back() -> None:
    clock = ManualClock()
    outcome = execution(clock).run(
        ["double", "add"], {INPUT: 4}, ["add"], ClockedCall(clock).pause
    )
    assert {name: decode(data) for name, data in outcome.outputs.items()} == {"add": 18}
    assert outcome.sizes == {"add": 2}  # "18"
    assert set(outcome.seconds) == {"double", "add"}


@pytest.mark.parametrize(
    ("served", "concurrency"), [({"meet"}, 2), ({"meet", "after"}, 1), (set(), 1)]
)
def test_as_many_calls_run_at_once_as_every_operator_takes(
    served: set[str], concurrency: int
) -> None:
    pipeline = tiny("batching")
    execution = Execution(
        pipeline=pipeline,
        served=frozenset(served),
        configuration=ConfigurationSpace(pipeline.graph).parse({}),
        pace=Pace(),
        clock=ManualClock(),
        processor_seconds=ProcessorSeconds,
        batches=Batches(ManualClock()),
    )
    assert execution.concurrency == concurrency


def test_nothing_runs_once_nobody_waits() -> None:
    clock = ManualClock()
    with pytest.raises(CallEnded):
        execution(clock).run(
            ["double"], {INPUT: 4}, ["double"], ClockedCall(clock, ends_at=0.0).pause
        )


def test_a_call_waits_once_after_all_its_operators_and_counts_the_wait_for_each() -> None:
    clock = TickingClock()
    call = RecordingCall(clock)
    outcome = execution(clock, Pace(speed=0.5)).run(
        ["double", "add"], {INPUT: 4}, ["add"], call.pause
    )
    assert outcome.seconds == pytest.approx({"double": 2.0, "add": 2.0})
    assert call.pauses == pytest.approx([0.0, 0.0, 2.0])
