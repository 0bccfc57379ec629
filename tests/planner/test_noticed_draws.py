"""A search goes on as declared once operators are seen to answer differently."""

from __future__ import annotations

from dataclasses import replace

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.loop import search
from circinus.planner.search.result import PlanningResult
from circinus.profiler.prefix_cache import PrefixCache
from tests.profiler.synthetic import Bench

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
