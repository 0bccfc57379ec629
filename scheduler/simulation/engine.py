"""The event loop: arrivals and completions in order of time, a policy asked at each.

The clock is set before an event is handled. At one moment completions come before arrivals,
and completions in the order of the fleet. The loop is compiled, and calls the very rules that
the live dispatcher calls (`scheduler.dispatch.kernel`); instances are so few that looking
through all for the next completion is faster than keeping a heap.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import Protocol

import numba as nb
import numpy as np

from scheduler.dispatch.kernel import (
    KERNEL_TYPE,
    PLANNED,
    REJECT,
    WAIT,
    Kernel,
    compiled_driver,
    compiled_part,
)
from scheduler.dispatch.policy import UNPLANNED, BoolArray, FloatArray, IntArray
from scheduler.simulation.scenario import Scenario

NOT_SERVED = -1
"""In `Run.instance`: rejected, or still waiting when the run was stopped."""

SLACK_S = 1e-9
"""A request predicted to end at its deadline is in time whatever the rounding."""

_LOOK_EVERY = 64  # events between two looks at who has waited too long already
_STOPPED, _BROKEN = -1, -2  # instead of the number of late requests


class SimulatedPolicy(Protocol):
    """A `DispatchPolicy` whose rule is compiled."""

    @property
    def plans_ahead(self) -> bool:
        """Whether it is to be called also when no instance is idle."""

    @property
    def rule(self) -> Kernel:
        """Give its compiled rule."""

    @property
    def settings(self) -> FloatArray:
        """Give the settings that its rule takes."""


class InvalidDecision(Exception):
    """A policy broke its contract: whoever wrote it must act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """When and where every request was served.

    Attributes:
        scenario: What was simulated.
        started_s: NaN where a request was not served.
        finished_s: NaN where it was not.
        instance: Its place in the fleet, or NOT_SERVED.
        complete: False if the run was stopped because too many were late.
    """

    scenario: Scenario
    started_s: FloatArray  # (N,)
    finished_s: FloatArray  # (N,)
    instance: IntArray  # (N,)
    complete: bool

    @property
    def in_time(self) -> float:
        """Give the share of all requests that were answered in time; 0 if the run was stopped."""
        if not self.complete:
            return 0.0
        latency = self.finished_s - self.scenario.arrived_s
        return float((latency <= self.scenario.qos_s + SLACK_S).mean())


def simulate(scenario: Scenario, policy: SimulatedPolicy, *, most_late: float = inf) -> Run:
    """Give when and where every request was served.

    Args:
        scenario: What arrives and what it takes.
        policy: Decides.
        most_late: As soon as more requests than this are certain to be late, the run is stopped.

    Raises:
        InvalidDecision: If the policy breaks its contract.
    """
    count, fleet = len(scenario.arrived_s), scenario.fleet
    started, finished = np.full(count, nan), np.full(count, nan)
    instance = np.full(count, NOT_SERVED, dtype=np.int64)
    late = _loop(
        policy.rule,
        policy.plans_ahead,
        policy.settings,
        min(most_late, float(count)),
        scenario.qos_s,
        scenario.arrived_s,
        scenario.size,
        np.ascontiguousarray(scenario.service_s[:, fleet.kind]),
        np.ascontiguousarray(scenario.predicted_s[:, fleet.kind]),
        fleet.kind,
        fleet.coefficient,
        fleet.price,
        started,
        finished,
        instance,
    )
    if late == _BROKEN:
        raise InvalidDecision(f"{policy} started a request on an instance that was not idle")
    return Run(
        scenario=scenario,
        started_s=started,
        finished_s=finished,
        instance=instance,
        complete=late != _STOPPED,
    )


@compiled_part
def _next_completion(free_at: FloatArray, idle: BoolArray) -> int:
    """Give the busy instance that is free first; -1 if none is busy."""
    first = -1
    for j in range(len(free_at)):
        if not idle[j] and (first < 0 or free_at[j] < free_at[first]):
            first = j
    return first


@compiled_part
def _busy_s(now: float, idle: BoolArray, began: FloatArray, foreseen: FloatArray) -> FloatArray:
    """Give what each is still busy; what takes longer than foreseen, as long again.

    With no seconds left it would look as good as an idle instance.
    """
    busy = np.zeros(len(idle))
    for j in range(len(idle)):
        if not idle[j]:
            busy[j] = foreseen[j] - now if foreseen[j] > now else now - began[j]
    return busy


@compiled_part
def _overdue(waiting: IntArray, count: int, arrived: FloatArray, born: float) -> int:
    """Give how many of those that wait arrived before `born`."""
    late = 0
    for k in range(count):
        if arrived[waiting[k]] < born:
            late += 1
    return late


def _events(  # noqa: C901, PLR0913, PLR0915 - one loop over compiled arrays, nothing to bundle
    rule: Kernel,
    plans_ahead: bool,
    settings: FloatArray,
    most_late: float,
    qos_s: float,
    arrived: FloatArray,  # (N,)
    size: FloatArray,  # (N,)
    service: FloatArray,  # (N, n)
    predicted: FloatArray,  # (N, n)
    kind: IntArray,  # (n,)
    coefficient: FloatArray,  # (n,)
    price: FloatArray,  # (n,)
    started: FloatArray,  # (N,)
    finished: FloatArray,  # (N,)
    instance: IntArray,  # (N,)
) -> int:
    """Handle events until there are none; give the number of late requests."""
    n, total = len(kind), len(arrived)
    idle = np.ones(n, dtype=np.bool_)
    idle_count = n
    began, foreseen, free_at = np.zeros(n), np.zeros(n), np.zeros(n)
    room = 256
    waiting = np.empty(room, dtype=np.int64)
    planned = np.empty(room, dtype=np.int64)
    m, arrivals, late, events = 0, 0, 0, 0
    while True:
        j = _next_completion(free_at, idle)
        if j < 0 and arrivals == total:
            break
        events += 1
        if j >= 0 and (arrivals == total or free_at[j] <= arrived[arrivals]):
            now = free_at[j]
            idle[j] = True
            idle_count += 1
        else:
            now = arrived[arrivals]
            if m == room:
                room *= 2
                waiting = np.append(waiting, np.empty(m, dtype=np.int64))
                planned = np.append(planned, np.empty(m, dtype=np.int64))
            waiting[m] = arrivals
            planned[m] = UNPLANNED
            m += 1
            arrivals += 1
        look = events % _LOOK_EVERY == 0
        if look and late + _overdue(waiting, m, arrived, now - qos_s) > most_late:
            return _STOPPED
        if m == 0 or not (idle_count > 0 or plans_ahead):
            continue
        waited, qos, sizes = np.empty(m), np.full(m, qos_s), np.empty(m)
        rows = np.empty((m, n))
        for i in range(m):
            waited[i] = now - arrived[waiting[i]]
            sizes[i] = size[waiting[i]]
            rows[i] = predicted[waiting[i]]
        answer = np.full(m, WAIT, dtype=np.int64)
        busy = _busy_s(now, idle, began, foreseen)
        rule(
            settings, waited, qos, sizes, planned[:m], rows, busy, idle.copy(), kind,
            coefficient, price, answer,
        )  # fmt: skip
        left = 0
        for i in range(m):
            request, code = waiting[i], answer[i]
            if code >= 0:
                if code >= n or not idle[code] or service[request, code] == inf:
                    return _BROKEN
                idle[code] = False
                idle_count -= 1
                began[code] = now
                foreseen[code] = now + predicted[request, code]
                free_at[code] = now + service[request, code]
                started[request] = now
                finished[request] = free_at[code]
                instance[request] = code
                if free_at[code] - arrived[request] > qos_s + SLACK_S:
                    late += 1
            elif code == REJECT:
                late += 1
            else:
                waiting[left] = request
                planned[left] = PLANNED - code if code <= PLANNED else UNPLANNED
                left += 1
        m = left
    return late if late <= most_late else _STOPPED


_F, _I, _F2 = nb.float64[::1], nb.int64[::1], nb.float64[:, ::1]
_loop = compiled_driver(
    _events,
    nb.int64(
        nb.types.FunctionType(KERNEL_TYPE), nb.boolean, _F, nb.float64, nb.float64,
        _F, _F, _F2, _F2, _I, _F, _F, _F, _F, _I,
    ),
)  # fmt: skip
