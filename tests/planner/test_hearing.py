"""Values of knobs that were met on few inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import InvalidInput
from pipelines.profile import FloatArray
from planner.hearing import Hearings
from planner.multi_fidelity_settings import MultiFidelitySettings

KNOBS = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [1, 2]])
WORTH = np.array([0.0, -1.0, -2.0, -3.0, -4.0, -5.0])
STEP, ENOUGH = 4, 16


def _hearings(part: float = 0.1) -> Hearings:
    return Hearings(KNOBS, part=part, enough=ENOUGH, step=STEP)


def _cost(row: int, inputs: int) -> float:
    return 0.01 * (row + 1) * inputs


def test_a_part_of_everything_is_no_part() -> None:
    with pytest.raises(InvalidInput, match=r"hearings must be in \[0, 1\), got 1"):
        MultiFidelitySettings(hearings=1.0)


def test_nothing_is_heard_before_it_is_paid_for() -> None:
    hearings = _hearings()
    assert hearings.due(WORTH, _cost) is None
    hearings.paid(0.3, hearing=False)  # 0.03 s: less than four inputs of anything
    assert hearings.due(WORTH, _cost) is None


def test_without_a_part_nothing_is_ever_heard() -> None:
    hearings = _hearings(part=0.0)
    hearings.paid(1e9, hearing=False)
    assert hearings.due(WORTH, _cost) is None


def test_the_value_met_on_the_fewest_inputs_is_heard_through_what_is_worth_most() -> None:
    hearings = _hearings()
    for row, inputs in ((0, 16), (1, 9), (3, 5), (4, 1)):
        hearings.met(row, inputs)
    hearings.paid(100.0, hearing=False)
    assert hearings.due(WORTH, _cost) == (4, 5)  # value 2 of the second knob was met on one
    worth = WORTH.copy()
    worth[4] = -np.inf
    assert hearings.due(worth, _cost) == (5, 5)


def test_a_value_that_is_too_dear_makes_way_for_the_next() -> None:
    hearings = _hearings()
    for row, inputs in ((0, 16), (2, 12), (1, 9), (4, 5)):
        hearings.met(row, inputs)
    hearings.paid(3.0, hearing=False)  # 0.3 s; value 2 of the second knob takes 0.45 s
    assert hearings.due(WORTH, _cost) == (1, 13)
    hearings.paid(3.0, hearing=False)
    assert hearings.due(WORTH, _cost) == (4, 9)


def test_what_met_enough_inputs_needs_no_hearing() -> None:
    hearings = _hearings()
    for row in (0, 3, 4):
        hearings.met(row, ENOUGH)
    hearings.paid(100.0, hearing=False)
    assert hearings.due(WORTH, _cost) is None


def test_a_value_that_nothing_may_be_measured_with_is_passed_over() -> None:
    hearings = _hearings()
    hearings.met(0, ENOUGH)
    hearings.met(3, ENOUGH)  # all but value 2 of the second knob
    hearings.paid(100.0, hearing=False)
    worth = np.where(KNOBS[:, 1] == 2, -np.inf, WORTH)
    assert hearings.due(worth, _cost) is None


@given(
    st.floats(0.01, 0.5),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=60),
)
def test_hearings_cost_their_part_at_most_and_lead_to_an_end(
    part: float, others: list[tuple[int, int]]
) -> None:
    hearings = _hearings(part)
    spent = {True: 0.0, False: 0.0}
    met: FloatArray = np.zeros(6)
    for row, inputs in others:
        while (hearing := hearings.due(WORTH, _cost)) is not None:
            assert met[hearing[0]] < hearing[1] <= ENOUGH
            spent[True] += _cost(*hearing)
            hearings.paid(_cost(*hearing), hearing=True)
            hearings.met(*hearing)
            met[hearing[0]] = hearing[1]
        met[row] = max(met[row], inputs)
        hearings.met(row, inputs)
        spent[False] += _cost(row, inputs)
        hearings.paid(_cost(row, inputs), hearing=False)
        assert spent[True] <= part * spent[False] + 1e-9
