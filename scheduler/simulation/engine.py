"""The event loop: arrivals and completions in order of time, a policy asked at each.

| symbol | meaning |
| --- | --- |
| N | requests, in order of arrival |
| K, n | kinds of instance, instances |

Everything random is drawn before the run, one stream per source: two policies meet the same
arrivals, the same sizes and the same luck of each request on each kind of instance.

A line of waiting requests may be bounded as a live one is (`deploy.runtime.tier_queue`): at a full
one, whoever is late longest makes way or the newcomer is turned away, and late requests beyond one
for each instance are given up. Both happen at arrivals.

The clock is set before an event is handled. At one moment completions come before arrivals,
and completions in the order of the fleet. The loop is compiled, and calls the very rules that
the live dispatcher calls (`scheduler.dispatch.kernel`); instances are so few that looking
through all for the next completion is faster than keeping a heap.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import NamedTuple

import numba as nb
import numpy as np

from circinus.pipelines import checks
from circinus.scheduler.dispatch.kernel import (
    FLOATS,
    INTS,
    KERNEL_TYPE,
    MATRIX,
    PLANNED,
    REJECT,
    WAIT,
    CompiledPolicy,
    Kernel,
    RuleInput,
    compiled_driver,
    compiled_part,
    settings_of,
    tuple_type,
)
from circinus.scheduler.dispatch.policy import UNPLANNED, BoolArray, Fleet, FloatArray, IntArray

NOT_SERVED = -1
"""In `SimulationRun.instance`: rejected, or still waiting when the run was stopped."""

SLACK_S = 1e-9
"""A request predicted to end at its deadline is in time whatever the rounding."""

_NO_LIMIT = 0
_LOOK_EVERY = 64  # events between two looks at who has waited too long already
_STOPPED, _BROKEN = -1, -2  # instead of the number of late requests


class InvalidDecision(Exception):
    """A policy broke its contract: whoever wrote it must act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """N requests to a fleet."""

    arrived_s: FloatArray  # (N,); not falling
    size: FloatArray  # (N,)
    # seconds that each takes on each kind, `> 0`; infinite: cannot be
    service_s: FloatArray  # (N, K)
    predicted_s: FloatArray  # (N, K); seconds that the policy plans with
    qos_s: float  # a request should be answered within so many seconds, `> 0`
    fleet: Fleet  # its `kind` is the column in `service_s`

    def __post_init__(self) -> None:
        count, kinds = len(self.arrived_s), self.service_s.shape[-1]
        checks.positive("qos_s", self.qos_s)
        shapes = (self.size.shape, self.service_s.shape, self.predicted_s.shape)
        wanted = ((count,), (count, kinds), (count, kinds))
        checks.require(shapes == wanted, "shapes", f"must be {wanted}", shapes)
        rising = bool((self.arrived_s[1:] >= self.arrived_s[:-1]).all())
        checks.require(rising, "arrived_s", "must not fall", "a time before the one before it")
        positive = bool((self.service_s > 0).all() and (self.predicted_s >= 0).all())
        checks.require(positive, "service_s", "must be > 0", "an entry that is not")
        known = bool((self.fleet.kind < kinds).all())
        checks.require(known, "fleet.kind", f"must be < {kinds}", self.fleet.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRun:
    """When and where every request was served."""

    scenario: Scenario  # what was simulated
    started_s: FloatArray  # (N,); NaN where a request was not served
    finished_s: FloatArray  # (N,); NaN where it was not
    instance: IntArray  # (N,); its place in the fleet, or NOT_SERVED
    complete: bool  # False if the run was stopped because too many were late

    @property
    def in_time(self) -> float:
        """Return the share of all requests answered in time; 0 if the run was stopped."""
        if not self.complete:
            return 0.0
        return float(self.each_in_time.mean())

    @property
    def each_in_time(self) -> BoolArray:  # (N,)
        """Return which requests were answered in time."""
        latency = self.finished_s - self.scenario.arrived_s
        return np.asarray(latency <= self.scenario.qos_s + SLACK_S)

    @property
    def waiting(self) -> IntArray:  # (N,)
        """Return how many waited when each request arrived, where all were served."""
        arrived_s = self.scenario.arrived_s
        started = np.searchsorted(np.sort(self.started_s), arrived_s, side="right")
        return np.asarray(np.maximum(np.arange(len(arrived_s)) - started, 0))


def simulate(
    scenario: Scenario,
    policy: CompiledPolicy,
    *,
    most_late: float = inf,
    limit: int | None = None,
) -> SimulationRun:
    """Return when and where every request was served.

    At most `limit` wait, `>= 1`; None: any number, and nobody is given up. As soon as more than
    `most_late` requests are certain to be late, the run is stopped.
    InvalidDecision if the policy breaks its contract.
    """
    checks.at_least("limit", limit, 1)
    count, fleet = len(scenario.arrived_s), scenario.fleet
    requests = _Requests(
        float(scenario.qos_s),
        limit or _NO_LIMIT,
        np.ascontiguousarray(scenario.arrived_s),
        np.ascontiguousarray(scenario.size),
        np.ascontiguousarray(scenario.service_s[:, fleet.kind]),
        np.ascontiguousarray(scenario.predicted_s[:, fleet.kind]),
        fleet.kind,
        fleet.coefficient,
        fleet.price,
    )
    outcome = _Outcome(np.full(count, nan), np.full(count, nan), np.full(count, NOT_SERVED))
    settings, most = settings_of(policy), min(most_late, float(count))
    late = _loop(policy.rule, policy.plans_ahead, settings, most, requests, outcome)
    if late == _BROKEN:
        raise InvalidDecision(f"{policy} started a request on an instance that was not idle")
    return SimulationRun(
        scenario=scenario,
        started_s=outcome.started,
        finished_s=outcome.finished,
        instance=outcome.instance,
        complete=late != _STOPPED,
    )


@compiled_part
def _next_completion(free_at: FloatArray, idle: BoolArray) -> int:
    """Return the busy instance that is free first; -1 if none is busy."""
    first = -1
    for j in range(len(free_at)):
        if not idle[j] and (first < 0 or free_at[j] < free_at[first]):
            first = j
    return first


class _Requests(NamedTuple):
    """The inputs of a run, of N requests and n instances."""

    qos_s: float
    limit: int  # most that wait, or _NO_LIMIT
    arrived: FloatArray  # (N,)
    size: FloatArray  # (N,)
    service: FloatArray  # (N, n)
    predicted: FloatArray  # (N, n)
    kind: IntArray  # (n,)
    coefficient: FloatArray  # (n,)
    price: FloatArray  # (n,)


class _Outcome(NamedTuple):
    """What a run finds, see `SimulationRun`."""

    started: FloatArray  # (N,)
    finished: FloatArray  # (N,)
    instance: IntArray  # (N,)


class _Instances(NamedTuple):
    """What each instance does."""

    idle: BoolArray  # (n,)
    began: FloatArray  # (n,)
    foreseen: FloatArray  # (n,), when it should be free
    free_at: FloatArray  # (n,), when it will be
    dual: FloatArray  # (n,), of the last decision
    largest: FloatArray  # (1,), size of the largest request until now


@compiled_part
def _busy_s(now: float, instances: _Instances) -> FloatArray:
    """Return what each is still busy; what takes longer than foreseen, as long again.

    With no seconds left it would look as good as an idle instance.
    """
    left = instances.foreseen - now
    return np.where(instances.idle, 0.0, np.where(left > 0, left, now - instances.began))


@compiled_part
def _answers(
    rule: Kernel,
    settings: FloatArray,
    now: float,
    line: IntArray,  # (2, m): who waits, where each was planned
    requests: _Requests,
    instances: _Instances,
) -> IntArray:  # (m,)
    """Return the rule's decision on those that wait."""
    waiting = line[0]
    answer = np.full(len(waiting), WAIT, dtype=np.int64)
    inputs = RuleInput(
        now - requests.arrived[waiting],
        np.full(len(waiting), requests.qos_s),
        requests.size[waiting],
        line[1].copy(),
        requests.predicted[waiting],
        _busy_s(now, instances),
        instances.idle.copy(),
        requests.kind,
        requests.coefficient,
        requests.price,
        instances.dual,
        instances.largest,
    )
    rule(settings, inputs, answer)
    return answer


@compiled_part
def _begin(
    request: int,
    at: int,
    now: float,
    requests: _Requests,
    instances: _Instances,
    outcome: _Outcome,
) -> int:
    """Start a request; return whether it will be late as 0 or 1, or _BROKEN."""
    if at >= len(requests.kind) or not instances.idle[at] or requests.service[request, at] == inf:
        return _BROKEN
    done = now + requests.service[request, at]
    instances.idle[at] = False
    instances.began[at] = now
    instances.foreseen[at] = now + requests.predicted[request, at]
    instances.free_at[at] = done
    outcome.started[request] = now
    outcome.finished[request] = done
    outcome.instance[request] = at
    return 1 if done - requests.arrived[request] > requests.qos_s + SLACK_S else 0


@compiled_part
def _apply(
    answer: IntArray,  # (m,)
    now: float,
    line: IntArray,  # (2, m), those that go on waiting are moved to the front
    requests: _Requests,
    instances: _Instances,
    outcome: _Outcome,
) -> tuple[int, int]:
    """Carry out a decision; return how many go on waiting, and how many late ones or _BROKEN."""
    left, late = 0, 0
    for i in range(len(answer)):
        code = answer[i]
        if code >= 0:
            started = _begin(line[0, i], code, now, requests, instances, outcome)
            if started == _BROKEN:
                return left, _BROKEN
            late += started
        elif code == REJECT:
            late += 1
        else:
            line[0, left] = line[0, i]
            line[1, left] = PLANNED - code if code <= PLANNED else UNPLANNED
            left += 1
    return left, late


@compiled_part
def _join(request: int, line: IntArray, m: int, requests: _Requests) -> int:
    """Let a request join the m that wait, or be turned away; return how many wait then."""
    now, late = requests.arrived[request], 0
    if requests.limit != _NO_LIMIT:
        for i in range(m):
            late += now - requests.arrived[line[0, i]] > requests.qos_s
        if m >= requests.limit and late == 0:
            return m
        gone = min(late, max(late - len(requests.kind), 1 if m >= requests.limit else 0))
        left = 0
        for i in range(m):  # in the order of arrival
            if gone > 0 and now - requests.arrived[line[0, i]] > requests.qos_s:
                gone -= 1
                continue
            line[0, left], line[1, left] = line[0, i], line[1, i]
            left += 1
        m = left
    line[0, m], line[1, m] = request, UNPLANNED
    return m + 1


def _handle_events(
    rule: Kernel,
    plans_ahead: bool,
    settings: FloatArray,
    most_late: float,
    requests: _Requests,
    outcome: _Outcome,
) -> int:
    """Handle events until there are none; return the number of late requests."""
    n, total = len(requests.kind), len(requests.arrived)
    instances = _Instances(
        np.ones(n, dtype=np.bool_), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(1)
    )
    line = np.empty((2, 256), dtype=np.int64)
    m, arrivals, late, events = 0, 0, 0, 0
    while True:
        j = _next_completion(instances.free_at, instances.idle)
        if j < 0 and arrivals == total:
            break
        events += 1
        if j >= 0 and (arrivals == total or instances.free_at[j] <= requests.arrived[arrivals]):
            now = instances.free_at[j]
            instances.idle[j] = True
        else:
            now = requests.arrived[arrivals]
            instances.largest[0] = max(instances.largest[0], requests.size[arrivals])
            if m == line.shape[1]:
                line = np.concatenate((line, np.empty_like(line)), axis=1)
            waited = m
            m = _join(arrivals, line, m, requests)
            late += waited + 1 - m
            arrivals += 1
        if events % _LOOK_EVERY == 0:
            overdue = (requests.arrived[line[0, :m]] < now - requests.qos_s).sum()
            if late + overdue > most_late:
                return _STOPPED
        if m > 0 and (plans_ahead or instances.idle.any()):
            answer = _answers(rule, settings, now, line[:, :m], requests, instances)
            m, more = _apply(answer, now, line, requests, instances, outcome)
            if more == _BROKEN:
                return _BROKEN
            late += more
    return late if late <= most_late else _STOPPED


_REQUESTS = tuple_type(
    (nb.float64, nb.int64, FLOATS, FLOATS, MATRIX, MATRIX, INTS, FLOATS, FLOATS), _Requests
)
_OUTCOME = tuple_type((FLOATS, FLOATS, INTS), _Outcome)
_loop = compiled_driver(
    _handle_events,
    nb.int64(
        nb.types.FunctionType(KERNEL_TYPE), nb.boolean, FLOATS, nb.float64, _REQUESTS, _OUTCOME
    ),
)
