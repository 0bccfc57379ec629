"""What a search will cost where operators call: calls, tokens and dollars beside seconds."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.store.records import from_document, to_document
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import Endpoint, RateLimits, Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.profile import Profile
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.bill import Bill, CallsCost, Cost, ExpectedWait, Forecast
from circinus.planner.search.budget import Budget
from circinus.planner.search.forecasting import (
    Amounts,
    CostSpan,
    Probes,
    from_earlier,
    from_probes,
    with_waits,
    within,
)
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.strategy.in_order import random_search
from circinus.profiler.stopping import Betting
from tests.oracles.called_problems import CallingEvaluator, infrastructure
from tests.oracles.synthetic import SyntheticEvaluator

GRAPH = PipelineGraph(
    name="ask",
    operators=(
        OperatorSpec(name="find", knobs=(Knob(name="k", values=(1, 2)),)),
        OperatorSpec(
            name="read",
            after=("find",),
            knobs=(Knob(name="model", values=("own", "hosted")),),
            calls=("hosted",),
        ),
    ),
)
SPACE = ConfigurationSpace(GRAPH)
ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))  # 0.1 cents/s
SPAN = CostSpan(configurations=(1, 2, 4), inputs=(0.5, 0.5, 0.5), confidence=0.8)
CALL = Usage(calls=1.0, input_tokens=100.0, cached_tokens=20.0, output_tokens=10.0, usd=0.01)


def budget(**limits: float) -> Budget:
    return Budget.of(PlanningLimits(**{"profiling_s": 1e6, **limits}), ONE)  # type: ignore[arg-type]  # whichever the test varies


def probe(model: str, read_s: float, used: Usage) -> Profile:
    """Return a probe of two inputs, the second of which failed."""
    both = np.array([1.0, np.nan])
    usage = np.zeros((2, len(Usage._fields), 2))
    usage[1] = np.outer(used, both)
    usage[0, :, 1] = np.nan
    return Profile(
        configuration=SPACE.parse({"find": {"k": 1}, "read": {"model": model}}),
        inputs=np.arange(2),
        score=both,
        operator_s=np.outer((0.25, read_s), both),
        output_bytes=np.outer((1.0, 1.0), both),
        input_bytes=both,
        used=usage,
    )


PROBES = (probe("own", 1.0, Usage()), probe("hosted", 3.0, CALL))


def forecast(called: tuple[CallsCost, ...] = (), **limits: float) -> Forecast:
    measuring = SyntheticEvaluator(GRAPH, lambda _: 0.5, lambda _: 1.0, population=16)
    told = from_probes(PROBES, SPACE, measuring, budget(**limits), SPAN, called)
    assert told is not None
    return told


def calls_usd(cost: Cost) -> float:
    return sum(each.usd for each in cost.calls)


def test_calls_are_forecast_from_what_probes_used_as_seconds_are() -> None:
    # 2 inputs of each: half the root of 16. 1, 2 and 4 of the 4 configurations meet 1, 1.5 and
    # 1.875 settings of `find` and 1, 1.75 and 2.734375 of `read`; a run of `read` makes 0.25, 0.5
    # and 0.75 calls, is on machines for as many seconds, and takes 1.5, 2 and 2.5.
    told = forecast()
    assert told.low.seconds == pytest.approx(2 * (0.25 + 1.5))
    assert told.low.usd == pytest.approx(0.001 * 2 * (0.25 + 0.25) + 0.005)
    assert told.expected.seconds == pytest.approx(2 * (1.5 * 0.25 + 1.75 * 2))
    assert told.expected.calls_s == pytest.approx(2 * 1.75 * 1.5)
    assert told.expected.usd == pytest.approx(0.001 * 2.5 + 0.0175)
    (read,) = told.expected.calls
    assert read.operator == "read"
    tokens = (read.input_tokens, read.cached_tokens, read.output_tokens)
    assert (read.calls, *tokens, read.usd) == pytest.approx((1.75, 175.0, 35.0, 17.5, 0.0175))
    assert told.high.usd == pytest.approx(0.001 * 5.0390625 + 0.041015625)


def test_a_forecast_says_how_long_limits_of_endpoints_make_it_wait() -> None:
    # `read` has 4 settings, one of two kinds calls: with 16 inputs 16 * 4 calls at most, 0.5 at
    # least, of 110 tokens each. At 20 a minute the last of 64 leaves in the fourth minute; of 7040
    # tokens at 6000, in the second.
    limits = RateLimits(requests_per_minute=20, tokens_per_minute=6000)
    hosted = Tier(name="api", endpoints=(Endpoint(name="hosted", limits=limits),))
    link = Link(between=("t", "api"), bandwidth_bytes_per_s=1e8)
    tiers = replace(ONE, tiers=(*ONE.tiers, hosted), links=(link,))
    told = with_waits(forecast(), SPACE, 16, tiers)
    assert told.waits == (
        ExpectedWait("20 requests per minute of endpoint hosted", 0.0, 180.0),
        ExpectedWait("6000 tokens per minute of endpoint hosted", 0.0, 60.0),
    )
    (first, _) = with_waits(forecast(), SPACE, 16, tiers, response_s=100.0).waits
    assert first.high_s == 100.0
    assert with_waits(forecast(), SPACE, 16, ONE).waits == ()


def test_dollars_left_bound_machines_and_calls_together() -> None:
    # From 0.6 cents, which the low end costs, to the 2 cents in the middle the half is left.
    told = forecast(profiling_usd=0.013)
    assert told.low == forecast().low
    assert told.expected == told.high
    assert told.high.usd == pytest.approx(0.013)
    assert told.high.seconds == pytest.approx((3.5 + 7.75) / 2)
    assert calls_usd(told.high) == pytest.approx((0.005 + 0.0175) / 2)


def test_seconds_waited_for_endpoints_do_not_count_as_profiling() -> None:
    told = forecast(profiling_s=1.75)
    assert told.high.seconds - told.high.calls_s == pytest.approx(1.75)
    assert told.high.seconds == pytest.approx((3.5 + 7.75) / 2)


def test_what_calls_cost_until_now_is_the_least_whoever_made_them() -> None:
    judge = CallsCost(operator="judge", calls=3.0, usd=0.002, open_usd=0.001)
    told = forecast((judge,), profiling_usd=0.0025)  # cut off calls count as the most they may be
    assert told.low == told.high
    assert told.low.calls == (CallsCost(operator="judge", calls=3.0, usd=0.003),)
    assert calls_usd(forecast((judge,)).expected) == pytest.approx(0.0175 + 0.003)


def test_infinite_usage_is_forecast_as_none() -> None:
    measuring = SyntheticEvaluator(GRAPH, lambda _: 0.5, lambda _: 1.0, population=16)
    probes = [probe("hosted", 3.0, CALL._replace(output_tokens=float("inf")))]
    told = from_probes(probes, SPACE, measuring, budget(), SPAN)
    assert told is not None
    assert (told.high.calls[0].output_tokens, told.high.calls[0].calls) == (0.0, 5.46875)


def earlier(seconds: float, calls_s: float, usd: float, open_usd: float = 0.0) -> Cost:
    read = CallsCost(operator="read", calls=100 * usd, usd=usd, open_usd=open_usd)
    return Cost.of(1, seconds, 7.2, calls_s=calls_s, calls=(read,))


def test_earlier_bills_forecast_calls_at_what_they_cost_and_machines_at_todays_price() -> None:
    bills = [earlier(s, 1.0, usd) for s, usd in ((3.0, 0.04), (5.0, 0.01), (4.0, 0.02))]
    told = from_earlier([*bills, earlier(9.0, 7.0, 0.02, open_usd=0.01)], budget())
    assert told is not None
    ends = (told.low, told.expected, told.high)
    assert [cost.seconds for cost in ends] == [3.0, 5.0, 9.0]
    assert [cost.seconds - cost.calls_s for cost in ends] == [2.0, 3.0, 4.0]
    assert [calls_usd(cost) for cost in ends] == pytest.approx([0.01, 0.03, 0.04])
    assert [cost.usd for cost in ends] == pytest.approx([0.012, 0.033, 0.044])


def test_bills_that_were_stored_without_calls_are_read_and_forecast_none() -> None:
    paid = {"runs": 3, "seconds": 2.0, "usd": 0.5}
    old = from_document(Bill, {"paid": paid, "against": "all"}).paid
    assert (old.calls, old.calls_s) == ((), 0.0)
    told = from_earlier([old] * 4, budget())
    assert told is not None
    assert told.high == Cost(runs=3, seconds=2.0, usd=0.002)
    mixed = from_earlier([old] * 3 + [earlier(9.0, 7.0, 0.02)], budget())
    assert mixed is not None
    assert (mixed.low.calls, calls_usd(mixed.high)) == ((), 0.02)


def test_a_forecast_with_calls_survives_the_way_to_the_store_and_back() -> None:
    bill = Bill(forecast=forecast())
    assert from_document(Bill, to_document(bill)) == bill


amounts = st.builds(
    lambda runs, machine_s, waited_s, usd: Amounts.of(
        runs=runs,
        seconds=machine_s + waited_s,
        calls_s=waited_s,
        calls=(CallsCost(operator="read", calls=usd, usd=usd),),
        operators=("read",),
    ),
    *[st.floats(0, 1e4)] * 4,
)


@given(amounts, st.lists(amounts, min_size=3, max_size=3), st.floats(1e-3, 1e4), st.floats(0, 1e4))
def test_no_end_costs_more_than_limits_or_less_than_what_is_spent(
    spent: Amounts, wholes: list[Amounts], limit_s: float, limit_usd: float
) -> None:
    limits = budget(profiling_s=limit_s, profiling_usd=limit_usd)
    costs = within(wholes, spent, limits)
    at_least = [spent.cost(3.6), *costs[:-1]]
    for least, cost in zip(at_least, costs, strict=True):
        machine_s = cost.seconds - cost.calls_s
        assert cost.usd == pytest.approx(machine_s * 0.001 + calls_usd(cost))
        assert cost.usd <= max(limit_usd, spent.usd(3.6)) * (1 + 1e-9) + 1e-9
        assert machine_s <= max(limit_s, spent.machine_s) * (1 + 1e-9) + 1e-9
        assert cost.seconds >= least.seconds
        assert cost.usd >= least.usd * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_search_that_calls_tells_its_calls_before_and_stays_below_its_limit(seed: int) -> None:
    where = infrastructure(np.random.default_rng(seed))
    query = Query(
        pipeline="ask",
        slo=Slo(accuracy=0.0, latency_s=100.0),
        limits=PlanningLimits(profiling_usd=0.25),
    )
    settings = SearchSettings(strategy=random_search, forecast=Probes())
    measuring = CallingEvaluator(seed, where)
    told = search(query, where, measuring, Betting(), settings=settings).bill.forecast
    assert told is not None
    assert {cost.operator for cost in told.high.calls} >= {"check"}
    assert 0 < told.low.usd <= told.expected.usd <= told.high.usd <= 0.25 * (1 + 1e-9)
    free = replace(query, limits=PlanningLimits())
    again = search(free, where, CallingEvaluator(seed, where), Betting(), settings=settings)
    assert again.bill.forecast is not None
    (check,) = (each for each in again.bill.forecast.high.calls if each.operator == "check")
    # It calls once a run. All 6 configurations may be met, each on some roots of 20 inputs.
    met = 6 * (1 - (5 / 6) ** 6)
    assert check.calls == pytest.approx(Probes().span.inputs[2] * sqrt(20) * met)
