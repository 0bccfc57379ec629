"""Slices of their own for branches, beside brute force over all slices and shares."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work, request_seconds
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import PlanningMethod, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.slices import packed
from circinus.planner.search.plans import feasible_plans
from circinus.planner.strategy.protocol import SearchSetting
from tests.oracles.every_slice import cheapest_in_slices
from tests.oracles.measured import measured_of

PUBLISHED = PlanningMethod(strategy="cmbo", stopping="t_test", sampling="stratified")
WITHIN = 0.02  # of the least cost there is
SEEDS = int(os.environ.get("CIRCINUS_TEST_SEEDS", "2"))  # 6 for a figure to quote


def _graph(name: str, **after: str) -> PipelineGraph:
    operators = (OperatorSpec(name=o, after=tuple(parents)) for o, parents in after.items())
    return PipelineGraph(name=name, operators=tuple(operators))


CHAIN = _graph("chain", a="", b="a", c="b")
FORK = _graph("fork", s="", a="s", b="s")
DIAMOND = _graph("diamond", s="", a="s", b="s", t="ab")
TWO = Infrastructure(
    name="two",
    tiers=(
        Tier(name="edge", machines=3, price_usd_per_hour=1.0, speed_factor=0.5),
        Tier(name="cloud", machines=3, price_usd_per_hour=3.0, speed_factor=1.5),
    ),
    links=(Link(between=("edge", "cloud"), bandwidth_bytes_per_s=1e5, delay_s=0.005),),
)
ONE = Infrastructure(name="one", tiers=(Tier(name="cloud", machines=3, price_usd_per_hour=1.0),))


def _drawn(graph: PipelineGraph, seed: int, *, waits: bool) -> tuple[Work, Slo]:
    rng, n = np.random.default_rng(seed), 3
    seconds = rng.uniform(0.01, 0.1, (len(graph.operators), n))
    work = Work(
        operator_s=seconds,
        output_bytes=rng.uniform(0, 500, seconds.shape),
        input_bytes=rng.uniform(0, 500, n),
        waited_s=seconds * rng.uniform(0, 0.6, (len(seconds), 1)) if waits else None,
    )
    bound_s = float(seconds.mean(axis=1).sum() * rng.uniform(0.5, 2.5))
    return work, Slo(accuracy=0.5, latency_s=bound_s)


def _setting(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    slo: Slo,
    *,
    method: PlanningMethod = PUBLISHED,
    rate: float | None = None,
) -> SearchSetting:
    query = Query(pipeline=graph.name, slo=slo, planning=method, request_rate_per_s=rate)
    return SearchSetting.of(query, graph, infrastructure, 3)


def _plans(setting: SearchSetting, work: Work) -> tuple[Plan, ...]:
    return feasible_plans(setting, measured_of(setting.context.graph, work), most=24)


def _cheapest(setting: SearchSetting, work: Work) -> float:
    return min((plan.cost_usd_per_hour for plan in _plans(setting, work)), default=np.inf)


def _even(**seconds: float) -> Work:
    each = np.array([[s] for s in seconds.values()])
    return Work(operator_s=each, output_bytes=np.zeros_like(each), input_bytes=np.zeros(1))


def test_what_never_runs_at_once_has_one_slice_of_a_tier() -> None:
    work, slo = _drawn(CHAIN, 0, waits=True)
    common = _setting(CHAIN, TWO, slo, method=PlanningMethod())
    assert _setting(CHAIN, TWO, slo).context.further == ()
    assert _cheapest(_setting(CHAIN, TWO, slo), work) == _cheapest(common, work)


def test_a_tier_with_one_machine_gives_one_slice() -> None:
    alone = replace(ONE, tiers=(replace(ONE.tiers[0], machines=1),))
    assert _setting(DIAMOND, alone, Slo(accuracy=0.5, latency_s=1.0)).context.further == ()


def test_slices_of_their_own_serve_branches_where_turns_on_a_machine_are_too_slow() -> None:
    # In turns on a whole machine: 4 x 0.125 s. Side by side: 3 x 0.125 s.
    work = _even(s=0.125, a=0.125, b=0.125, t=0.125)
    slo = Slo(accuracy=0.5, latency_s=0.375)
    assert _plans(_setting(DIAMOND, ONE, slo, method=PlanningMethod()), work) == ()
    plan = _plans(_setting(DIAMOND, ONE, slo), work)[0]
    assert [item.share for item in plan.demand] == [1.0, 1.0]
    assert set(plan.deployment.further.values()) == {"cloud"}
    assert plan.latency_s.value == pytest.approx(0.375)
    assert request_seconds(DIAMOND, ONE, work, plan.deployment)[0] == pytest.approx(0.375)


def test_each_branch_has_a_share_of_its_own() -> None:
    # s and the long branch on a whole machine take 0.1 + 0.4 s; the short one has 0.4 s for 0.1.
    work, slo = _even(s=0.1, a=0.4, b=0.1), Slo(accuracy=0.5, latency_s=0.5)
    plan = _plans(_setting(FORK, ONE, slo), work)[0]
    assert dict(plan.deployment.allocation) == {"s": 1.0, "a": 1.0, "b": 0.25}
    assert plan.cost_usd_per_hour == pytest.approx(1.25)
    assert plan.throughput_per_s.value == pytest.approx(2.0)  # of s and a: 0.5 s
    assert plan.tier_service_s == pytest.approx({"cloud": 0.5, "cloud.2": 0.4})


def test_a_plan_with_slices_of_its_own_is_none_of_common_ones() -> None:
    work, slo = _even(s=0.1, a=0.4, b=0.1), Slo(accuracy=0.5, latency_s=0.5)
    plan = _plans(_setting(FORK, ONE, slo), work)[0]
    together = replace(
        plan.deployment, slices={}, allocation=dict.fromkeys(plan.deployment.placement, 1.0)
    )
    apart = replace(plan, deployment=replace(together, slices={"b": "cloud.2"}))
    assert replace(plan, deployment=together).id != apart.id


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("graph", [FORK, DIAMOND], ids=lambda graph: graph.name)
def test_plans_cost_what_brute_force_over_slices_and_shares_finds(
    graph: PipelineGraph, waits: bool
) -> None:
    work, slo = _drawn(graph, int(waits), waits=waits)
    least = cheapest_in_slices(_setting(graph, TWO, slo, method=PlanningMethod()).context, work)
    assert _cheapest(_setting(graph, TWO, slo), work) <= least * (1 + WITHIN)


@pytest.mark.slow
def test_what_common_shares_lose(capsys: pytest.CaptureFixture[str]) -> None:
    """Print what plans cost above brute force, with slices of their own and without."""
    methods, lines = (PlanningMethod(), PUBLISHED), []
    for graph in (CHAIN, FORK, DIAMOND):
        over: tuple[list[float], list[float]] = ([], [])  # by method
        none = [0, 0]
        for seed in range(SEEDS):
            work, slo = _drawn(graph, seed, waits=seed % 2 == 1)
            settings = [_setting(graph, TWO, slo, method=method) for method in methods]
            least = cheapest_in_slices(settings[0].context, work)
            for i, setting in enumerate(settings):
                cost = _cheapest(setting, work)
                none[i] += least < cost == np.inf
                over[i].extend([cost / least - 1] if cost < np.inf else [])
        assert none[1] == 0
        assert max(over[1]) <= WITHIN
        lines += [
            f"{graph.name}, {method.strategy}: {np.mean(above):.2%} above the least cost, "
            f"at most {max(above):.2%}; {missed} of {SEEDS} unserved"
            for method, above, missed in zip(methods, over, none, strict=True)
        ]
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *lines, ""]))


def test_copies_at_a_rate_fit_on_the_machines_that_there_are() -> None:
    work, slo = _even(s=0.01, a=0.05, b=0.03), Slo(accuracy=0.5, latency_s=0.5)
    plans = _plans(_setting(FORK, ONE, slo, rate=20.0), work)  # 1.8 machines' seconds a second
    assert plans
    assert max(sum(item.share for item in plan.demand) for plan in plans) <= 3
    assert min(plan.throughput_per_s.value for plan in plans) >= 20.0


def test_copies_that_no_machine_has_room_for_do_not_fit() -> None:
    # Three of 0.6 on two machines: a machine holds one.
    where = replace(ONE, tiers=(replace(ONE.tiers[0], machines=2),))
    context = _setting(FORK, where, Slo(accuracy=0.5, latency_s=1.0)).context
    assert context.further == (0,)
    steps, copies = np.array([[12, 12], [12, 8], [12, 0]]), np.array([[2, 1], [2, 2], [2, 0]])
    assert packed(context, steps, copies).tolist() == [False, True, True]
