from __future__ import annotations

from dataclasses import replace
from time import process_time

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.operators import OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import DemandItem, Deployment, Plan
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Estimate, LatencyStatistic, Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.answers.drift import (
    DriftSettings,
    ObservedRequests,
    as_observed,
    drifted,
    eased,
    parts_of,
)
from circinus.planner.search.loop import search
from circinus.planner.search.result import PlanningResult
from circinus.profiler.prefix_cache import PrefixCache
from tests.profiler.synthetic import Bench

THREE = PRESETS["three-tier"]  # device, mec, cloud
GRAPH = PipelineGraph(
    name="p",
    operators=(OperatorSpec(name="a"), OperatorSpec(name="b", after=("a",))),
)
WORK = Work(
    operator_s=np.array([[0.01, 0.01], [0.04, 0.04]]),
    output_bytes=np.array([[625_000.0, 625_000.0], [8.0, 8.0]]),
    input_bytes=np.array([1e6, 1e6]),
)
SLO = Slo(accuracy=0.8, latency_s=0.5)


def _plan(tier: str = "mec") -> Plan:
    return Plan(
        pipeline="p",
        configuration=Configuration(()),
        deployment=Deployment(
            placement={"a": "device", "b": tier},
            allocation={"a": 1.0, "b": 1.0},
            replicas={"a": 1, "b": 1},
        ),
        demand=(DemandItem("device", 1.0), DemandItem(tier, 1.0)),
        accuracy=Estimate(value=0.9, low=0.85, high=0.95, confidence=0.95, inputs=20),
        latency_s=Estimate(value=0.4, low=0.38, high=0.42, confidence=0.95, inputs=20),
        cost_usd_per_hour=2.5,
        tier_service_s={"device": 0.1, tier: 0.2},  # and 0.1 s on the way
    )


def _seen(
    latency: float = 0.4,
    n: int = 40,
    *,
    scores: FloatArray | None = None,
    tier_s: dict[str, float] | None = None,
    moved_s: float = 0.1,
) -> ObservedRequests:
    noise = 0.01 * np.where(np.arange(n) % 2, 1, -1)
    return ObservedRequests(
        latency_s=latency + noise,
        tier_s=tier_s or {"device": 0.1, "mec": 0.2},
        moved_s=moved_s,
        scores=np.zeros(0) if scores is None else scores,
    )


@pytest.mark.parametrize(
    ("field", "value"), [("least", 1), ("confidence", 1.0), ("noticeable", 1.0), ("margin", 0.9)]
)
def test_settings_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"drift.{field} must be"):
        DriftSettings(**{field: value})  # type: ignore[arg-type]  # a number of either kind


def test_what_is_as_planned_has_not_drifted() -> None:
    assert drifted(_plan(), SLO, _seen()) is None


def test_worse_than_planned_but_within_the_slo_is_left_alone() -> None:
    assert drifted(_plan(), SLO, _seen(0.48)) is None


def test_the_bound_itself_is_no_drift() -> None:
    exact = replace(_seen(), latency_s=np.full(40, 0.5))
    assert drifted(_plan(), SLO, exact) is None
    assert drifted(_plan(), SLO, _seen(scores=np.full(40, 0.8))) is None


def test_a_few_late_requests_prove_nothing() -> None:
    assert drifted(_plan(), SLO, _seen(0.9, n=19)) is None
    assert drifted(_plan(), SLO, _seen(0.9, n=20)) is not None


def test_a_drift_is_told_with_its_figures() -> None:
    drift = drifted(_plan(), SLO, _seen(0.8))
    assert drift is not None
    assert (drift.latency, drift.accuracy) == (True, False)
    assert drift.words == "latency is 800 ms, planned were 400 ms, allowed are 500 ms"


def test_accuracy_drifts_when_known_outputs_say_so() -> None:
    wrong = np.array([1.0, 0.0, 0.0] * 10)
    drift = drifted(_plan(), SLO, _seen(scores=wrong))
    assert drift is not None
    assert (drift.latency, drift.accuracy) == (False, True)
    assert "accuracy is 0.3333" in drift.words


def test_parts_of_a_request_are_told_apart() -> None:
    # device to mec: 2 ms and 6.25 MB/s; the device is 0.1 times as fast, a call takes 3 ms there.
    called = replace(THREE.tiers[0], call_s=0.0003)
    world = replace(THREE, tiers=(called, *THREE.tiers[1:]))
    parts = parts_of(GRAPH, world, WORK, _plan())
    assert parts.tier_s == {"device": pytest.approx(0.1), "mec": pytest.approx(0.1)}
    assert parts.moved_s == pytest.approx(0.002 + 0.1)
    assert parts.called_s == pytest.approx(0.003)
    assert parts.latency_s == pytest.approx(0.305)


def _observed(seen: ObservedRequests, plan: Plan | None = None) -> Infrastructure:
    plan = plan or _plan()
    return as_observed(THREE, plan, parts_of(GRAPH, THREE, WORK, plan), seen)


def test_a_world_as_it_is_said_to_be_is_given_back_itself() -> None:
    as_said = {"device": 0.1, "mec": 0.1}
    assert _observed(_seen(0.8, tier_s=as_said, moved_s=0.102)) is THREE
    # A fifth more of a tier is noticed, and a fifth of the whole request on its way.
    assert _observed(_seen(0.8, tier_s={"device": 0.119, "mec": 0.1}, moved_s=0.16)) is THREE


def test_a_slower_tier_is_told_apart_from_slower_links() -> None:
    world = _observed(_seen(0.8, tier_s={"device": 0.1, "mec": 0.3}, moved_s=0.102))
    assert world.tier("mec").speed_factor == pytest.approx(THREE.tier("mec").speed_factor / 3)
    assert world.tier("device") == THREE.tier("device")
    assert world.links == THREE.links


@pytest.mark.parametrize(("to", "slower"), [("mec", (4, 1)), ("cloud", (4, 4))])
def test_the_observed_world_has_thinner_links_on_the_plans_ways_alone(
    to: str, slower: tuple[int, int]
) -> None:
    plan = _plan(to)
    parts = parts_of(GRAPH, THREE, WORK, plan)
    seen = _seen(0.8, tier_s=dict(parts.tier_s), moved_s=4 * parts.moved_s)
    world = _observed(seen, plan)
    assert world.tiers == THREE.tiers
    for link, said, factor in zip(world.links, THREE.links, slower, strict=True):
        rate = said.bandwidth_bytes_per_s / factor
        assert link.bandwidth_bytes_per_s == pytest.approx(rate)
        assert link.delay_s == pytest.approx(said.delay_s * factor)
    # A request takes in that world what it was seen to take.
    again = parts_of(GRAPH, world, WORK, plan)
    assert again.moved_s == pytest.approx(seen.moved_s)


def _scaled(tier: float = 1.0, link: float = 1.0) -> Infrastructure:
    """Return the three tiers with another speed of the first and bandwidth of the last link."""
    first, *tiers = THREE.tiers
    *links, last = THREE.links
    return replace(
        THREE,
        tiers=(replace(first, speed_factor=first.speed_factor * tier), *tiers),
        links=(
            *links,
            replace(last, bandwidth_bytes_per_s=last.bandwidth_bytes_per_s * link),
        ),
    )


@pytest.mark.parametrize(
    ("now", "better"),
    [
        (_scaled(), False),
        (_scaled(tier=0.5, link=0.5), False),
        (_scaled(tier=1.19, link=1.19), False),
        (_scaled(tier=1.21), True),
        (_scaled(link=1.21), True),
        (_scaled(tier=0.1, link=1.21), True),
    ],
)
def test_the_world_eased_where_anything_is_noticeably_faster(
    now: Infrastructure, better: bool
) -> None:
    assert eased(now, THREE) is better


def test_a_tier_that_was_not_there_may_be_faster() -> None:
    alone = replace(THREE, tiers=THREE.tiers[:1], links=(), origin=None)
    assert eased(THREE, alone)
    assert not eased(alone, THREE)


def test_a_percentile_is_judged_without_holding_up_the_service() -> None:
    """The look is made in the loop that answers requests: milliseconds, not seconds."""
    slo = replace(SLO, latency_statistic=LatencyStatistic.P50)
    before = process_time()
    assert drifted(_plan(), slo, _seen(latency=0.6, n=200)) is not None
    assert drifted(_plan(), slo, _seen(latency=0.4, n=200)) is None
    assert process_time() - before < 2.0  # scipy is imported meanwhile; it took 6 s for each


ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))
DATA = Dataset(name="numbers", examples=tuple(Example(input=i, expected=i) for i in range(20)))


def planned(*, wrong_every: int, declared: bool = False, numbered: bool = True) -> PlanningResult:
    """Plan a pipeline whose answers are numbered and wrong now and then; 0: never, and alike."""
    bench = Bench()

    def answer(inputs: Payload, settings: Settings) -> Payload:
        call = bench.calls["answer"]
        assert isinstance(inputs, int)
        if not wrong_every:
            return [inputs, 0]
        return [inputs if call % wrong_every else -1, call if numbered else 0]

    def score(output: Payload, expected: Payload) -> float:
        assert isinstance(output, list)
        return float(output[0] == expected)

    operator = bench.operator("answer", answer)
    operator = replace(operator, spec=replace(operator.spec, draws=declared))
    pipeline = Pipeline(name="p", operators=(operator,), score=score)
    query = Query(
        pipeline="p",
        slo=Slo(accuracy=0.6, latency_s=1.0),
        limits=PlanningLimits(profiling_s=100.0),
    )
    return search(query, ONE, bench.profiler(pipeline, DATA, cache=PrefixCache()))


def test_what_answers_alike_is_measured_on_every_input_once_at_most() -> None:
    result = planned(wrong_every=0)
    assert result.plans
    assert result.inputs <= 20
    assert result.remarks == ()


def test_what_is_noticed_is_remarked_and_planned_for_the_mean_over_draws() -> None:
    result = planned(wrong_every=7)
    assert [remark.partition(" ")[0] for remark in result.remarks] == ["answer"]
    assert "draws: true" in result.remarks[0]
    assert result.seen_to_draw == ("answer",)
    (plan,) = result.plans
    assert plan.accuracy.low < plan.accuracy.value < plan.accuracy.high <= 1.0


def test_what_is_declared_is_planned_alike_without_a_remark() -> None:
    noticed, declared = planned(wrong_every=7), planned(wrong_every=7, declared=True)
    assert declared.remarks == declared.seen_to_draw == ()
    assert [p.accuracy for p in noticed.plans] == [p.accuracy for p in declared.plans]


def test_what_differs_only_in_later_runs_is_noticed_and_its_interval_has_a_width() -> None:
    result = planned(wrong_every=7, numbered=False)  # the warm-up and the first run are alike
    assert result.seen_to_draw == ("answer",)
    (plan,) = result.plans
    assert plan.accuracy.low < plan.accuracy.value < plan.accuracy.high


@pytest.mark.parametrize("count", [20, 60, 200])
@pytest.mark.parametrize("statistic", [LatencyStatistic.MEAN, LatencyStatistic.P95])
def test_many_looks_at_a_plan_that_holds_report_no_drift(
    count: int, statistic: LatencyStatistic
) -> None:
    """Log-normal latencies as long as their deviation, on average a tenth below the bound."""
    rng = np.random.default_rng(count)
    spread = np.sqrt(np.log(2.0))
    latency_s = rng.lognormal(-(spread**2) / 2, spread, 3000)
    scores = rng.binomial(3, 0.8, 3000) / 3
    figure = (
        latency_s.mean() if statistic is LatencyStatistic.MEAN else np.quantile(latency_s, 0.95)
    )
    slo = Slo(accuracy=0.75, latency_s=float(figure) / 0.9, latency_statistic=statistic)
    for end in range(count, len(scores), 10):
        seen = replace(
            _seen(), latency_s=latency_s[end - count : end], scores=scores[end - count : end]
        )
        assert drifted(_plan(), slo, seen) is None
