"""Parts that plan a query: which names there are, and which go together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.query import (
    DECIDES_ITSELF,
    SAMPLING,
    STOPPING,
    STRATEGIES,
    PlanningMethod,
)

PUBLISHED = PlanningMethod(strategy="cmbo", stopping="t_test", sampling="stratified")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"strategy": "guess"}, r"planning\.strategy must be among multi_fidelity, .*'guess'"),
        ({"sampling": "worst"}, r"planning\.sampling must be among random, .*got 'worst'"),
        (
            {"strategy": "cmbo", "stopping": "soon"},
            r"planning\.stopping must be among betting, t_test, got 'soon'",
        ),
        ({"strategy": "cmbo"}, r"planning\.stopping must be among betting, t_test, got None"),
        (
            {"stopping": "betting"},
            r"planning\.stopping must be left out with the strategy multi_fidelity, which decides",
        ),
        (
            {"strategy": "cmbo", "stopping": "betting", "sampling": "stratified"},
            r"planning\.sampling must be random with the stopping rule betting.*got 'stratified'",
        ),
    ],
)
def test_parts_that_are_unknown_or_do_not_go_together_are_refused(
    parts: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        PlanningMethod(**parts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stopping": "t_test"}, r"planning\.stopping must be left out"),
        ({"strategy": "guess"}, r"planning\.strategy must be among"),
        (
            {"strategy": "cmbo", "stopping": "betting", "sampling": "stratified"},
            r"planning\.sampling must be random",
        ),
    ],
)
def test_a_change_to_parts_that_do_not_go_together_is_refused(
    change: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        PlanningMethod().changed(**change)


def test_betting_keeps_its_order_when_a_change_names_another() -> None:
    betting = PlanningMethod().changed(strategy="random")
    with pytest.raises(InvalidInput, match=r"planning\.sampling must be random"):
        betting.changed(sampling="stratified")


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (PlanningMethod(), {"strategy": "cmbo"}, ("cmbo", "betting", "random")),
        (
            PlanningMethod(sampling="stratified"),
            {"strategy": "cmbo"},
            ("cmbo", "t_test", "stratified"),
        ),
        (PUBLISHED, {"strategy": "random"}, ("random", "t_test", "stratified")),
        (PUBLISHED, {"strategy": "multi_fidelity"}, ("multi_fidelity", None, "stratified")),
        (PUBLISHED, {"sampling": "random"}, ("cmbo", "t_test", "random")),
        (
            PUBLISHED,
            {"stopping": "betting", "sampling": "random"},
            ("cmbo", "betting", "random"),
        ),
    ],
)
def test_another_strategy_brings_the_stopping_rule_that_it_needs(
    before: PlanningMethod, change: dict[str, str], after: tuple[str, str | None, str]
) -> None:
    found = before.changed(**change)
    assert (found.strategy, found.stopping, found.sampling) == after


@given(
    strategy=st.sampled_from(STRATEGIES),
    stopping=st.sampled_from(STOPPING),
    sampling=st.sampled_from(SAMPLING),
    before=st.sampled_from([PlanningMethod(), PUBLISHED]),
)
def test_all_parts_at_once_are_those_parts_whatever_it_was_before(
    strategy: str, stopping: str, sampling: str, before: PlanningMethod
) -> None:
    rule = None if strategy == DECIDES_ITSELF else stopping
    try:
        wanted = PlanningMethod(strategy=strategy, stopping=rule, sampling=sampling)
    except InvalidInput:
        return
    found = before.changed(strategy=strategy, stopping=rule, sampling=sampling)
    assert found == wanted


def test_no_change_is_the_same() -> None:
    assert PUBLISHED.changed() == PUBLISHED
