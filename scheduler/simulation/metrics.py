"""How late a simulated run was, what its policy saw, and what an oracle would have reached."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from circinus.scheduler.dispatch.policy import UNPLANNED, DispatchState, FloatArray, IntArray
from circinus.scheduler.simulation.engine import SLACK_S, SimulationRun


def lateness_s(run: SimulationRun) -> tuple[float, float]:
    """Return by how much late answers were late on average, and the worst; 0 if none was.

    ValueError if nothing was served.
    """
    served = np.isfinite(run.finished_s)
    if not served.any():
        raise ValueError("no request of the run was served.")
    late = run.finished_s[served] - run.scenario.arrived_s[served] - run.scenario.qos_s
    late = late[late > SLACK_S]
    return (float(late.mean()), float(late.max())) if len(late) else (0.0, 0.0)


def state_at(run: SimulationRun, request: int) -> DispatchState:
    """Return the state in which the policy decided when a request arrived.

    What policies had planned is not recorded: every request counts as unplanned.
    """
    scenario = run.scenario
    now = scenario.arrived_s[request]
    begun = run.started_s < now
    waits = np.arange(len(begun)) <= request
    waits &= ~begun & ~((run.instance < 0) & (scenario.arrived_s < now))
    waiting = np.flatnonzero(waits)
    count = len(scenario.fleet)
    busy = np.zeros(count)
    idle = np.ones(count, dtype=np.bool_)
    for served in np.flatnonzero(begun & (run.finished_s > now)).tolist():
        j = int(run.instance[served])
        predicted = scenario.predicted_s[served, scenario.fleet.kind[j]]
        left = run.started_s[served] + predicted - now
        busy[j] = left if left > 0 else now - run.started_s[served]
        idle[j] = False
    return DispatchState(
        now - scenario.arrived_s[waiting],
        np.full(len(waiting), scenario.qos_s),
        scenario.size[waiting],
        np.full(len(waiting), UNPLANNED, dtype=np.int64),
        np.ascontiguousarray(scenario.predicted_s[waiting][:, scenario.fleet.kind]),
        busy,
        idle,
        scenario.fleet,
        largest=float(scenario.size[: request + 1].max()),
    )


def oracle_rate(
    size: IntArray,  # (N,)
    service_s: FloatArray,  # (N, n)
    kind: IntArray,  # (n,)
    qos_s: float,
) -> float:
    """Return the rate of a dispatcher that knows all requests (ORCL; Kairos, section 7).

    Requests per second until all are served; 0 if some cannot be served in time. Requests are
    sorted by size; there is no waiting. A base instance takes the largest that is left, an
    auxiliary one the smallest, as long as it meets the QoS there. Not a policy: it needs the
    future. Kind 0 is the base type.
    """
    order = np.argsort(size, kind="stable")
    seconds = service_s[order].tolist()
    free = [(0.0, j) for j in range(len(kind))]
    heapify(free)
    first, last, end = 0, len(seconds) - 1, 0.0
    while first <= last and free:
        at, j = heappop(free)
        place = last if kind[j] == 0 else first
        taken = seconds[place][j]
        if taken > qos_s:
            continue  # larger ones fit even less: this instance is done
        last, first = (last - 1, first) if kind[j] == 0 else (last, first + 1)
        end = max(end, at + taken)
        heappush(free, (at + taken, j))
    return len(seconds) / end if first > last and end > 0 else 0.0
