"""A call that nobody waits for, and that does not end, is told from one that is slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import inf
from typing import cast

import grpc
import pytest
from grpc_health.v1 import health_pb2

from circinus.deploy.workers.proto.worker_pb2 import RunRequest
from circinus.deploy.workers.server import CallPatience, CallWatch, WatchedHealth
from circinus.pipelines.clock import ManualClock

RUN = RunRequest(operators=["read", "write"])
WARM_UP = RunRequest(operators=["read"], warm_up=True)
SETTLE = RunRequest()


class Call:
    """A call as gRPC tells of it."""

    def __init__(self, *, over: bool = False) -> None:
        self.over, self.told = over, list[Callable[[], None]]()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self.told.append(callback)
        return not self.over

    def leave(self) -> None:
        for callback in self.told:
            callback()


def context(call: Call | None = None) -> grpc.ServicerContext:
    return cast("grpc.ServicerContext", call or Call())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def begun() -> Iterator[ExitStack]:
    with ExitStack() as calls:
        yield calls


def begin(watch: CallWatch, begun: ExitStack, due: float = inf) -> Call:
    call = Call()
    begun.enter_context(watch.running(RUN, due, context(call)))
    return call


def answer(
    watch: CallWatch, clock: ManualClock, seconds: float, request: RunRequest = RUN
) -> None:
    with watch.running(request, inf, context()):
        clock.sleep(seconds)


def hangs_after(watch: CallWatch, clock: ManualClock, seconds: float) -> bool:
    """Say whether a call hangs just after so many seconds, and not before."""
    clock.sleep(seconds)
    early = watch.hang()
    clock.sleep(0.1)
    return not early and watch.hang() != ""


def test_a_call_hangs_five_seconds_after_its_caller_left(
    clock: ManualClock, begun: ExitStack
) -> None:
    watch = CallWatch(clock, 1)
    answer(watch, clock, 0.1)
    call = begin(watch, begun)
    clock.sleep(600)
    assert watch.hang() == ""  # its caller waits, and said nothing of a deadline
    call.leave()
    assert hangs_after(watch, clock, 5.0)
    assert watch.hang() == "read, write ran for 605 s and did not end"


def test_a_call_hangs_ten_seconds_after_it_was_due(clock: ManualClock, begun: ExitStack) -> None:
    watch = CallWatch(clock, 1)
    answer(watch, clock, 0.1)
    begin(watch, begun, due=clock.now() + 1.0)
    assert hangs_after(watch, clock, 11.0)


def test_a_call_whose_caller_was_gone_before_it_began_is_watched_from_then(
    clock: ManualClock,
) -> None:
    watch = CallWatch(clock, 1)
    answer(watch, clock, 0.1)
    with watch.running(RUN, inf, context(Call(over=True))):
        assert hangs_after(watch, clock, 5.0)


def test_calls_may_run_on_for_five_times_the_longest_that_was_answered(
    clock: ManualClock, begun: ExitStack
) -> None:
    watch = CallWatch(clock, 1)
    answer(watch, clock, 4.0)
    begin(watch, begun).leave()
    assert hangs_after(watch, clock, 20.0)


@pytest.mark.parametrize(("first", "patience_s"), [(WARM_UP, 5.0), (SETTLE, 60.0)])
def test_a_first_call_may_load_models_and_a_warm_up_has_loaded_them(
    clock: ManualClock, begun: ExitStack, first: RunRequest, patience_s: float
) -> None:
    watch = CallWatch(clock, 1)
    answer(watch, clock, 30.0, first)
    begin(watch, begun).leave()
    assert hangs_after(watch, clock, patience_s)


def test_a_worker_with_a_free_place_serves(clock: ManualClock, begun: ExitStack) -> None:
    watch = CallWatch(clock, 2)
    begin(watch, begun).leave()
    clock.sleep(1000)
    assert watch.hang() == ""
    begin(watch, begun).leave()
    assert hangs_after(watch, clock, 60.0)


def test_a_call_that_failed_does_not_hang(clock: ManualClock) -> None:
    watch = CallWatch(clock, 1)

    def fail() -> None:
        with watch.running(RUN, 0.0, context()):
            clock.sleep(1000)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert watch.hang() == ""


def test_what_endpoints_may_take_comes_on_top(clock: ManualClock, begun: ExitStack) -> None:
    watch = CallWatch(clock, 1, CallPatience().beyond(600.0))
    answer(watch, clock, 0.1)
    begin(watch, begun).leave()
    assert hangs_after(watch, clock, 605.0)


class Asked:
    """A question about health, as gRPC tells of it."""

    def set_trailing_metadata(self, told: tuple[tuple[str, str], ...]) -> None:
        self.told = dict(told)


def test_health_tells_of_a_hang_and_serves_again_once_it_is_over(clock: ManualClock) -> None:
    watch = CallWatch(clock, 1)
    health, asked = WatchedHealth(watch), Asked()
    health.set("", health_pb2.HealthCheckResponse.SERVING)

    def status() -> int:
        check = health_pb2.HealthCheckRequest()
        return int(health.Check(check, cast("grpc.ServicerContext", asked)).status)

    assert status() == health_pb2.HealthCheckResponse.SERVING
    with watch.running(RUN, 0.0, context()):
        clock.sleep(161)
        assert status() == health_pb2.HealthCheckResponse.NOT_SERVING
        assert asked.told == {"circinus-cause": "read, write ran for 161 s and did not end"}
    assert status() == health_pb2.HealthCheckResponse.SERVING
