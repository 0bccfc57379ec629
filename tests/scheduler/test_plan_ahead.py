from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import Fleet, Start
from circinus.scheduler.simulation.engine import Scenario, SimulationRun, simulate
from tests.scheduler.states import state

POLICY = PlanAhead(old=2.0, overdue=3.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"xi": 0.0}, r"xi must be in \(0, 1\]"),
        ({"lead": -1.0}, "lead must be"),
        ({"delay_weight": nan}, "delay_weight must be"),
        ({"old": 0.9}, r"old must be finite and >= 1, got 0\.9"),
        ({"old": 4.0, "overdue": 3.9}, r"overdue must be finite and >= old, which is 4, got 3\.9"),
        ({"overdue": inf}, "overdue must be finite"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        PlanAhead(**changed)


def test_a_request_that_is_late_everywhere_waits_for_those_that_are_not() -> None:
    # the first is late at 0.9 + 0.2 > 1, the second in time
    decision = POLICY.decide(state([[0.2], [0.5]], waited=[0.9, 0.4], qos=1.0))
    assert decision.starts == [Start(1, 0)]


def test_an_old_request_passes_where_nobody_planned_is_late_for_it() -> None:
    # 0.2 + 0.5 s fit before the deadline of the second when 0.3 s have passed, not when 0.4 have
    def starts(waited: float) -> list[Start]:
        given_state = state([[0.2], [0.5]], waited=[2.1, waited], qos=1.0)
        return list(POLICY.decide(given_state).starts)

    assert starts(0.3) == [Start(0, 0)]
    assert starts(0.4) == [Start(1, 0)]


@pytest.mark.parametrize(("waited", "first"), [(3.0, 1), (3.01, 0)])
def test_beyond_the_age_limit_a_request_goes_before_everybody(waited: float, first: int) -> None:
    decision = POLICY.decide(state([[0.8], [0.5]], waited=[waited, 0.4], qos=1.0))
    assert decision.starts == [Start(first, 0)]


def test_a_busy_instance_is_kept_for_an_overdue_request_that_is_done_there_first() -> None:
    # overdue: 0.1 + 0.2 s on the busy one, 1 s on the idle one. The other request would rather
    # wait for the busy one, but after the overdue one it is late there: 0.1 + 0.2 + 0.2 > 0.4
    rows, busy, idle = [[0.2, 1.0], [0.2, 0.35]], [0.1, 0.0], [False, True]
    kept = state(rows, waited=[4.0, 0.6], qos=1.0, busy=busy, idle=idle)
    assert POLICY.decide(kept).starts == [Start(1, 1)]
    alone = state(rows[1:], waited=0.6, qos=1.0, busy=busy, idle=idle)
    assert POLICY.decide(alone).starts == []


def test_overdue_requests_are_placed_in_the_order_of_arrival() -> None:
    both = state([[0.2, 1.0]] * 2, waited=[4.0, 3.5], qos=1.0, busy=[0.9, 0.0], idle=[False, True])
    # the older one is done at 1.0 on the idle one; then the younger at 1.1 on the busy one
    assert POLICY.decide(both).starts == [Start(0, 1)]


@given(seed=st.integers(0, 10**6), doublings=st.integers(-20, 20))
def test_nothing_in_it_is_measured_in_seconds(seed: int, doublings: int) -> None:
    # all seconds twice as long, deadlines too, which is exact in binary: the same decision
    rng = np.random.default_rng(seed)
    m, n = rng.integers(1, 12, 2)
    waited, predicted = rng.uniform(0, 3, m) ** 4, rng.uniform(0.1, 2, (m, n))
    busy, idle, price = rng.uniform(0, 2, n), rng.random(n) < 0.5, rng.uniform(0.1, 1, n)
    decisions = [
        PlanAhead().decide(
            state(
                (predicted * unit).tolist(),
                waited=(waited * unit).tolist(),
                qos=unit,
                busy=(busy * ~idle * unit).tolist(),
                idle=idle.tolist(),
                price=price.tolist(),
            )
        )
        for unit in (1.0, 2.0**doublings)
    ]
    assert decisions[0] == decisions[1]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), servers=st.integers(1, 4), load=st.floats(0.7, 3.0))
def test_nobody_is_later_than_the_bound(seed: int, servers: int, load: float) -> None:
    run = _crowd(seed, servers, load)
    arrived, count = run.scenario.arrived_s, 0
    for i in range(len(arrived)):
        limit_s = arrived[i] + POLICY.overdue * run.scenario.qos_s
        if run.started_s[i] > limit_s:
            count += 1
            assert run.finished_s[i] <= _bound_s(run, i, limit_s) + 1e-6
    assert count > 0 or load < 2


def _crowd(seed: int, servers: int, load: float) -> SimulationRun:
    """Two kinds of instance, many too few for the load."""
    rng = np.random.default_rng(seed)
    kind = np.arange(servers) % 2
    service_s = rng.uniform(0.1, 0.9, (150, 1)) * np.array([1.0, 2.5])
    arrived_s = np.cumsum(rng.exponential(0.5 / servers / load, 150))
    fleet = Fleet(kind, np.where(kind, 0.4, 1.0), np.where(kind, 0.4, 1.0))
    scenario = Scenario(
        arrived_s=arrived_s,
        size=service_s[:, 0],
        service_s=service_s,
        predicted_s=service_s,
        qos_s=1.0,
        fleet=fleet,
    )
    return simulate(scenario, POLICY)


def _bound_s(run: SimulationRun, request: int, limit_s: float) -> float:
    """When it is done if those overdue before it, then it, go where they are done first."""
    service_s = run.scenario.service_s[:, run.scenario.fleet.kind]
    free_s = np.full(service_s.shape[1], limit_s)
    running = (run.started_s <= limit_s) & (run.finished_s > limit_s)
    for other in np.flatnonzero(running).tolist():
        free_s[run.instance[other]] = run.finished_s[other]
    waiting = np.flatnonzero(run.started_s > limit_s)
    for other in waiting[waiting <= request].tolist():
        at = int(np.argmin(free_s + service_s[other]))
        free_s[at] += service_s[other, at]
    return float(free_s[at])
