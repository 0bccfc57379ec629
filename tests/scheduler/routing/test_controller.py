"""The controller of a route, step by step, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.scheduler.routing.controller import (
    RequestSharing,
    RouteActions,
    RouteController,
    RouteObservation,
    UnitObservation,
)
from circinus.scheduler.routing.regimes import Regime, RegimeSettings
from circinus.scheduler.routing.routers import RegimeRouter
from circinus.scheduler.routing.traffic import RouteMethod
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute


def unit(name: str, price: float) -> DeploymentUnit:
    return DeploymentUnit(
        name=name,
        model="m",
        hardware=name,
        framework="f",
        price_usd_per_hour=price,
        most_per_s=100.0,
        latency_s=0.5,
    )


# 150 requests/s and a quarter of headroom: two of either unit, of which a takes them for less
ROUTE = EndpointRoute(
    name="r", demand_per_s=150.0, latency_s=1.0, units=(unit("a", 1.0), unit("b", 2.0))
)
SETTINGS = RegimeSettings(settle_s=30.0)
TWO = UnitObservation(ready=2, available=None)
NONE = UnitObservation(ready=0, available=None)
LOST = UnitObservation(ready=0, available=0)


def controller(
    sharing: RequestSharing = RequestSharing.TURNS, *, verifies: bool = False
) -> RouteController:
    router = RegimeRouter(route=ROUTE, settings=SETTINGS)
    return RouteController(router=router, sharing=sharing, verifies=verifies)


def observed(a: UnitObservation, b: UnitObservation, at_s: float = 0.0) -> RouteObservation:
    return RouteObservation(at_s=at_s, demand_per_s=150.0, units={"a": a, "b": b})


def test_a_loss_wants_others_and_says_when_to_step_again_once_it_is_back() -> None:
    here = controller()
    assert here.step(observed(TWO, NONE)).counts == {"a": 2, "b": 0}
    lost = here.step(observed(LOST, NONE, 100.0))
    assert (lost.state.regime, lost.counts) == (Regime.CAPACITY, {"a": 0, "b": 2})
    assert here.step(observed(TWO, TWO, 200.0)).again_s == 230.0
    back = here.step(observed(TWO, TWO, 230.0))
    assert (back.state.regime, back.counts) == (Regime.COST, {"a": 2, "b": 0})


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 0),
        ({"is_retried": True}, 2),  # what cost mode wants
        ({"is_retried": True, "limit": 1}, 1),
        ({"fewest": 1}, 1),
        ({"fewest": 1, "limit": 0}, 0),
    ],
)
def test_of_a_lost_unit_as_many_should_run_as_can_be_tried(
    change: dict[str, int], count: int
) -> None:
    lost = replace(LOST, **change)  # type: ignore[arg-type]  # of the fields' types
    assert controller().step(observed(lost, TWO)).counts["a"] == count


@pytest.mark.parametrize(
    ("a", "keeps", "weights"),
    [
        (TWO, False, {"a": 1.0}),
        (replace(TWO, ready=1), True, {"a": 1 / 3, "b": 2 / 3}),  # by what those that run can do
        (replace(TWO, starting=1), True, {"a": 0.5, "b": 0.5}),
        (replace(TWO, ready=1, starting=0), False, {"a": 1.0}),
        (NONE, True, {"b": 1.0}),
    ],
)
def test_while_units_start_nothing_ends_and_what_runs_takes_the_requests(
    a: UnitObservation, keeps: bool, weights: dict[str, float]
) -> None:
    actions = controller().step(observed(a, TWO))
    assert actions.keep is keeps
    assert actions.weights == pytest.approx(weights)


def test_published_weights_hold_while_units_start_among_those_that_run() -> None:
    """Prices of 1 and 2: 2/3 and 1/3 in cost mode (3.3); what lacks has none, normalised."""
    router = RegimeRouter(route=ROUTE, method=RouteMethod.PUBLISHED, settings=SETTINGS)
    here = RouteController(router=router, sharing=RequestSharing.TURNS)
    one = UnitObservation(ready=1, available=None)  # two are wanted
    started = here.step(observed(one, one))
    assert started.keep
    assert started.weights == pytest.approx({"a": 2 / 3, "b": 1 / 3})
    assert here.step(observed(one, NONE)).weights == {"a": 1.0}
    lost = here.step(observed(LOST, one, 10.0))
    assert (lost.state.regime, lost.weights) == (Regime.CAPACITY, {"b": 1.0})
    uneven = here.step(observed(UnitObservation(ready=1, available=1), TWO, 20.0))
    assert uneven.weights == {"a": 0.5, "b": 0.5}  # equation 6, whatever each can do


@pytest.mark.parametrize("sharing", RequestSharing)
def test_only_units_that_agree_take_requests_and_one_that_disagrees_is_left_out(
    sharing: RequestSharing,
) -> None:
    here = controller(sharing, verifies=True)
    assert here.step(observed(TWO, TWO)).weights == {}
    good, bad = replace(TWO, agrees=True), replace(TWO, agrees=False)
    assert here.step(observed(TWO, good)).weights == {"b": 1.0}
    refused = here.step(observed(bad, good))
    assert (refused.weights, refused.counts) == ({"b": 1.0}, {"a": 0, "b": 2})
    assert refused.state.regime is Regime.COST  # it is no lack of capacity
    assert here.step(observed(good, good)).weights == {"a": 1.0}  # after a rollout, say


def test_between_decisions_only_requests_are_shared_anew() -> None:
    here = controller()
    here.step(observed(TWO, NONE))
    adapted = here.adapt(observed(LOST, TWO, 5.0))
    assert (adapted.state.regime, adapted.weights) == (Regime.COST, {"b": 1.0})
    assert here.step(observed(LOST, TWO, 5.0)).state.regime is Regime.CAPACITY


_units = st.builds(
    UnitObservation,
    ready=st.integers(0, 4),
    available=st.one_of(st.none(), st.integers(0, 4)),
    limit=st.one_of(st.none(), st.integers(0, 4)),
    fewest=st.integers(0, 2),
    is_retried=st.booleans(),
    agrees=st.sampled_from([True, False, None]),
)
_traces = st.lists(st.tuples(st.floats(0.0, 60.0), _units, _units), min_size=1, max_size=12)


def followed(
    trace: list[tuple[float, UnitObservation, UnitObservation]],
    sharing: RequestSharing,
    *,
    verifies: bool,
) -> list[RouteActions]:
    here, at_s, actions = controller(sharing, verifies=verifies), 0.0, []
    for later_s, a, b in trace:
        at_s += later_s
        actions.append(here.step(observed(a, b, at_s)))
    return actions


@given(_traces, st.sampled_from(RequestSharing), st.booleans())
def test_equal_traces_have_equal_actions_within_what_units_allow(
    trace: list[tuple[float, UnitObservation, UnitObservation]],
    sharing: RequestSharing,
    verifies: bool,
) -> None:
    actions = followed(trace, sharing, verifies=verifies)
    assert actions == followed(trace, sharing, verifies=verifies)
    for (_, a, b), step in zip(trace, actions, strict=True):
        assert sum(step.weights.values()) == pytest.approx(1.0 if step.weights else 0.0)
        for name, each in {"a": a, "b": b}.items():
            assert each.limit is None or step.counts[name] <= each.limit
            if verifies and each.agrees is False:
                assert step.weights.get(name, 0.0) == 0.0
            if sharing is RequestSharing.TURNS and not each.ready:
                assert step.weights.get(name, 0.0) == 0.0
