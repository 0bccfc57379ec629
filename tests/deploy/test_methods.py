"""Methods by name: what each stands for."""

from __future__ import annotations

import pytest

from circinus.deploy.methods import (
    DEFAULT,
    METHODS,
    PUBLISHED,
    Method,
    method_of,
    name_of,
    parts_of,
)
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.query import PlanningMethod, Query
from circinus.pipelines.model.slo import Slo
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.problem import SCHEDULING_POLICIES


@pytest.mark.parametrize("name", ["best", "", "Default"])
def test_an_unknown_method_is_refused_with_the_names_and_the_field(name: str) -> None:
    with pytest.raises(
        InvalidInput, match=rf"^--method must be among default, published, .*{name}"
    ):
        method_of(name, "--method")


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_a_method_is_found_by_its_name_and_by_how_it_plans(method: Method) -> None:
    assert method_of(method.name) is method
    assert name_of(method.planning) == method.name
    assert method.scheduling in SCHEDULING_POLICIES
    assert method.dispatch in DISPATCH_POLICIES


def test_parts_of_no_method_have_no_name() -> None:
    planning = PlanningMethod(sampling="stratified")
    assert name_of(planning) is None
    assert parts_of(planning) == {"strategy": "multi_fidelity", "sampling": "stratified"}


def test_parts_are_told_with_the_name_of_the_method() -> None:
    assert parts_of(DEFAULT.planning) == {
        "method": "default",
        "strategy": "multi_fidelity",
        "sampling": "random",
    }
    assert parts_of(PUBLISHED.planning) == {
        "method": "published",
        "strategy": "cmbo",
        "stopping": "t_test",
        "sampling": "stratified",
    }


def test_the_default_is_what_queries_policies_and_settings_fall_back_to() -> None:
    assert Query(pipeline="p", slo=Slo(accuracy=0.5, latency_s=1.0)).planning == DEFAULT.planning
    assert (DEFAULT.scheduling, DEFAULT.dispatch) == (SCHEDULING_POLICIES[0], DISPATCH_POLICIES[0])


def test_the_published_method_schedules_and_dispatches_as_published() -> None:
    assert (PUBLISHED.scheduling, PUBLISHED.dispatch) == ("greedy", "kairos")
