"""What requests got is held against what the query asks for; too few of them say nothing."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.use_cases.objectives import (
    NO_SCORES,
    JudgedObjective,
    ObservedObjectives,
    ObservedState,
    Spending,
    borne_per_s,
    judged,
    overloaded,
)
from circinus.deploy.runtime.report import (
    DeploymentReport,
    LatestAnswers,
    QueueFigures,
    SpanCounts,
    bucket_of,
)
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import ANY_LATENCY_S, LatencyStatistic, Slo
from tests.api.fakes import plan

MET, MISSED, UNSURE = ObservedState.MET, ObservedState.MISSED, ObservedState.UNSURE
P95 = Slo(accuracy=0.5, latency_s=0.15, latency_statistic=LatencyStatistic.P95)
FREE = Spending(machines_usd_per_hour=0.0, rated=False)


def answers(
    sojourn_s: FloatArray | list[float], *, ago_s: FloatArray | float = 1.0, usd: float = 0.0
) -> LatestAnswers:
    took = np.asarray(sojourn_s, dtype=np.float64)
    ago = np.broadcast_to(np.asarray(ago_s, dtype=np.float64), took.shape)
    pairs = zip(ago.tolist(), took.tolist(), strict=True)
    return LatestAnswers(rows=tuple((-since, s, s, 0.0, usd) for since, s in pairs))


def seen(
    given: LatestAnswers,
    *,
    per_s: float = 1.0,
    turned_away: int = 0,
    since_s: float = 1e4,
    **tiers: QueueFigures,
) -> DeploymentReport:
    n = len(given)
    buckets = {bucket_of(1.0): n} if n else {}
    minute = SpanCounts(
        span_s=60.0, covered_s=60.0, buckets=buckets, in_time=n, turned_away=turned_away
    )
    return DeploymentReport(
        plan_id="p-1",
        serving_s=since_s,
        arrivals_per_s=per_s,
        spans=(minute,),
        answers=given,
        queues=tiers or {"cloud": QueueFigures(places=1, workers=1)},
    )


def objective(
    slo: Slo,
    of: DeploymentReport,
    name: str = "latency",
    scores: FloatArray = NO_SCORES,
    spending: Spending = FREE,
) -> JudgedObjective:
    return next(each for each in judged(slo, of, scores, spending) if each.name == name)


def test_nothing_is_known_without_requests() -> None:
    found = objective(P95, seen(answers([])))
    assert (found.state, found.observed) == (UNSURE, None)
    assert found.why == "no request was answered lately"


@pytest.mark.parametrize(("n", "state"), [(70, UNSURE), (71, MET)])
def test_a_p95_takes_71_answers_to_be_met(n: int, state: ObservedState) -> None:
    # All of 71 are below it with 0.95^71 = 2.62 %: what is left of 5 % has its lower end.
    found = objective(P95, seen(answers([0.1] * n)))
    assert found.state is state
    assert ("too few requests to say: 70" in found.why) == (n == 70)


def test_a_p95_is_missed_for_sure_by_few_answers_that_all_came_late() -> None:
    # Two of two beyond it come with 0.05^2 = 0.25 %.
    assert objective(P95, seen(answers([2.9, 2.8]))).state is MISSED


def test_a_mean_is_told_by_no_fewer_than_twenty() -> None:
    slo = replace(P95, latency_statistic=LatencyStatistic.MEAN)
    late = np.linspace(2.8, 3.0, 20)
    assert objective(slo, seen(answers(late[:19]))).state is UNSURE
    found = objective(slo, seen(answers(late)))
    assert found.state is MISSED
    assert found.observed is not None
    assert found.observed.low < 2.9 < found.observed.high


def test_a_figure_at_the_bound_is_not_called_met_or_missed() -> None:
    slo = replace(P95, latency_statistic=LatencyStatistic.MEAN)
    found = objective(slo, seen(answers([0.1, 0.2] * 50)))
    assert (found.state, found.why) == (UNSURE, "it is too near to the bound to say")


def test_the_last_minute_says_it_where_it_has_enough_answers() -> None:
    took = np.array([2.9] * 100 + [0.1] * 100)
    ago = np.array([300.0] * 100 + [30.0] * 100)
    found = objective(P95, seen(answers(took, ago_s=ago)))
    assert (found.state, found.span_s) == (MET, 60.0)
    sparse = objective(P95, seen(answers(took[:120], ago_s=ago[:120])))
    assert (sparse.state, sparse.span_s) == (MISSED, 600.0)


def test_batch_work_has_no_objective_on_latency() -> None:
    slo = Slo(accuracy=0.5, latency_s=ANY_LATENCY_S, throughput_per_s=1.0)
    names = [each.name for each in judged(slo, seen(answers([1.0])), NO_SCORES, FREE)]
    assert names == ["accuracy", "throughput"]


@pytest.mark.parametrize(
    ("n", "waiting", "state"), [(30, 9, MISSED), (30, 0, UNSURE), (120, 0, MET)]
)
def test_less_than_wanted_is_done_only_where_more_waits(
    n: int, waiting: int, state: ObservedState
) -> None:
    slo = Slo(accuracy=0.5, latency_s=ANY_LATENCY_S, throughput_per_s=1.0)
    load = QueueFigures(waiting=waiting, places=1, workers=1)
    assert objective(slo, seen(answers([1.0] * n), cloud=load), "throughput").state is state


def test_accuracy_is_judged_by_outputs_that_are_known() -> None:
    told = seen(answers([0.1] * 80))
    assert objective(P95, told, "accuracy").state is UNSURE
    assert objective(P95, told, "accuracy", np.ones(40)).state is MET
    assert objective(P95, told, "accuracy", np.zeros(40)).state is MISSED


def test_machines_cost_what_they_do_and_calls_as_many_as_come() -> None:
    slo = replace(P95, cost_usd_per_hour=1.0)
    spending = Spending(machines_usd_per_hour=0.64, rated=False)
    told = seen(answers([0.1] * 80, usd=0.0001), per_s=1.0)  # 0.36 USD an hour
    found = objective(slo, told, "cost", spending=spending)
    assert found.observed is not None
    assert found.observed.value == pytest.approx(1.0)
    dearer = seen(answers([0.1] * 80, usd=0.0001), per_s=1.1)
    assert objective(slo, dearer, "cost", spending=spending).state is MISSED


@pytest.mark.parametrize(("rated", "usd"), [(True, 0.5), (False, 0.1)])
def test_a_thousand_requests_cost_machines_between_them_at_a_rate_alone(
    rated: bool, usd: float
) -> None:
    # 3.6 USD an hour is 0.001 a second: 0.5 s apart, or 0.1 s one after the other.
    slo = replace(P95, cost_usd_per_1000_requests=0.3)
    spending = Spending(machines_usd_per_hour=3.6, rated=rated)
    found = objective(
        slo, seen(answers([0.1] * 80), per_s=2.0), "cost_per_1000", spending=spending
    )
    assert found.observed is not None
    assert found.observed.value == pytest.approx(usd)
    assert found.state is (MISSED if rated else MET)


@given(st.integers(1, 120), st.integers(0, 2**32), st.floats(1e-3, 10.0))
def test_what_is_said_agrees_with_what_was_seen(n: int, seed: int, bound: float) -> None:
    took = np.random.default_rng(seed).uniform(1e-3, 10.0, n)
    found = objective(replace(P95, latency_s=bound), seen(answers(took)))
    assert found.observed is not None
    if found.state is not UNSURE:
        assert (found.observed.value <= bound) == (found.state is MET)
        assert found.why == ""


def test_one_missed_objective_is_enough_and_unknown_accuracy_keeps_none_from_being_met() -> None:
    def state(latency_s: float) -> ObservedState:
        told = seen(answers([latency_s] * 80))
        each = judged(P95, told, NO_SCORES, FREE)
        return ObservedObjectives(plan_id="p-1", objectives=each, report=told).state

    assert (state(0.1), state(2.9)) == (MET, MISSED)


def test_words_tell_figure_interval_and_bound() -> None:
    told = seen(answers([2.9] * 80))
    found = ObservedObjectives(
        plan_id="p-1", objectives=judged(P95, told, NO_SCORES, FREE), report=told, overload="much"
    )
    assert found.sentence == (
        "accuracy unsure: no request's right output is known, "
        "latency missed, 2.90 s (2.90 s to 2.90 s) of 150 ms. much"
    )


@pytest.mark.parametrize(
    ("rate", "throughput_slo", "per_s"),
    [(4.0, None, 4.0), (None, None, 3.5), (None, 1.0, None)],  # 0.2 s each: 5/s at the most
)
def test_a_plan_is_for_its_rate_or_for_what_it_bears(
    rate: float | None, throughput_slo: float | None, per_s: float | None
) -> None:
    slo = replace(P95, throughput_per_s=throughput_slo)
    assert borne_per_s(plan(), slo, rate, 0.7) == pytest.approx(per_s)


def test_a_plan_that_takes_no_time_bears_any_rate() -> None:
    assert borne_per_s(replace(plan(), tier_service_s={}), P95, None, 0.7) is None


@pytest.mark.parametrize(
    ("per_s", "load", "why"),
    [
        (5.0, QueueFigures(waiting=1, places=1, workers=1), ""),
        (
            5.1,
            QueueFigures(waiting=0, places=1, workers=1),
            "5.1 requests/s come, and it is for 4/s",
        ),
        (5.1, QueueFigures(waiting=0, places=2, workers=2), ""),  # two replicas are for 8/s
        (
            1.0,
            QueueFigures(waiting=15, places=1, workers=1),
            "15 requests wait for tier cloud, whose instances take 1 at once",
        ),
    ],
)
def test_too_much_is_a_rate_or_a_queue_beyond_those_who_work(
    per_s: float, load: QueueFigures, why: str
) -> None:
    assert overloaded(plan(), seen(answers([]), per_s=per_s, cloud=load), 4.0, 1.25) == why


def test_no_rate_is_too_much_for_what_is_for_any() -> None:
    assert overloaded(plan(), seen(answers([]), per_s=inf), None, 1.25) == ""
