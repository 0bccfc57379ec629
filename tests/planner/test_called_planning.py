"""Where operators may be, by what they call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, EndpointCall, RateLimits, Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import Profile
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.restrictions import Choice, Restrictions
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.answers.break_even import break_even
from circinus.planner.answers.known import Known, answer, evaluated
from circinus.planner.deployment.callers import Callers, limited, limited_uses, tightest
from circinus.planner.deployment.placement import Placements, placements, placements_of
from circinus.planner.deployment.prediction import effective_latencies, predict
from circinus.planner.models.knob_process import KnobProcess, correlations
from circinus.planner.models.operator_cells import OperatorDollars, called_by_cells, dollars_kernel
from circinus.planner.models.operator_seconds import SecondsModel
from circinus.planner.strategy.in_order import exhaustive_search
from circinus.planner.strategy.protocol import SearchSetting
from circinus.planner.strategy.space import indices_of
from circinus.profiler.stopping import TTest
from tests.oracles.called_problems import GRAPH, SPACE, CallingEvaluator, infrastructure
from tests.oracles.called_problems import placements as oracle_placements
from tests.oracles.synthetic import chain

WHERE = infrastructure(np.random.default_rng(0))


def remote(name: str, *endpoints: str) -> Tier:
    return Tier(name=name, endpoints=tuple(Endpoint(name=each) for each in endpoints))


def joined(*tiers: Tier) -> Infrastructure:
    links = tuple(
        Link(between=(tiers[0].name, tier.name), bandwidth_bytes_per_s=1e6) for tier in tiers[1:]
    )
    return Infrastructure(name="joined", tiers=tiers, links=links)


def spots(graph: PipelineGraph, where: Infrastructure) -> tuple[Callers, Placements]:
    callers = Callers.of(graph, where, Restrictions())
    return callers, placements_of(callers, graph, where)


@given(st.integers(0, SPACE.size - 1))
def test_a_configuration_may_be_wherever_its_calls_and_machines_are(number: int) -> None:
    callers, every = spots(GRAPH, WHERE)
    configuration = SPACE.configuration(number)
    mine = every.where(callers, callers.called(configuration))
    assert sorted(map(tuple, mine.tiers.tolist())) == sorted(
        oracle_placements(WHERE, configuration)
    )
    # A caller takes nothing of a machine, an operator that calls nothing all of one.
    on_machines = np.array([tier.machines > 0 for tier in WHERE.tiers])
    assert ((mine.widths > 0) <= on_machines).all()


def test_equal_questions_have_one_answer() -> None:
    callers, every = spots(GRAPH, WHERE)
    called = [callers.called(SPACE.configuration(n)) for n in range(SPACE.size)]
    found = {id(every.where(callers, one)) for one in called}
    assert len(found) == len(set(called)) == 3  # own, small, large


def test_who_calls_nothing_is_placed_as_before() -> None:
    graph, where = chain(2, 3), joined(Tier(name="edge"), Tier(name="cloud"))
    with_remote = joined(*where.tiers, remote("hosted", "small"))
    callers, found = spots(graph, with_remote)
    assert not callers.any_calls
    assert found.tiers.tolist() == placements(graph, where).tiers.tolist()


def test_endpoints_of_one_run_must_be_on_one_tier() -> None:
    both = OperatorSpec(name="ask", calls=("small", "large"))
    graph = PipelineGraph(name="g", operators=(both,))
    apart = joined(Tier(name="edge"), remote("near", "small"), remote("far", "large"))
    message = r"which are: near \(small\); far \(large\), got \['small', 'large'\]"
    with pytest.raises(InvalidInput, match=message):
        Callers.of(graph, apart, Restrictions())
    together = joined(Tier(name="edge"), remote("near", "small", "large", "other"))
    assert Callers.of(graph, together, Restrictions()).choices() == [[1]]


def test_settings_decide_by_all_knobs_that_a_call_names() -> None:
    knobs = (Knob(name="a", values=(0, 1)), Knob(name="b", values=("x", "y")))
    calls = (EndpointCall(endpoint="small", when={"a": 1, "b": "y"}),)
    graph = PipelineGraph(name="g", operators=(OperatorSpec(name="o", knobs=knobs, calls=calls),))
    callers = Callers.of(graph, joined(Tier(name="edge"), remote("near", "small")), Restrictions())
    space = ConfigurationSpace(graph)
    called = [callers.called(space.configuration(n)) for n in range(4)]
    assert [bool(one[0]) for one in called] == [False, False, False, True]


def test_all_faults_are_told_at_once() -> None:
    operators = tuple(OperatorSpec(name=name, calls=(name,)) for name in ("a", "b"))
    graph = PipelineGraph(name="g", operators=operators)
    with pytest.raises(InvalidInput) as told:
        Callers.of(graph, joined(Tier(name="edge")), Restrictions())
    assert [violation.field for violation in told.value.violations] == [
        "operator a.calls",
        "operator b.calls",
    ]


def test_a_pipeline_that_only_calls_needs_no_machine() -> None:
    graph = PipelineGraph(name="g", operators=(OperatorSpec(name="ask", calls=("small",)),))
    _, found = spots(graph, joined(Tier(name="edge", machines=0), remote("near", "small")))
    assert found.tiers.tolist() == [[1]]
    assert found.widths.tolist() == [[0, 0]]


def test_data_may_go_to_a_remote_tier_and_back_but_not_down_when_placements_are_many() -> None:
    operators = [
        OperatorSpec(name=f"o{i}", after=(f"o{i - 1}",) if i else (), calls=("small",) * (i == 1))
        for i in range(3)
    ]
    graph = PipelineGraph(name="g", operators=tuple(operators))
    where = joined(Tier(name="edge"), Tier(name="cloud"), remote("near", "small"))
    callers = Callers.of(graph, where, Restrictions())
    found = placements_of(callers, graph, where, most=3).tiers.tolist()
    assert found == [[0, 2, 0], [0, 2, 1], [1, 2, 1]]  # not [1, 2, 0]


def test_settings_left_without_a_placement_that_goes_up_are_refused() -> None:
    own = Knob(name="model", values=("own", "small"))
    operators = (
        OperatorSpec(name="a", knobs=(own,), calls=("small",)),
        OperatorSpec(name="b", after=("a",)),
        OperatorSpec(name="c", after=("b",)),
        OperatorSpec(name="d", after=("c",)),
    )
    graph = PipelineGraph(name="g", operators=operators)
    where = joined(Tier(name="edge"), Tier(name="cloud"), remote("near", "small"))
    tiers = {"a": Choice(only=("cloud", "near")), "b": Choice(only=("edge",))}
    callers = Callers.of(graph, where, Restrictions(tiers=tiers))
    every = placements_of(callers, graph, where, most=7)
    space = ConfigurationSpace(graph)
    assert len(every.where(callers, callers.called(space.configuration(1)))) == 3
    with pytest.raises(InvalidInput, match="that never sends data back down"):
        every.where(callers, callers.called(space.configuration(0)))


ENDPOINT_LIMITS_GRAPH = PipelineGraph(
    name="g",
    operators=(
        OperatorSpec(name="a", calls=("small",)),
        OperatorSpec(name="b", after=("a",), calls=("small", "large")),
        OperatorSpec(name="c", after=("b",)),
    ),
)
CALLED = (frozenset({"small"}), frozenset({"small", "large"}), frozenset[str]())


def context(
    limits: RateLimits, rate: float | None = None, throughput: float | None = None
) -> PlanningContext:
    where = Infrastructure(
        name="two",
        tiers=(
            Tier(name="edge"),
            Tier(
                name="hosted",
                endpoints=(Endpoint(name="small", limits=limits), Endpoint(name="large")),
            ),
        ),
        links=(Link(between=("edge", "hosted"), bandwidth_bytes_per_s=1e9),),
    )
    slo = Slo(accuracy=0.5, latency_s=100.0, throughput_per_s=throughput)
    query = Query(pipeline="g", slo=slo, request_rate_per_s=rate)
    return PlanningContext(graph=ENDPOINT_LIMITS_GRAPH, infrastructure=where, query=query)


def work() -> Work:
    """Means over two inputs: a takes 1 s, 1 call, 300 tokens; b takes 2 s, 3 calls, 600 tokens."""
    used = np.zeros((3, len(Usage._fields), 2))
    used[0, :, 0], used[0, :, 1] = Usage(1, 100, 0, 100, 0.01), Usage(1, 300, 100, 100, 0.03)
    used[1, :, 0], used[1, :, 1] = Usage(2, 300, 0, 100, 0.01), Usage(4, 700, 0, 100, 0.01)
    return Work(
        operator_s=np.array([[0.5, 1.5], [1.0, 3.0], [0.01, 0.01]]),
        output_bytes=np.zeros((3, 2)),
        input_bytes=np.zeros(2),
        used=used,
    )


def test_without_limits_or_calls_nothing_bounds_a_plan() -> None:
    free = context(RateLimits(), rate=1e6)
    assert limited_uses(free, CALLED, work()) == ()
    assert tightest(free, CALLED, work()) is None
    bound = context(RateLimits(concurrent=1), rate=1e6)
    assert limited_uses(bound, None, work()) == ()
    assert limited_uses(bound, (frozenset(), frozenset(), frozenset()), work()) == ()
    assert limited(bound, None, work(), 0.7) == 0.0


@pytest.mark.parametrize(
    ("limits", "most_per_s"),
    [
        (RateLimits(requests_per_minute=120), 0.5),  # 4 calls a request: 240 at one per second
        (RateLimits(tokens_per_minute=5400), 0.1),  # 900 tokens: 54,000
        (RateLimits(concurrent=6), 2.0),  # 3 s
        (RateLimits(requests_per_minute=120, tokens_per_minute=5400, concurrent=6), 0.1),
    ],
)
def test_all_that_operators_use_of_an_endpoint_counts(
    limits: RateLimits, most_per_s: float
) -> None:
    use = tightest(context(limits, rate=1.0), CALLED, work())
    assert use is not None
    assert use.endpoint == "small"
    assert use.most_per_s == pytest.approx(most_per_s)


@pytest.mark.parametrize(
    ("limits", "most_per_s"),
    [
        (RateLimits(requests_per_minute=120), 0.5),
        (RateLimits(tokens_per_minute=5400), 0.1),
        (RateLimits(concurrent=6), 2.0),
    ],
)
def test_a_plan_fits_up_to_seven_tenths_of_a_limit(limits: RateLimits, most_per_s: float) -> None:
    for part, fits in ((0.7, True), (0.7001, False)):
        there = context(limits, rate=part * most_per_s)
        callers = Callers.of(ENDPOINT_LIMITS_GRAPH, there.infrastructure, there.query.restrictions)
        spots = placements_of(callers, ENDPOINT_LIMITS_GRAPH, there.infrastructure).where(
            callers, CALLED
        )
        found = predict(there, spots, work(), spots.full_steps)
        assert bool(found.fits.all()) == fits
        late = effective_latencies(there, spots, work(), spots.full_steps) > there.slo.latency_s
        assert bool(late.all()) == (not fits)
        # No copies, no waiting and no busy machine there: 1 + 2 + 0.01 s in all.
        assert found.replicas[:, 1].tolist() == [0]
        assert found.tier_wait_s[:, 1].tolist() == [0.0]
        assert found.service_s[:, 1].tolist() == [0.0]


def test_batch_work_may_use_all_of_a_limit() -> None:
    for rate, fits in ((0.5, True), (0.501, False)):
        there = context(RateLimits(requests_per_minute=120), throughput=rate)
        callers = Callers.of(ENDPOINT_LIMITS_GRAPH, there.infrastructure, there.query.restrictions)
        spots = placements_of(callers, ENDPOINT_LIMITS_GRAPH, there.infrastructure).where(
            callers, CALLED
        )
        assert bool(predict(there, spots, work(), spots.full_steps).fits.all()) == fits


def test_what_was_not_told_of_is_not_counted_but_its_seconds() -> None:
    silent = Work(
        operator_s=work().operator_s, output_bytes=np.zeros((3, 2)), input_bytes=np.zeros(2)
    )
    limits = RateLimits(requests_per_minute=120, concurrent=6)
    uses = limited_uses(context(limits, rate=1.0), CALLED, silent)
    assert [use.most_per_s for use in uses] == [inf, 2.0]


READ = OperatorSpec(
    name="read",
    knobs=(Knob(name="model", values=("own", "small", "large")), Knob(name="k", values=(1, 2))),
    calls=("small", "large"),
)
CELLS = np.array([(m, k) for m in range(3) for k in range(2)])
ENDPOINTS = (
    Endpoint(name="small", price=CallPrice(input_usd_per_million=1.0)),
    Endpoint(name="large", price=CallPrice(input_usd_per_million=10.0)),
    Endpoint(name="free"),
)


def dollars() -> OperatorDollars:
    process = KnobProcess(CELLS, correlations((3, 2), (False, True)), dollars_kernel([True, True]))
    return OperatorDollars(ENDPOINTS, called_by_cells(READ, CELLS), process)


def test_cells_call_what_their_settings_say() -> None:
    nothing = frozenset[str]()
    small, large = frozenset({"small"}), frozenset({"large"})
    called = [nothing, nothing, small, small, large, large]
    assert called_by_cells(READ, CELLS) == called


def test_before_anything_is_called_prices_say_what_is_dearer() -> None:
    expected = dollars().expected()
    assert expected[:2].tolist() == [0.0, 0.0]  # what is not called costs nothing, for certain
    assert expected[4] == pytest.approx(10 * expected[2])


def test_what_was_seen_is_known_and_carried_over_at_the_other_price() -> None:
    model = dollars()
    model.observe(2, np.full(20, 0.006))  # 6,000 tokens
    expected = model.expected()
    assert expected[2] == pytest.approx(0.006)
    # The other endpoint is asked for about as much, and not for a usual call's 1,000 tokens.
    assert 0.02 < expected[4] < 0.2
    assert expected[:2].tolist() == [0.0, 0.0]


def test_fewer_inputs_than_were_seen_change_nothing() -> None:
    model = dollars()
    model.observe(2, np.full(20, 0.006))
    model.observe(2, np.full(3, 1.0))
    assert model.expected()[2] == pytest.approx(0.006)


def test_calls_that_cost_nothing_are_expected_to_go_on_so() -> None:
    process = KnobProcess(CELLS, correlations((3, 2), (False, True)), dollars_kernel([True, True]))
    model = OperatorDollars(ENDPOINTS, [frozenset({"free"})] * 6, process)
    model.observe(0, np.zeros(4))
    assert model.expected().tolist() == [0.0] * 6


def test_the_predicted_cost_of_what_was_measured_holds_its_calls() -> None:
    """Every configuration measured: machines cost little, so calls are about all of it."""
    where = infrastructure(np.random.default_rng(5))
    evaluator = CallingEvaluator(5, where)
    rate = 2.0
    slo = Slo(accuracy=0.5, latency_s=30.0)
    query = Query(pipeline="ask", slo=slo, request_rate_per_s=rate)
    setting = SearchSetting.of(query, GRAPH, where, 20)
    numbers = list(range(SPACE.size))
    model = SecondsModel(
        setting.context,
        setting.placements,
        indices_of(SPACE, numbers),
        20,
        callers=setting.callers,
    )
    for number in numbers:
        configuration, work = SPACE.configuration(number), evaluator.work(number)
        model.consider(work, configuration)
        latency = float(setting.least_latencies([configuration], [work])[0])
        model.observe(number, work, latency)
    found = model.predict()
    for number in numbers:
        work = evaluator.work(number)
        assert work.used is not None
        # Lineages differ in every knob here: each cell was seen with its own dollars.
        usd = float(work.used[1, -1].mean()) + float(work.used[2, -1].mean())
        machines = found.share_cost[number] - 3600 * rate * usd
        assert 0 <= machines < 10.0


INPUTS = 60
RENT_OR_CALL_GRAPH = PipelineGraph(
    name="reading",
    operators=(
        OperatorSpec(
            name="reader", knobs=(Knob(name="model", values=("own", "small")),), calls=("small",)
        ),
    ),
)
QUERY = Query(pipeline="reading", slo=Slo(accuracy=0.5, latency_s=0.5))


class Reading:
    """What was measured, and what machines and tokens cost."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.own_s = rng.uniform(0.05, 0.2)
        # dear enough that some machines pay off within the rates that are asked about
        price = rng.uniform(0.5, 4.0)
        self.usd = price * rng.uniform(1.0, 4.0) * self.own_s / 3600
        self.infrastructure = Infrastructure(
            name="lab",
            tiers=(
                Tier(name="cloud", machines=40, price_usd_per_hour=price),
                Tier(
                    name="api", endpoints=(Endpoint(name="small", price=CallPrice(call_usd=1.0)),)
                ),
            ),
            links=(Link(between=("cloud", "api"), bandwidth_bytes_per_s=1e9),),
        )
        spread = rng.uniform(0.8, 1.2, INPUTS)
        self.known = Known(
            graph=RENT_OR_CALL_GRAPH,
            profiles=[
                self._profile("own", self.own_s, None),
                self._profile("small", 0.1, self.usd * spread),
            ],
            population=INPUTS,
            trusted={},
        )

    def _profile(self, model: str, seconds: float, usd: np.ndarray | None) -> Profile:
        used = None
        if usd is not None:
            used = np.zeros((1, len(Usage()), INPUTS))
            used[0, 0], used[0, 4] = 1.0, usd
        return Profile(
            configuration=Configuration((("reader", "model", model),)),
            inputs=np.arange(INPUTS),
            score=0.9 + 0.05 * np.where(np.arange(INPUTS) % 2, 1, -1),
            operator_s=np.full((1, INPUTS), seconds),
            output_bytes=np.full((1, INPUTS), 100.0),
            input_bytes=np.full(INPUTS, 100.0),
            used=used,
        )

    def plans(self, rate: float) -> Sequence[Plan]:
        query = replace(QUERY, request_rate_per_s=rate)
        return evaluated(query, self.infrastructure, self.known, exhaustive_search, TTest()).plans


def least(plans: Sequence[Plan], *, calls: bool) -> float:
    return min((p.cost_usd_per_hour for p in plans if (p.calls is not None) is calls), default=inf)


@pytest.mark.parametrize("seed", range(10))
def test_the_rate_is_that_of_machines_over_calls_of_an_hour(seed: int) -> None:
    reading = Reading(seed)
    low, high = 0.05, 40.0
    found = break_even(reading.plans, low, high)
    mean_usd = float(np.mean(reading.known.profiles[1].used[0, 4]))  # type: ignore[index]  # it called
    scanned = {rate: reading.plans(rate) for rate in np.geomspace(low, high, 25).tolist()}
    wins = [r for r, p in scanned.items() if least(p, calls=False) <= least(p, calls=True)]
    if found.rate is None:
        assert not wins
        return
    assert found.renting is not None
    closed_form = found.renting.cost_usd_per_hour / (3600 * mean_usd)
    assert found.rate == pytest.approx(closed_form, rel=1e-6)
    assert found.rate <= min(wins, default=inf) * (1 + 1e-5)
    assert found.rate_low is not None
    assert found.rate_low <= found.rate
    assert found.rate_high is None or found.rate_high >= found.rate
    below = reading.plans(found.rate * 0.999)
    assert least(below, calls=True) < least(below, calls=False)


def test_some_of_the_drawn_price_tables_change_and_their_answers_change_with_them() -> None:
    changed = 0
    for seed in range(10):
        reading = Reading(seed)
        found = break_even(reading.plans, 0.05, 40.0)
        if found.rate is None:
            continue
        changed += 1
        for rate, calls in ((found.rate * 0.99, True), (found.rate * 1.000001, False)):
            query = replace(QUERY, request_rate_per_s=rate)
            best = answer(
                query, reading.infrastructure, reading.known, exhaustive_search, TTest()
            ).plans[0]
            assert (best.calls is not None) is calls
    assert changed >= 5
