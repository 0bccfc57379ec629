"""What people read: figures with units, tables within 100 columns, no markup from outside."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console, RenderableType

from circinus.api.phases import QueryPhase
from circinus.api.query_file import query_of
from circinus.api.schemas.deployments import DeploymentView, InstanceView, ObservedView
from circinus.api.schemas.planning import planning_view
from circinus.api.schemas.plans import DemandView, EstimateView, PlanView
from circinus.api.schemas.progress import ProgressView, QueryView, ShortfallView
from circinus.api.schemas.schedule import (
    AssignmentView,
    MachineShare,
    ScheduleView,
    TierUse,
    WaitingView,
)
from circinus.api.text import formats
from circinus.api.text.screen import Follow
from circinus.api.text.tables import (
    BestPlan,
    deployment_table,
    plans_table,
    progress_line,
    queries_table,
    query_text,
    schedule_table,
    shortfall_text,
)
from circinus.deploy.methods import PUBLISHED
from circinus.pipelines.model.query import PlanningMethod
from circinus.pipelines.model.slo import Estimate, SloState
from tests.api.malformed import query

OPERATORS = ("sampler", "denoiser", "locator", "features", "classifier", "voter")


def estimate(value: float | None) -> EstimateView:
    return EstimateView(value=value, low=value, high=None, confidence=0.95, inputs=60)


def plan(name: str = "p-0123456789ab") -> PlanView:
    tiers = dict.fromkeys(OPERATORS[:3], "device") | dict.fromkeys(OPERATORS[3:], "cloud")
    return PlanView(
        id=name,
        pipeline="digits",
        configuration={operator: {"model": "nearest-neighbours"} for operator in OPERATORS},
        placement=tiers,
        allocation={o: 1.0 if t == "device" else 0.25 for o, t in tiers.items()},
        replicas={o: 1 if t == "device" else 3 for o, t in tiers.items()},
        demand=[DemandView(tier="device", share=1.0), *[DemandView(tier="cloud", share=0.5)] * 3],
        accuracy=estimate(0.925),
        latency_s=estimate(0.0123),
        cost_usd_per_hour=0.1,
        states={"accuracy": SloState.MET, "latency": SloState.LIKELY},
        emulated=["device"],
    )


def view(phase: QueryPhase = QueryPhase.PLANNING, **more: object) -> QueryView:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    fields = {
        "id": "q-0123456789ab",
        "request": query_of(query()),
        "phase": phase,
        "submitted_at": now,
        "updated_at": now,
    }
    return QueryView.model_validate(fields | more)


def printed(part: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    console.print(part)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "\x1b" not in text
    assert all(len(line) <= width for line in text.splitlines())
    return text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0.00 ms"),
        (0.00123, "1.23 ms"),
        (0.0123, "12.3 ms"),
        (0.123, "123 ms"),
        (1.0, "1.00 s"),
        (12.3, "12.3 s"),
        (1234.0, "1234 s"),
    ],
)
def test_seconds_have_three_figures_and_a_unit(value: float | None, text: str) -> None:
    assert formats.seconds(value) == text


def test_a_latency_has_one_unit() -> None:
    whole = EstimateView(value=1.2, low=0.9, high=1.5, confidence=0.95, inputs=9)
    assert formats.latency(whole) == "1.20 (0.90-1.50) s"
    assert formats.latency(estimate(0.0123)) == "12.3 (12.3--) ms"
    assert formats.latency(estimate(None)) == "-"


def test_an_accuracy_that_leaves_inputs_out_says_over_how_many_it_is() -> None:
    whole = Estimate(value=0.8, low=0.75, high=0.85, confidence=0.95, inputs=100)
    part = replace(whole, inputs=90, left_out=10)
    assert formats.accuracy(whole) == "0.800 (0.750-0.850)"
    assert formats.accuracy(part) == "0.800 (0.750-0.850) over 90 of 100"
    assert formats.accuracy(EstimateView.of(part)) == "0.800 (0.750-0.850) over 90 of 100"


def test_a_placement_is_told_by_runs_of_operators() -> None:
    assert formats.where(plan()) == "device 1: sampler..locator, cloud 0.5 x3: features..voter"


def test_a_further_slice_has_its_own_share_beside_that_of_its_tier() -> None:
    demand = [DemandView(tier="device", share=1.0), *[DemandView(tier="cloud", share=0.5)] * 3]
    last = OPERATORS[-1]
    apart = plan().model_copy(
        update={
            "slices": {last: "cloud.2"},
            "replicas": {**plan().replicas, last: 1},
            "demand": [*demand, DemandView(tier="cloud", share=0.2)],
        }
    )
    assert formats.where(apart).endswith(f"cloud 0.2: {last}")
    assert "cloud 0.5 x3: " in formats.where(apart)


def test_states_are_told_once_when_they_are_alike() -> None:
    alike = plan().model_copy(update={"states": {"accuracy": "met", "latency": "met"}})
    assert formats.states(alike) == "met"
    assert formats.states(plan()) == "accuracy met, latency likely"


def test_only_fields_that_were_left_out_are_defaults() -> None:
    assert "data.seed: 0 (default)" in formats.defaults(query_of(query(data={"examples": 5})))
    assert not any("data.seed" in line for line in formats.defaults(query_of(query())))
    full = query(
        slo={
            "accuracy": 1,
            "latency_s": 1,
            "latency_statistic": "mean",
            "cost_usd_per_hour": None,
            "cost_usd_per_1000_requests": None,
        },
        request_rate_per_s=None,
        device=None,
        planning={"method": None},
        weight=1,
        duration_s=None,
        seed=0,
        limits={
            "profiling_s": 30,
            "profiling_usd": None,
            "response_s": None,
            "configurations": None,
        },
    )
    assert formats.defaults(query_of(full)) == []


def test_a_method_is_told_by_its_name_if_any_and_its_parts() -> None:
    assert formats.planned_by(planning_view(PUBLISHED.planning)) == (
        "published: cmbo, t_test, stratified order"
    )
    unnamed = planning_view(PlanningMethod(sampling="stratified"))
    assert formats.planned_by(unnamed) == "multi_fidelity, stratified order"
    text = " ".join(printed(query_text(view(planning=unnamed))).split())
    assert "planned by multi_fidelity, stratified order" in text


def test_plans_say_what_is_emulated_and_which_was_chosen() -> None:
    text = printed(plans_table([plan(), plan("p-2")], chosen="p-2"))
    assert "p-2 *" in text
    assert "Emulated by waiting: the speed of device." in text
    assert "95% confidence interval, over 60 inputs" in text
    assert text.count("classifier.model=nearest-neighbours") == 2


def test_a_shortened_table_says_how_much_is_left_out() -> None:
    text = printed(plans_table([plan(f"p-{i}") for i in range(9)], most=4))
    assert "5 more plans are not shown" in text
    assert "p-3" in text
    assert "p-4" not in text


def test_no_plans_are_told_too() -> None:
    assert printed(plans_table([])) == "Plans: none\n"


def test_a_shortfall_names_what_binds_and_the_closest_plan() -> None:
    text = printed(
        shortfall_text(
            ShortfallView(
                binding=["latency"],
                closest=plan(),
                sentence="Nothing is that fast.",
                relaxations={"latency": 0.0123, "accuracy": 0.5, "cost": 2.0},
                evidence="all 72 configurations measured",
            )
        )
    )
    assert "Binding: latency" in text
    assert "Nothing is that fast." in text
    assert "Closest measured plan" in text


def test_a_shortfall_in_which_nothing_binds_says_so_in_words_only() -> None:
    shown = plan().model_copy(update={"accuracy": estimate(0.9).model_copy(update={"inputs": 1})})
    told = ShortfallView(binding=[], closest=shown, sentence="Nothing is known.")
    text = printed(shortfall_text(told))
    assert "Binding" not in text
    assert "over 1 input." in text


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0.0, "$0.0000"), (6.9e-9, "less than $0.0001"), (0.36, "$0.3600"), (3.6, "$3.60")],
)
def test_dollars_below_one_have_four_decimals(usd: float, text: str) -> None:
    assert formats.amount(usd) == text


def test_a_query_from_outside_is_no_markup() -> None:
    text = printed(
        query_text(view(QueryPhase.FAILED, message="[bold red]oops[/bold red] :smile:"))
    )
    assert "[bold red]oops[/bold red] :smile:" in text


def test_queries_are_listed_with_their_objectives() -> None:
    text = printed(queries_table([view()]))
    assert "q-0123456789ab" in text
    assert "planning" in text
    assert printed(queries_table([])) == "No queries.\n"


def test_queries_are_listed_with_plan_spend_and_place_in_the_queue() -> None:
    queued, progress = view(QueryPhase.QUEUED, id="q-1"), {"phase": "x", "spent_s": 1.25}
    planning = view(progress=progress | {"best": plan("p-best")})
    serving = view(QueryPhase.SERVING, plan_id="p-2", progress=progress)

    text = printed(queries_table([queued, planning, serving], {"q-1": 1}))

    lines = [line for line in text.splitlines() if "digits" in line]
    told = (("after 1 other", " - "), ("p-best", "1.25 s"), ("p-2", "1.25 s"))
    missing = [w for words, line in zip(told, lines, strict=True) for w in words if w not in line]
    assert missing == []
    assert printed(queries_table([queued])).count("after") == 0


@pytest.mark.parametrize("width", [40, 55])
def test_on_a_narrow_screen_rows_are_lines_of_whole_words_and_figures(width: int) -> None:
    text = printed(plans_table([plan()], chosen="p-0123456789ab"), width)

    for line in (
        "plan: p-0123456789ab *",
        "accuracy: 0.925 (0.925--)",
        "cost: $0.1000/h",
        "SLOs: accuracy met, latency likely",
    ):
        assert line in text.splitlines()
    assert "voter.model=nearest-neighbours" in text.split()
    assert "plan:" not in printed(plans_table([plan()]), 75)
    owned = view(request=query(tenant="research"), plan_id="p-0123456789ab")
    assert "query: q-0123456789ab" in printed(queries_table([owned]), width).splitlines()


def test_progress_tells_spend_time_left_and_the_best_so_far() -> None:
    progress = ProgressView(
        phase="searching", measured=3, spent_s=1.25, profiling_left_s=4.75, time_left_s=2.0
    )
    line = progress_line(view(progress=progress))
    assert line == ("searching, 3 measured, 1.2 s spent, 2.0 s left, best none feasible yet")
    found = progress.model_copy(update={"best": plan()})
    assert progress_line(view(progress=found)).endswith("best 0.925 12.3 ms $0.1000/h")
    assert progress_line(view(QueryPhase.QUEUED)) == "queued"


def test_a_best_plan_that_does_not_hold_out_is_not_told_as_never_found() -> None:
    nothing = ProgressView(phase="searching")
    something = nothing.model_copy(update={"best": plan()})
    seen = BestPlan()
    lines = [progress_line(view(progress=each), seen) for each in (nothing, something, nothing)]
    assert [line.partition("best ")[2] for line in lines] == [
        "none feasible yet",
        "0.925 12.3 ms $0.1000/h",
        "none any more: more inputs spoke against 0.925 12.3 ms $0.1000/h",
    ]


@pytest.mark.parametrize(("width", "columns"), [(70, 5), (80, 6), (100, 8), (120, 9)])
def test_thirteen_queries_take_a_line_each(width: int, columns: int) -> None:
    owned = query(tenant="acme", slo={"accuracy": 0.85, "latency_s": 0.05})
    many = [view(id=f"q-e4839db5563{i:x}", request=owned) for i in range(13)]

    lines = printed(queries_table(many), width).splitlines()

    assert len(lines) <= 13 + 5
    (head,) = [line for line in lines if "phase" in line]
    assert len(head.replace("submitted (UTC)", "submitted").split()) == columns
    assert sum("q-e4839db5563" in line for line in lines) == 13


def test_the_schedule_tells_machines_reasons_and_use() -> None:
    text = printed(
        schedule_table(
            ScheduleView(
                assignments=[
                    AssignmentView(
                        query_id="q-1",
                        plan_id="p-1",
                        machines=[MachineShare(tier="cloud", machine=1, share=0.25)],
                    )
                ],
                waiting=[WaitingView(query_id="q-2", reason="no machine is free")],
                tiers=[TierUse(tier="cloud", machines=2, used=0.25, utilisation=0.125)],
            )
        )
    )
    for part in ("cloud / 1: 0.25", "no machine is free", "12%"):
        assert part in text
    empty = printed(schedule_table(ScheduleView(assignments=[], waiting=[], tiers=[])))
    assert "Nothing scheduled." in empty


def test_a_deployment_says_how_shares_are_enforced_and_what_is_emulated() -> None:
    instance = InstanceView(
        tier="edge",
        operators=["sampler"],
        pid=7,
        address="127.0.0.1:5",
        share=0.5,
        enforcement="duty cycle",
        emulated=True,
    )
    text = printed(
        deployment_table(
            DeploymentView(
                query_id="q-1",
                phase="ready",
                instances=[instance],
                observed=ObservedView(count=9, mean_s=0.02),
            )
        )
    )
    for part in ("edge (emulated)", "duty cycle", "9 answered, 0 failed", "mean 20.0 ms"):
        assert part in text


def test_a_worker_that_was_replaced_is_told_with_its_cause() -> None:
    instance = InstanceView(
        tier="edge",
        address="unix:/a",
        share=0.5,
        enforcement="",
        emulated=False,
        restarts=2,
        ended="replaced: read ran for 12 s and did not end",
    )
    told = DeploymentView(query_id="q-1", phase="serving", instances=[instance])
    text = " ".join(printed(deployment_table(told)).split())
    assert "edge: started again 2 times, last as it ended: replaced: read ran for 12 s" in text


def test_elsewhere_than_on_a_terminal_a_line_is_told_once_per_change() -> None:
    console = Console(file=io.StringIO(), width=100)
    with Follow(console) as lines:
        for key, text in (("a", "one"), ("a", "two"), ("b", "three"), ("b", "four")):
            lines.update({"q-1": (key, text)})
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "  q-1  one\n  q-1  three\n"


def test_on_a_terminal_the_last_state_stays() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with Follow(console) as lines:
        lines.update({"q-1": ("a", "one")})
        lines.update({"q-1": ("a", "two")})
    assert isinstance(console.file, io.StringIO)
    assert "two" in console.file.getvalue()


SEARCH = {"since": "2026-01-02T03:04:05Z", "why": "latency is 2 s"}


@pytest.mark.parametrize(
    ("search", "told"),
    [
        ({}, "it has not begun"),
        ({"progress": ProgressView(phase="searching", measured=3)}, "searching, 3 measured"),
        (
            {"ended": "no plan is so fast", "ended_at": "2026-01-02T04:04:05Z"},
            "no plan found by 2026-01-02 04:04:05 UTC: no plan is so fast",
        ),
    ],
)
def test_a_query_that_is_searched_on_says_why_and_how_far_that_is(
    search: dict[str, object], told: str
) -> None:
    text = " ".join(printed(query_text(view(QueryPhase.SERVING, search=SEARCH | search))).split())
    assert "searched on since 2026-01-02 03:04:05 UTC: latency is 2 s; " in text
    assert told in text
