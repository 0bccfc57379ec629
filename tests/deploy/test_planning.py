from __future__ import annotations

import numpy as np
import pytest

from deploy.planning import sampling_of, stopping_rule
from pipelines.errors import InvalidInput
from pipelines.method import SAMPLING, STOPPING
from profiler.betting import Betting
from profiler.drawing import Drawing

DRAWING = Drawing(order=np.arange(3), groups=np.array([0, 1, 1]))


def test_a_stopping_rule_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"planning\.stopping must be among .*, got 'luck'"):
        stopping_rule("luck", DRAWING)


def test_an_order_of_inputs_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"planning\.sampling must be among .*, got 'sorted'"):
        sampling_of("sorted")


def test_every_name_has_a_part_of_its_own() -> None:
    assert len({type(stopping_rule(name, DRAWING)) for name in STOPPING}) == len(STOPPING)
    assert len({sampling_of(name) for name in SAMPLING}) == len(SAMPLING)


def test_betting_is_told_the_groups_of_the_drawing() -> None:
    rule = stopping_rule("betting", DRAWING)
    assert isinstance(rule, Betting)
    assert rule.groups is DRAWING.groups
