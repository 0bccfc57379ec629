"""What the user ruled out is in no plan; batch work; a device of one's own."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import DeviceProfile, Infrastructure, Link
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.restrictions import Choice, Restrictions, Stays
from circinus.pipelines.model.slo import ANY_LATENCY_S, Slo, SloState
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.result import PlanningOutcome, PlanningResult
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.profiler.stopping import TTest
from tests.oracles.synthetic import SyntheticEvaluator, additive, chain

THREE = Infrastructure(
    name="three",
    tiers=(
        Tier(name="device", machines=1, speed_factor=0.5, dedicated=True),
        Tier(name="edge", machines=3, price_usd_per_hour=1.0),
        Tier(name="cloud", machines=3, price_usd_per_hour=3.0, speed_factor=2.0),
    ),
    links=(
        Link(between=("device", "edge"), bandwidth_bytes_per_s=1e6, delay_s=0.001),
        Link(between=("edge", "cloud"), bandwidth_bytes_per_s=1e6, delay_s=0.001),
    ),
)
_ACCURACY = additive([[0.3, 0.5, 0.6], [0.0, 0.1, 0.2, 0.3]])
_SECONDS = additive([[0.01, 0.02, 0.04], [0.0, 0.01, 0.02, 0.04]])


def _search(
    query: Query, infrastructure: Infrastructure = THREE, **more: object
) -> PlanningResult:
    evaluator = SyntheticEvaluator(chain(3, 4), _ACCURACY, _SECONDS)
    settings = SearchSettings(strategy=MultiFidelity)
    return search(query, infrastructure, evaluator, TTest(), settings=settings)


def _query(restrictions: Restrictions | None = None, **slo: float) -> Query:
    return Query(
        pipeline="synthetic",
        slo=replace(Slo(accuracy=0.5, latency_s=0.3), **slo),  # type: ignore[arg-type]  # floats
        restrictions=restrictions or Restrictions(),
    )


def test_a_pin_to_a_tier_without_machines_is_refused() -> None:
    empty = replace(THREE, tiers=(*THREE.tiers[:2], replace(THREE.tiers[2], machines=0)))
    pinned = Restrictions(tiers={"o1": Choice(only=("cloud",))})
    with pytest.raises(InvalidInput, match=r"tiers\.o1 must leave a tier that has machines"):
        _search(_query(pinned), empty)


_TIERS = st.sets(st.sampled_from(["device", "edge", "cloud"]), min_size=1)


@settings(max_examples=15, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["o0", "o1"]), _TIERS),
    st.sets(st.sampled_from([0, 1, 2, 3]), max_size=3),
    st.booleans(),
)
def test_every_plan_keeps_to_every_restriction(
    tiers: dict[str, set[str]], never: set[int], at_home: bool
) -> None:
    if at_home:
        tiers = {o: {*allowed, "device"} for o, allowed in tiers.items()}
    result = _search(
        _query(
            Restrictions(
                tiers={o: Choice(only=tuple(sorted(t))) for o, t in tiers.items()},
                knobs={"o1": {"k": Choice(never=tuple(never))}} if never else {},
                stays_on_device=Stays.INPUT if at_home else Stays.NOTHING,
            )
        )
    )
    # (2, 0) alone scores 0.6: whatever is ruled out of the second knob, something is left.
    plans = result.plans or (result.shortfall.closest,) if result.shortfall else result.plans
    for plan in plans:
        assert plan is not None
        placement = plan.deployment.placement
        assert all(placement[o] in allowed for o, allowed in tiers.items())
        assert plan.configuration.of("o1")["k"] not in never
        assert not at_home or placement["o0"] == "device"


def test_what_is_restricted_to_the_infeasible_is_told_infeasible() -> None:
    slow = Restrictions(knobs={"o0": {"k": Choice(only=(0,))}, "o1": {"k": Choice(only=(0,))}})
    result = _search(_query(slow))  # 0.3 alone is left
    assert result.outcome is PlanningOutcome.INFEASIBLE
    assert result.measured == 1


def test_throughput_is_kept_up_with_and_paid_for() -> None:
    # 0.5 is first reached in 0.02 s by (1, 0): 40 per second busy 0.8 machines of the edge.
    result = _search(
        _query(
            Restrictions(tiers={"o0": Choice(only=("edge",)), "o1": Choice(only=("edge",))}),
            latency_s=ANY_LATENCY_S,
            throughput_per_s=40.0,
        )
    )
    best = result.plans[0]
    assert result.outcome is PlanningOutcome.FEASIBLE
    assert best.cost_usd_per_hour == pytest.approx(0.8)
    for plan in result.plans:
        assert plan.throughput_per_s.value >= 40.0 * (1 - 1e-9)
        assert plan.states(_query(throughput_per_s=40.0).slo)["throughput"] is SloState.MET


def test_more_throughput_than_the_machines_give_is_infeasible() -> None:
    on_edge = Choice(only=("edge",))
    most = 3 / 0.02  # three machines of the edge, 0.02 s each
    for rate, outcome in (
        (most, PlanningOutcome.FEASIBLE),
        (most * 1.01, PlanningOutcome.INFEASIBLE),
    ):
        query = _query(
            Restrictions(tiers={"o0": on_edge, "o1": on_edge}),
            latency_s=ANY_LATENCY_S,
            throughput_per_s=rate,
        )
        assert _search(query).outcome is outcome, ceil(rate)


def test_a_query_with_a_faster_device_may_use_it() -> None:
    at_home = Restrictions(stays_on_device=Stays.EVERYTHING)
    # 0.5 takes at least 0.02 s on the reference machine, twice that on this device.
    query = _query(at_home, latency_s=0.02)
    assert _search(query).outcome is PlanningOutcome.INFEASIBLE
    own = replace(query, device=DeviceProfile(speed_factor=2.0))
    assert _search(own).plans[0].latency_s.value <= 0.02


def test_a_device_profile_needs_a_device() -> None:
    query = replace(_query(), device=DeviceProfile(speed_factor=2.0))
    with pytest.raises(InvalidInput, match="must be left out"):
        _search(query, PRESETS["one-tier"])
