"""Why each measured configuration is taken, or is not."""

from __future__ import annotations

from circinus.api.http.ui.query import candidates
from circinus.api.schemas.query import SloRequest
from circinus.planner.search.result import TrialState
from tests.api.drawing.views import SLO, plan, trial

FRONT = [plan("p-1", 0.85, 0.04, 0.1), plan("p-2", 0.95, 0.03, 0.2)]


def why(state: TrialState, accuracy: float | None, cost: float | None) -> str:
    (found,) = candidates([trial(state, accuracy, cost, 1.0)], FRONT, SLO, None)
    assert found.number is None
    return found.why


def test_without_measurements_there_is_no_candidate() -> None:
    assert candidates([], FRONT, SLO, "p-1") == []


def test_each_that_is_no_plan_says_what_it_misses() -> None:
    assert why(TrialState.FAILED, None, None) == "an operator failed"
    assert why(TrialState.INACCURATE, 0.5, 0.1).endswith("at least 0.8 asked")
    assert why(TrialState.LATE, 0.9, 0.1).endswith("where it is fastest, at most 50.0 ms asked")
    assert why(TrialState.DEAR, 0.9, 0.4) == "$0.4000/h, at most $0.3000/h asked"
    assert "does not tell about 0.8" in why(TrialState.UNDECIDED, 0.8, 0.1)
    free = SloRequest(accuracy=0.8, throughput_per_s=1.0)
    (late,) = candidates([trial(TrialState.LATE, 0.9, 0.1, 1.0)], [], free, None)
    assert late.why == "machines do not hold the copies that the throughput needs"


def test_a_plan_that_is_beaten_says_by_which() -> None:
    assert (
        why(TrialState.FEASIBLE, 0.82, 0.15)
        == "plan 1 is 0.03 more accurate and $0.0500/h cheaper"
    )
    assert why(TrialState.FEASIBLE, 0.95, 0.2) == "plan 2 is as good"
    assert why(TrialState.FEASIBLE, 0.99, 0.05) == "a plan, but none that the front needs"


def test_while_it_is_searched_a_plan_is_a_plan() -> None:
    (found,) = candidates([trial(TrialState.FEASIBLE, 0.9, 0.1, 1.0)], [], SLO, None)
    assert found.why == "a plan, while the search goes on"


def test_the_front_comes_first_and_the_nearest_next() -> None:
    mine = trial(TrialState.FEASIBLE, 0.85, 0.1, 1.0, "first")  # as the plans are configured
    others = [
        trial(TrialState.INACCURATE, 0.5, 0.1, 2.0, "a"),
        trial(TrialState.FEASIBLE, 0.82, 0.15, 3.0, "b"),
        trial(TrialState.INACCURATE, 0.7, 0.1, 4.0, "c"),
        mine,
    ]
    found = candidates(others, FRONT, SLO, "p-1")
    assert [next(iter(each.trial.configuration)) for each in found] == ["first", "b", "c", "a"]
    assert (found[0].number, found[0].why) == (1, "the schedule chose its plan")
