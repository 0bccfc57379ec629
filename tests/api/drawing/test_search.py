"""The picture of a search: each measurement where it was paid for, and the least cost so far."""

from __future__ import annotations

import re

from circinus.api.drawing.search import search_svg
from circinus.planner.search.result import TrialState
from tests.api.drawing.views import HOSTILE, SLO, of_class, parsed, texts, trial


def test_before_anything_is_measured_it_says_so() -> None:
    assert "Nothing is measured yet." in texts(parsed(search_svg([], SLO)))
    assert not of_class(parsed(search_svg([])), "slo")


def test_a_measurement_that_failed_has_no_place() -> None:
    root = parsed(search_svg([trial(TrialState.FAILED, None, None, 1.0)], SLO))
    assert not of_class(root, "measured")


def test_names_of_others_stay_words() -> None:
    parsed(search_svg([trial(TrialState.LATE, 0.5, 0.1, 1.0, HOSTILE)], SLO))


def test_later_is_further_right_and_plans_are_drawn_twice() -> None:
    states = [TrialState.INACCURATE, TrialState.FEASIBLE, TrialState.UNDECIDED]
    root = parsed(
        search_svg([trial(s, 0.5 + i / 10, 0.1, float(i)) for i, s in enumerate(states)], SLO)
    )
    marks = of_class(root, "measured")
    assert [mark.get("class", "").split()[1] for mark in marks] == [
        *("inaccurate", "feasible", "undecided"),
        "feasible",
    ]


def test_the_line_is_the_least_cost_so_far() -> None:
    costs = [0.4, 0.5, 0.1, 0.2]
    root = parsed(
        search_svg([trial(TrialState.FEASIBLE, 0.9, c, float(i)) for i, c in enumerate(costs)])
    )
    (line,) = of_class(root, "least")
    levels = [float(y) for y in re.findall(r"[V ]([\d.]+)", line.get("d", ""))]
    assert len(levels) == 2  # 0.4, then 0.1
    assert levels[1] > levels[0]  # cheaper is lower
    assert "the cheapest costs $0.1000/h" in (root.findtext("{*}desc") or "")
