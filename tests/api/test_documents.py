"""What is stored is read back as it was."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.store.records import Search, from_document, from_text, to_document
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.slo import Estimate
from circinus.pipelines.model.tiers import Calibration, ClassSpeed
from circinus.planner.search.result import (
    PlanningOutcome,
    PlanningPhase,
    PlanningProgress,
    PlanningResult,
    Shortfall,
)
from circinus.scheduler.problem import Assignment, Schedule, Slice
from tests.api.fakes import plan, result

PROGRESS = PlanningProgress(
    phase=PlanningPhase.SEARCHING,
    measured=3,
    failed=1,
    inputs=40,
    spent_s=1.25,
    profiling_left_s=2.0,
    elapsed_s=3.0,
    time_left_s=None,
    best=plan(),
    plans=1,
)
INFEASIBLE = PlanningResult(
    outcome=PlanningOutcome.INFEASIBLE,
    plans=(),
    measured=2,
    failed=0,
    inputs=4,
    spent_s=1.0,
    stopped_because="all measured",
    shortfall=Shortfall(
        binding=("latency",),
        closest=plan(),
        sentence="too slow",
        relaxations={"latency": float("inf")},
        evidence="all 2",
    ),
)
SCHEDULE = Schedule(
    assignments=(Assignment(query_id="q-1", plan_id="p-1", machines=(Slice("cloud", 0, 0.5),)),),
    waiting={"q-2": "no room"},
    utilisation={"cloud": 0.5},
)


FAST = replace(
    PRESETS["three-tier"].tiers[0],
    calibration=Calibration(
        date="2026-01-02",
        tier_factor=2.0,
        share=1.0,
        speeds={"vision": ClassSpeed(factor=2.0, low=1.9, high=2.1, repetitions=5)},
    ),
)
WORLD = replace(PRESETS["three-tier"], tiers=(FAST, *PRESETS["three-tier"].tiers[1:]))
SEARCH = Search(why="late", infrastructure=to_document(WORLD), at=0.1)


@pytest.mark.parametrize(
    "value", [plan(), result(plan()), INFEASIBLE, PROGRESS, SCHEDULE, WORLD, SEARCH]
)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    text = json.dumps(to_document(value), allow_nan=False)
    assert from_document(type(value), json.loads(text)) == value


@given(st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()))
def test_a_knob_value_keeps_its_type(value: bool | int | float | str) -> None:
    configuration = Configuration((("o", "k", value),))
    back = from_document(Configuration, json.loads(json.dumps(to_document(configuration))))
    if value in (float("inf"), float("-inf")):
        return  # no knob of a pipeline is infinite; JSON has no such number
    assert back == configuration
    assert type(back.values[0][2]) is type(value)


def test_a_stored_plan_has_its_old_id() -> None:
    assert from_document(Plan, json.loads(json.dumps(to_document(plan())))).id == plan().id


def test_a_document_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"Plan.pipeline must be valid"):
        from_document(Plan, {"colour": "red"})


def test_reading_checks_the_rules_again() -> None:
    good = Estimate(value=0.5, low=0.4, high=0.6, confidence=0.9, inputs=1)
    with pytest.raises(InvalidInput, match="must lie within its interval"):
        from_document(Estimate, {**to_document(good), "low": 0.55})


@pytest.mark.parametrize("value", [3, "text", Plan, None])
def test_only_dataclasses_have_documents(value: object) -> None:
    with pytest.raises(InvalidInput, match="must be made of a dataclass"):
        to_document(value)


def test_a_text_is_read_as_its_document_is() -> None:
    document = to_document(PROGRESS)
    assert from_text(PlanningProgress, json.dumps(document)) == from_document(
        PlanningProgress, document
    )
    with pytest.raises(InvalidInput, match=r"PlanningProgress\.measured must be valid"):
        from_text(PlanningProgress, json.dumps({**document, "measured": "many"}))
