"""The picture of the front: where points are, what they say, and that names stay names."""

from __future__ import annotations

import math

import pytest

from circinus.api.drawing.front import Against, front_svg
from circinus.api.schemas.query import SloRequest
from circinus.planner.search.result import TrialState
from tests.api.drawing.views import (
    HOSTILE,
    SLO,
    SVG,
    estimate,
    of_class,
    parsed,
    plan,
    texts,
    trial,
)

PLANS = [
    plan("p-cheap", 0.82, 0.045, 0.1),
    plan("p-middle", 0.9, 0.03, 0.15),
    plan("p-dear", 0.95, 0.04, 0.25),
]
TRIALS = [
    trial(TrialState.INACCURATE, 0.4, 0.05, 1.0),
    trial(TrialState.FEASIBLE, 0.82, 0.2, 2.0),
    trial(TrialState.FAILED, None, None, 2.5),
]


@pytest.mark.parametrize("against", Against)
def test_nothing_is_drawn_of_what_is_not_there(against: Against) -> None:
    root = parsed(front_svg([], [], SloRequest(accuracy=0.5, throughput_per_s=1.0), None, against))
    assert not of_class(root, "plan")
    assert not of_class(root, "front")
    assert [text for text in texts(root) if "≥" in text] == ["accuracy ≥ 0.5"]


def test_what_has_no_figures_has_no_place() -> None:
    lost = plan("p-lost", None, 0.01, 0.1)
    unbounded = estimate(None).model_copy(update={"value": math.inf})
    late = plan("p-late", 0.9, 0.01, 0.1).model_copy(update={"latency_s": unbounded})
    root = parsed(front_svg([lost, *PLANS], TRIALS, SLO))
    assert [each.get("data-plan") for each in of_class(root, "plan")] == [p.id for p in PLANS]
    parsed(front_svg([late], [], SLO, None, Against.LATENCY))


def test_names_of_others_stay_words() -> None:
    strange = plan(HOSTILE, 0.9, 0.01, 0.1, tier=HOSTILE)
    root = parsed(
        front_svg(
            [strange], [trial(TrialState.LATE, 0.5, 0.1, 1.0, HOSTILE)], SLO, link="#plan-{id}"
        )
    )
    (point,) = of_class(root, "plan")
    assert (point.get("data-plan"), point.get("href")) == (HOSTILE, f"#plan-{HOSTILE}")


def test_dearer_is_further_right_and_more_accurate_is_higher() -> None:
    for against, order in ((Against.COST, [0, 1, 2]), (Against.LATENCY, [1, 2, 0])):
        dots = of_class(parsed(front_svg(PLANS, TRIALS, SLO, None, against)), "plan")
        places = [float(dot.find(f"{SVG}circle").get("cx", "")) for dot in dots]  # type: ignore[union-attr]  # it is there
        assert sorted(range(3), key=places.__getitem__) == order
        heights = [float(dot.find(f"{SVG}circle").get("cy", "")) for dot in dots]  # type: ignore[union-attr]  # it is there
        assert heights == sorted(heights, reverse=True)


def test_a_point_says_its_plan_and_leads_to_it() -> None:
    root = parsed(front_svg(PLANS, TRIALS, SLO, "p-middle", link="#plan-{id}"))
    assert root.get("role") == "group"
    points = of_class(root, "plan")
    assert [point.get("href") for point in points] == [f"#plan-{p.id}" for p in PLANS]
    titles = [point.findtext(f"{SVG}title") or "" for point in points]
    assert "p-middle\naccuracy 0.900 (0.900-0.900), latency 30.0 (30.0-30.0) ms" in titles[1]
    assert [point.findtext(f"{SVG}text") for point in points] == ["1", "2", "3"]
    ringed = [point for point in points if of_class(point, "ring")]
    assert [point.get("data-plan") for point in ringed] == ["p-middle"]


def test_alone_it_is_an_image() -> None:
    root = parsed(front_svg(PLANS, TRIALS, SLO))
    assert root.get("role") == "img"
    assert not list(root.iter(f"{SVG}a"))


def test_objectives_are_lines_and_what_is_no_plan_says_why() -> None:
    root = parsed(front_svg(PLANS, TRIALS, SLO))
    assert {"accuracy ≥ 0.8", "cost ≤ $0.3000/h"} <= set(texts(root))
    assert len(of_class(root, "slo")) == 2
    (cross,) = of_class(root, "inaccurate")
    assert "inaccurate, 20 inputs" in (cross.findtext(f"{SVG}title") or "")
    late = parsed(front_svg(PLANS, TRIALS, SLO, None, Against.LATENCY))
    assert "latency ≤ 50.0 ms" in texts(late)


def test_of_many_the_latest_tell_what_they_are() -> None:
    many = [trial(TrialState.LATE, 0.5, 0.1, float(i)) for i in range(1000)]
    joined, *told, _ = of_class(parsed(front_svg([], many, SLO)), "late")  # and of the key
    assert joined.get("d", "").count("M") == 750
    assert joined.find(f"{SVG}title") is None
    assert len(told) == 250
    assert all(cross.findtext(f"{SVG}title") for cross in told)


def test_what_is_far_out_is_at_the_edge_and_moves_nobody() -> None:
    far = trial(TrialState.DEAR, 0.9, 1e6, 3.0)
    near, with_far = (parsed(front_svg(PLANS, t, SLO)) for t in (TRIALS, [*TRIALS, far]))
    (cross,) = of_class(with_far, "dear")
    assert "M579.0" in cross.get("d", "")
    first = [of_class(root, "dot")[2].get("cx") for root in (near, with_far)]
    assert float(first[1] or 0) > 0.25 * float(first[0] or 0)
