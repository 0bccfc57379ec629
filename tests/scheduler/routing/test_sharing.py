"""Requests go to units in turns, each as often as its part says."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from circinus.scheduler.routing.sharing import UnitTurns, parts_now

NAMES = ("a", "b", "c", "d")
parts = st.dictionaries(st.sampled_from(NAMES), st.floats(0.01, 10), min_size=1).map(
    lambda found: {name: part / sum(found.values()) for name, part in found.items()}
)


def test_there_is_no_part_where_nothing_runs() -> None:
    assert parts_now({"a": 1.0}, {"a": 0.0}, changing=False) == {}


def test_what_does_not_run_gets_nothing_and_the_others_what_is_theirs() -> None:
    found = parts_now({"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0, "b": 9, "c": 1}, changing=False)
    assert found == {"b": 0.6, "c": 0.4}


def test_while_others_start_parts_are_by_what_those_that_run_can_do() -> None:
    found = parts_now({"a": 1.0}, {"a": 5, "b": 15}, changing=True)
    assert found == {"a": 0.25, "b": 0.75}


def test_all_weight_on_what_does_not_run_keeps_no_request_from_what_does() -> None:
    assert parts_now({"a": 1.0}, {"a": 0, "b": 15}, changing=False) == {"b": 1.0}


@given(parts, st.integers(1, 300))
def test_each_unit_has_had_its_part_after_any_number_of_requests(
    by_unit: dict[str, float], requests: int
) -> None:
    turns, had = UnitTurns(), Counter[str]()
    for number in range(1, requests + 1):
        had[turns.next(by_unit)] += 1
        for name, part in by_unit.items():
            assert abs(had[name] - number * part) < len(by_unit)


@given(st.lists(parts, min_size=1, max_size=50))
def test_however_parts_change_nobody_without_one_gets_a_request(
    changes: list[dict[str, float]],
) -> None:
    turns = UnitTurns()
    for by_unit in changes:
        assert turns.next(by_unit) in by_unit
