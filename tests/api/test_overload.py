"""Too much to do is told once it lasts, and over once it was calm."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.use_cases.objectives import FollowedOverload, OverloadSettings
from circinus.pipelines.errors import InvalidInput

SETTINGS = OverloadSettings(lasts_s=3.0, calm_s=10.0)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"beyond": 0.99}, r"beyond must be >= 1, got 0\.99"),
        ({"lasts_s": -1.0}, "lasts_s must be finite and >= 0"),
        ({"calm_s": float("nan")}, "calm_s must be finite and >= 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, float], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        OverloadSettings(**given)


def told(looks: list[tuple[float, str]]) -> list[str]:
    state, found = FollowedOverload(), []
    for at, why in looks:
        state = state.after(why, at, SETTINGS)
        found.append(state.reason)
    return found


def test_a_burst_is_not_told() -> None:
    assert (
        told([(0.0, "much"), (2.9, "much"), (3.0, ""), (4.0, "much"), (6.9, "much")]) == [""] * 5
    )


def test_what_lasts_is_told_until_it_was_calm_long_enough() -> None:
    looks = [(0.0, "a"), (3.0, "b"), (4.0, ""), (13.9, ""), (14.0, "")]
    assert told(looks) == ["", "b", "b", "b", ""]


def test_calm_begins_anew_after_more_of_it() -> None:
    looks = [(0.0, "a"), (3.0, "a"), (4.0, ""), (13.0, "a"), (14.0, ""), (23.9, ""), (24.0, "")]
    assert told(looks)[-2:] == ["a", ""]


@given(st.lists(st.booleans(), max_size=60))
def test_it_never_changes_twice_within_the_time_that_it_has_to_last(much: list[bool]) -> None:
    found = told([(float(at), "much" if each else "") for at, each in enumerate(much)])
    changes = [at for at, (a, b) in enumerate(pairwise(found)) if a != b]
    assert all(b - a >= 3 for a, b in pairwise(changes))
