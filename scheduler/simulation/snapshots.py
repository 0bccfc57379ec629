"""What a policy saw at a moment of a run, put together again."""

from __future__ import annotations

import numpy as np

from scheduler.dispatch.policy import UNPLANNED, DispatchState
from scheduler.simulation.engine import Run


def state_at(run: Run, request: int) -> DispatchState:
    """Give the state in which the policy was asked when a request arrived.

    What policies had planned is not kept: every request counts as unplanned.
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
    )
