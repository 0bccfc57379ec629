from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.metrics import Judge, SetMetric, named, set_metric
from circinus.pipelines.execution.pipeline import Pipeline, Score, scored_over_set
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.query import (
    DECIDES_ITSELF,
    SAMPLING,
    STOPPING,
    STRATEGIES,
    PlanningLimits,
    PlanningMethod,
    Query,
)
from circinus.pipelines.model.slo import Estimate, LatencyStatistic, Slo, SloState


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("accuracy", -0.1),
        ("accuracy", 1.1),
        ("accuracy", float("nan")),
        ("latency_s", 0.0),
        ("latency_s", float("inf")),
        ("cost_usd_per_hour", -1.0),
    ],
)
def test_an_slo_outside_its_bounds_is_refused(field: str, bad: float) -> None:
    fields = {"accuracy": 0.5, "latency_s": 1.0} | {field: bad}
    with pytest.raises(InvalidInput, match=rf"slo.{field} must be .*, got {bad}"):
        Slo(**fields)  # type: ignore[arg-type]  # floats for floats


def test_the_bounds_of_an_slo_are_inside() -> None:
    assert Slo(accuracy=0.0, latency_s=1e-9, cost_usd_per_hour=0.0).accuracy == 0
    assert Slo(accuracy=1.0, latency_s=1.0).cost_usd_per_hour is None


@pytest.mark.parametrize(
    ("field", "bad"),
    [("weight", 0.0), ("request_rate_per_s", 0.0), ("duration_s", -1.0), ("seed", -1)],
)
def test_a_query_outside_its_bounds_is_refused(field: str, bad: float) -> None:
    slo = Slo(accuracy=0.5, latency_s=1.0)
    with pytest.raises(InvalidInput, match=f"{field} must be"):
        Query(pipeline="p", slo=slo, **{field: bad})  # type: ignore[arg-type]  # one bad field


@pytest.mark.parametrize(
    ("field", "bad"),
    [("profiling_s", 0.0), ("profiling_usd", -1.0), ("response_s", 0.0), ("configurations", 0)],
)
def test_a_limit_outside_its_bounds_is_refused(field: str, bad: float) -> None:
    with pytest.raises(InvalidInput, match=rf"limits.{field} must be"):
        PlanningLimits(**{field: bad})  # type: ignore[arg-type]  # one bad field


def _estimate(low: float, value: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high, confidence=0.99, inputs=50)


@pytest.mark.parametrize(
    ("interval", "state"),
    [
        ((0.5, 0.6, 0.7), SloState.MET),  # the bound itself is good
        ((0.4, 0.5, 0.6), SloState.LIKELY),
        ((0.3, 0.4, 0.5), SloState.UNPROVEN),
        ((0.3, 0.4, 0.49), SloState.VIOLATED),
    ],
)
def test_an_estimate_says_what_is_known_of_at_least(
    interval: tuple[float, float, float], state: SloState
) -> None:
    assert _estimate(*interval).at_least(0.5) is state


@pytest.mark.parametrize(
    ("interval", "state"),
    [
        ((0.3, 0.4, 0.5), SloState.MET),
        ((0.4, 0.5, 0.6), SloState.LIKELY),
        ((0.5, 0.6, 0.7), SloState.UNPROVEN),
        ((0.51, 0.6, 0.7), SloState.VIOLATED),
    ],
)
def test_an_estimate_says_what_is_known_of_at_most(
    interval: tuple[float, float, float], state: SloState
) -> None:
    assert _estimate(*interval).at_most(0.5) is state


@pytest.mark.parametrize(
    ("confidence", "states"),
    [
        (0.949, (SloState.LIKELY, SloState.UNPROVEN)),
        (0.95, (SloState.MET, SloState.VIOLATED)),
    ],
)
def test_an_interval_of_less_than_95_percent_says_nothing_for_certain(
    confidence: float, states: tuple[SloState, SloState]
) -> None:
    estimate = Estimate(value=0.4, low=0.3, high=0.5, confidence=confidence, inputs=9)
    assert (estimate.at_least(0.2), estimate.at_least(0.6)) == states
    assert (estimate.at_most(0.6), estimate.at_most(0.2)) == states


def test_an_estimate_outside_its_own_interval_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must lie within its interval"):
        _estimate(0.5, 0.4, 0.6)


def test_a_percentile_is_an_observed_value_that_enough_inputs_do_not_exceed() -> None:
    latencies = np.arange(1.0, 11.0)  # 1 .. 10

    assert LatencyStatistic.P50.of(latencies) == 5
    assert LatencyStatistic.P90.of(latencies) == 9
    assert LatencyStatistic.P99.of(latencies) == 10
    assert LatencyStatistic.MEAN.of(latencies) == 5.5


PUBLISHED = PlanningMethod(strategy="cmbo", stopping="t_test", sampling="stratified")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"strategy": "guess"}, r"planning\.strategy must be among multi_fidelity, .*'guess'"),
        ({"sampling": "worst"}, r"planning\.sampling must be among random, .*got 'worst'"),
        (
            {"strategy": "cmbo", "stopping": "soon"},
            r"planning\.stopping must be among betting, t_test, got 'soon'",
        ),
        ({"strategy": "cmbo"}, r"planning\.stopping must be among betting, t_test, got None"),
        (
            {"stopping": "betting"},
            r"planning\.stopping must be left out with the strategy multi_fidelity, which decides",
        ),
        (
            {"strategy": "cmbo", "stopping": "betting", "sampling": "stratified"},
            r"planning\.sampling must be random with the stopping rule betting.*got 'stratified'",
        ),
    ],
)
def test_parts_that_are_unknown_or_do_not_go_together_are_refused(
    parts: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        PlanningMethod(**parts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stopping": "t_test"}, r"planning\.stopping must be left out"),
        ({"strategy": "guess"}, r"planning\.strategy must be among"),
        (
            {"strategy": "cmbo", "stopping": "betting", "sampling": "stratified"},
            r"planning\.sampling must be random",
        ),
    ],
)
def test_a_change_to_parts_that_do_not_go_together_is_refused(
    change: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        PlanningMethod().changed(**change)


def test_betting_keeps_its_order_when_a_change_names_another() -> None:
    betting = PlanningMethod().changed(strategy="random")
    with pytest.raises(InvalidInput, match=r"planning\.sampling must be random"):
        betting.changed(sampling="stratified")


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (PlanningMethod(), {"strategy": "cmbo"}, ("cmbo", "betting", "random")),
        (
            PlanningMethod(sampling="stratified"),
            {"strategy": "cmbo"},
            ("cmbo", "t_test", "stratified"),
        ),
        (PUBLISHED, {"strategy": "random"}, ("random", "t_test", "stratified")),
        (PUBLISHED, {"strategy": "multi_fidelity"}, ("multi_fidelity", None, "stratified")),
        (PUBLISHED, {"sampling": "random"}, ("cmbo", "t_test", "random")),
        (
            PUBLISHED,
            {"stopping": "betting", "sampling": "random"},
            ("cmbo", "betting", "random"),
        ),
    ],
)
def test_another_strategy_brings_the_stopping_rule_that_it_needs(
    before: PlanningMethod, change: dict[str, str], after: tuple[str, str | None, str]
) -> None:
    found = before.changed(**change)
    assert (found.strategy, found.stopping, found.sampling) == after


@given(
    strategy=st.sampled_from(STRATEGIES),
    stopping=st.sampled_from(STOPPING),
    sampling=st.sampled_from(SAMPLING),
    before=st.sampled_from([PlanningMethod(), PUBLISHED]),
)
def test_all_parts_at_once_are_those_parts_whatever_it_was_before(
    strategy: str, stopping: str, sampling: str, before: PlanningMethod
) -> None:
    rule = None if strategy == DECIDES_ITSELF else stopping
    try:
        wanted = PlanningMethod(strategy=strategy, stopping=rule, sampling=sampling)
    except InvalidInput:
        return
    found = before.changed(strategy=strategy, stopping=rule, sampling=sampling)
    assert found == wanted


def test_no_change_is_the_same() -> None:
    assert PUBLISHED.changed() == PUBLISHED


def test_a_judge_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"judge strict\.judge must be callable, got 3"):
        Judge(judge=3, name="strict")  # type: ignore[arg-type]  # what is wrong


def test_a_judge_needs_a_name_that_queries_can_say() -> None:
    with pytest.raises(InvalidInput, match=r"judge\.name"):
        Judge(judge=_alike, name="no name")


@pytest.mark.parametrize("score", [1.5, -0.1, float("nan")])
def test_a_judge_that_gives_no_score_has_failed(score: float) -> None:
    pipeline = _judged(Judge(judge=lambda given, output, expected: score))
    with pytest.raises(OperatorFailed, match=r"operator score failed: must give a score in \[0"):
        pipeline.score_of("b", "b", "a")


def test_a_judge_that_raises_has_failed_with_its_cause() -> None:
    def raises(given: Payload, output: Payload, expected: Payload) -> float:
        raise RuntimeError("overloaded")

    with pytest.raises(OperatorFailed, match="operator score failed: RuntimeError: overloaded"):
        _judged(Judge(judge=raises)).score_of("b", "b", "a")


def test_a_judge_sees_the_input_the_output_and_what_was_expected() -> None:
    seen: list[tuple[Payload, Payload, Payload]] = []

    def notes(given: Payload, output: Payload, expected: Payload) -> float:
        seen.append((given, output, expected))
        return 0.25

    judge = Judge(judge=notes)
    assert _judged(judge).score_of("out", "wanted", "in") == 0.25
    assert judge.operator.run(judge.arguments("in", "out", "wanted"), {}) == 0.25
    assert seen == [("in", "out", "wanted")] * 2


def test_a_pipeline_with_a_metric_has_no_judge() -> None:
    judge = Judge(judge=_alike)
    assert _judged(judge).judge is judge
    assert _judged(lambda output, expected: 1.0).judge is None


def _alike(given: Payload, output: Payload, expected: Payload) -> float:
    return float(output == expected)


def _judged(score: Judge | Score) -> Pipeline:
    same = Operator(spec=OperatorSpec(name="same"), run=lambda inputs, knobs: inputs)
    return Pipeline(name="p", operators=(same,), score=score)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("os.system", r"metric\.function must be sklearn\.metrics\.NAME, or module:function"),
        ("sklearn.metrics.no_such", r"metric\.function must be importable \(AttributeError"),
        ("sklearn.metrics._base", r"must be sklearn\.metrics\.NAME"),
        ("sklearn.metrics.log_loss", "must be better where it is more"),
        ("sklearn.metrics.mean_squared_error", "must be better where it is more"),
        ("no_such_module:f1", r"must be importable \(ModuleNotFoundError"),
        ({"arguments": {}}, r"metric must have a function, and may have arguments"),
        ({"function": "sklearn.metrics.f1_score", "keywords": {}}, "metric must have a function"),
        (
            {"function": "sklearn.metrics.f1_score", "arguments": {"mean": "macro"}},
            r"metric\.arguments must be keyword arguments of f1_score",
        ),
    ],
)
def test_what_names_no_metric_is_refused(given: str | Mapping[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        set_metric(given, "metric")


def test_a_name_from_over_a_network_runs_no_code_but_of_the_library() -> None:
    with pytest.raises(InvalidInput, match=r"metric must be sklearn\.metrics\.NAME, got 'os:sys"):
        named("os:system", "metric", anywhere=False)


@pytest.mark.parametrize(
    ("figure", "hint"),
    [
        (83.0, "divide it by 100 if it goes from 0 to 100"),
        (-0.5, r"take \(1 \+ score\) / 2 if it goes from -1 to 1"),
        (float("nan"), "higher is better"),
    ],
)
def test_a_score_outside_its_range_is_told_with_a_way_to_scale_it(
    figure: float, hint: str
) -> None:
    with pytest.raises(OperatorFailed, match=rf"must give a score in \[0, 1\], got .*: {hint}"):
        _pipeline(lambda output, expected: figure).score_of(1, 1)


@pytest.mark.parametrize(("figure", "score"), [(1.0000000002, 1.0), (-1e-10, 0.0)])
def test_a_sum_that_is_rounded_beyond_its_range_is_a_score(figure: float, score: float) -> None:
    assert _pipeline(lambda output, expected: figure).score_of(1, 1) == score


def test_a_metric_of_three_arguments_is_given_the_input_last() -> None:
    def alike(output: Payload, expected: Payload, given: Payload) -> float:
        return float([output, expected, given] == ["out", "want", "in"])

    assert _pipeline(alike).score_of("out", "want", "in") == 1.0


def test_a_third_argument_with_a_default_is_no_input() -> None:
    def near(output: float, expected: float, within: float = 0.5) -> float:
        return float(abs(output - expected) <= within)

    assert _pipeline(near).score_of(1.0, 1.4, "in") == 1.0  # type: ignore[arg-type]


def test_a_metric_of_the_library_is_given_what_was_expected_first() -> None:
    # Of outputs 1 1 0 one of the two positives found is one of the one expected: P = 1/2, R = 1.
    metric = set_metric("sklearn.metrics.precision_score", "metric")
    assert metric.of([1, 1, 0], [1, 0, 0], [0, 0, 0]) == 0.5
    recall = set_metric("sklearn.metrics.recall_score", "metric")
    assert recall.of([1, 1, 0], [1, 0, 0], [0, 0, 0]) == 1.0


def test_keyword_arguments_reach_the_metric() -> None:
    # Class 1: P = 1/2, R = 1, F1 = 2/3. Class 0: P = 1, R = 1/2, F1 = 2/3.
    named_so = {"function": "sklearn.metrics.f1_score", "arguments": {"average": "macro"}}
    metric = set_metric(named_so, "metric")
    assert metric.of([1, 1, 0], [1, 0, 0], [0] * 3) == pytest.approx(2 / 3)


def test_the_area_under_a_curve_of_one_class_is_nothing_yet() -> None:
    metric = set_metric("sklearn.metrics.roc_auc_score", "metric")
    assert metric.of([0.1, 0.7], [1, 1], [0, 0]) is None
    assert metric.of([0.1, 0.7, 0.3], [0, 1, 1], [0] * 3) == 1.0
    with pytest.raises(OperatorFailed):
        metric.of([0.1, 0.7], [1, 1], [0, 0], whole=True)


def test_what_no_few_outputs_explain_is_a_fault_of_the_metric() -> None:
    def wrong(outputs: list[int], expected: list[int]) -> float:
        raise KeyError("label")

    with pytest.raises(OperatorFailed, match="operator score failed: KeyError: 'label'"):
        SetMetric(function=wrong).of([1], [1], [0])


def test_a_metric_of_all_outputs_calls_no_model_that_nobody_pays_for() -> None:
    def asks(outputs: list[str], expected: list[str]) -> float:
        with socket.create_connection(("api.openai.com", 443), timeout=1):
            return 1.0

    with pytest.raises(OperatorFailed, match=r"api\.openai\.com"):
        SetMetric(function=asks).of(["a"], ["b"], ["c"])


def test_inputs_reach_a_metric_that_takes_them() -> None:
    def weighted(outputs: list[int], expected: list[int], inputs: list[int]) -> float:
        right = [w * (o == e) for o, e, w in zip(outputs, expected, inputs, strict=True)]
        return sum(right) / sum(inputs)

    assert SetMetric(function=weighted).of([1, 0], [1, 1], [3, 1]) == 0.75


def test_a_single_output_has_no_score_of_its_own_under_a_metric_of_all() -> None:
    pipeline = _pipeline(SetMetric(function="sklearn.metrics.f1_score"))
    with pytest.raises(InvalidInput, match=r"pipeline p\.score must score single outputs"):
        pipeline.score_of(1, 1)


def test_a_judge_scores_output_by_output() -> None:
    judged = _pipeline(Judge(judge=lambda given, output, expected: 1.0))
    with pytest.raises(InvalidInput, match="metric must be left out: pipeline p is scored by a j"):
        scored_over_set(judged, SetMetric(function="sklearn.metrics.f1_score"), "metric")


def _pipeline(score: Score | Judge | SetMetric) -> Pipeline:
    operator = Operator(spec=OperatorSpec(name="echo"), run=lambda inputs, knobs: inputs)
    return Pipeline(name="p", operators=(operator,), score=score)
