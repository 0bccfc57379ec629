from __future__ import annotations

import pytest

from circinus.deploy.workers.shares import (
    Enforcement,
    Pace,
    ProcessorSeconds,
    ShareMeter,
    enforcement_for,
)
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.operators import OperatorSpec, Scaling

PLAIN = OperatorSpec(name="plain")
BATCHED = OperatorSpec(
    name="batched", scaling=Scaling.BATCHED, batch_latency={1: 1.0, 2: 1.2, 4: 1.6}
)


@pytest.mark.parametrize("value", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(InvalidInput, match=r"share must be in \(0, 1\]"):
        Pace(share=value)
    with pytest.raises(InvalidInput, match=r"speed must be in \(0, 1\]"):
        Pace(speed=value)


@pytest.mark.parametrize(
    ("operators", "share", "cgroups", "expected"),
    [
        ([PLAIN], 1.0, True, Enforcement.NONE),
        ([BATCHED], 1.0, False, Enforcement.NONE),
        ([PLAIN], 0.95, True, Enforcement.CGROUP),
        ([PLAIN], 0.95, False, Enforcement.DUTY_CYCLE),
        ([PLAIN, BATCHED], 0.5, True, Enforcement.DUTY_CYCLE),
    ],
)
def test_the_enforcement_fits_the_share_and_the_machine(
    operators: list[OperatorSpec], share: float, cgroups: bool, expected: Enforcement
) -> None:
    assert enforcement_for(operators, share, cgroups=cgroups) is expected
    # Where a device gives no more than the share, nothing but a whole machine is left to itself.
    by_device = Enforcement.NONE if share == 1 else Enforcement.DEVICE
    assert enforcement_for(operators, share, cgroups=cgroups, devices=True) is by_device


@pytest.mark.parametrize(
    ("pace", "operator", "elapsed_s", "cpu_s", "expected"),
    [
        # The whole machine at its own speed: nothing to wait for.
        (Pace(), PLAIN, 2.0, 2.0, 0.0),
        # Half the machine, which a device sees to: what it took is what it takes.
        (Pace(enforcement=Enforcement.DEVICE, share=0.5), PLAIN, 2.0, 2.0, 0.0),
        # Half the speed: 2 s become 4.
        (Pace(speed=0.5), PLAIN, 2.0, 2.0, 2.0),
        # A quarter of the machine: t (1/r - 1) = 2 x 3.
        (Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25), PLAIN, 2.0, 2.0, 6.0),
        # Both: 2 / 0.25 / 0.5 = 16.
        (Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25, speed=0.5), PLAIN, 2.0, 2.0, 14.0),
        # Batched at a quarter: four requests together take 1.6 times as long.
        (Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25), BATCHED, 2.0, 0.0, 1.2),
        # The kernel stretched 1 CPU second to 4 already.
        (Pace(enforcement=Enforcement.CGROUP, share=0.25), PLAIN, 4.0, 1.0, 0.0),
        # It let a short one through within one slice: 4 x 1 ms - 1 ms are owed.
        (Pace(enforcement=Enforcement.CGROUP, share=0.25), PLAIN, 0.001, 0.001, 0.003),
        # One that sleeps uses no CPU, and its share does not hold it up.
        (Pace(enforcement=Enforcement.CGROUP, share=0.25), PLAIN, 1.0, 0.0, 0.0),
    ],
)
def test_the_wait_makes_up_for_what_the_machine_is_too_fast(
    pace: Pace, operator: OperatorSpec, elapsed_s: float, cpu_s: float, expected: float
) -> None:
    meter = ShareMeter(pace)
    used = ProcessorSeconds(cpu_s, lost_s=0.0 if cpu_s in (0.0, elapsed_s) else elapsed_s - cpu_s)
    assert meter.ran(operator, elapsed_s, used) == pytest.approx(elapsed_s + expected)
    assert meter.wait_s == pytest.approx(expected)


@pytest.mark.parametrize(
    ("pace", "takes_s"),
    [
        (Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25), 6.0),  # 1.5 / 0.25
        (Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.8), 2.0),  # no less than it took
        (Pace(speed=0.5), 3.0),
        (Pace(), 2.0),
        (Pace(enforcement=Enforcement.CGROUP, share=0.75), 2.0),  # the quota's own doing
    ],
)
def test_what_neighbours_take_is_not_stretched(pace: Pace, takes_s: float) -> None:
    meter = ShareMeter(pace)
    assert meter.ran(PLAIN, 2.0, ProcessorSeconds(1.5, lost_s=0.5)) == pytest.approx(takes_s)
    assert meter.wait_s == pytest.approx(takes_s - 2.0)


def test_a_quota_that_throttled_one_operator_is_not_charged_to_the_next_again() -> None:
    meter = ShareMeter(Pace(enforcement=Enforcement.CGROUP, share=0.25))
    meter.ran(
        PLAIN, 0.05, ProcessorSeconds(0.05, lost_s=0.0)
    )  # all of a period's quota at full speed ...
    meter.ran(
        PLAIN, 0.16, ProcessorSeconds(0.01, lost_s=0.15)
    )  # ... so that the kernel made the next one wait
    assert meter.due_s == pytest.approx(0.24)  # 0.06 s of CPU at a quarter
    assert meter.wait_s == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("pace", "takes_s"),
    [
        (Pace(), 1.2),
        (Pace(speed=0.5), 1.4),  # 1 + 0.2 / 0.5
        (Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25), 1.8),  # 1 + 0.2 / 0.25
        (Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25, speed=0.5), 2.6),
        # The kernel lets what an operator saved up while it waited through: it is waited off.
        (Pace(enforcement=Enforcement.CGROUP, share=0.25), 1.8),
        (Pace(enforcement=Enforcement.CGROUP, share=0.25, speed=0.5), 2.6),
        # What waits for a GPU is its work.
        (Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25, devices=True), 4.8),
    ],
)
@pytest.mark.parametrize("thread_s", [0.2, 0.05])  # the rest by a program that it called
def test_what_an_operator_waits_no_share_and_no_speed_stretches(
    pace: Pace, takes_s: float, thread_s: float
) -> None:
    meter = ShareMeter(pace)
    elapsed_s, lost_s = 1.2, 0.0
    if pace.enforcement is Enforcement.CGROUP and thread_s < 0.2:  # throttled: 0.15 / 0.25
        elapsed_s = 1.05 + 0.6
    used = ProcessorSeconds(thread_s, 0.2 - thread_s, lost_s)
    assert meter.ran(PLAIN, elapsed_s, used) == pytest.approx(takes_s)


def test_where_the_kernel_does_not_tell_everything_counts_as_computing() -> None:
    meter = ShareMeter(Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25))
    assert meter.ran(PLAIN, 1.2, ProcessorSeconds(0.2)) == pytest.approx(4.8)
    assert meter.waited_s == 0


def test_a_batch_may_have_waited_for_its_device() -> None:
    meter = ShareMeter(Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25))
    assert meter.ran(BATCHED, 2.0, ProcessorSeconds(0.2, lost_s=0.0)) == pytest.approx(3.2)


def test_what_a_neighbour_takes_between_two_readings_leaves_what_was_computed() -> None:
    meter = ShareMeter(Pace(enforcement=Enforcement.DUTY_CYCLE, share=0.25))
    used = ProcessorSeconds(0.2, lost_s=0.15)  # 0.1 of which came before or after the operator
    assert meter.ran(PLAIN, 0.25, used) == pytest.approx(0.8)
