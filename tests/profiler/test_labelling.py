from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.metrics import Judge
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.operators import (
    Knob,
    Operator,
    OperatorFunction,
    OperatorSpec,
    Settings,
)
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import FloatArray, Profile
from circinus.pipelines.model.slo import Estimate
from circinus.profiler.execution import InProcess
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.labelling import Labelling, WantedLabel
from circinus.profiler.measure import Profiler
from tests.profiler.synthetic import Bench

INPUTS = 60


class People:
    """Score what is right with 1, at most so many outputs."""

    def __init__(self, patience: int = 1000) -> None:
        self.patience = patience
        self.asked: list[WantedLabel] = []

    def __call__(self, wanted: Sequence[WantedLabel]) -> Mapping[str, float]:
        self.asked.extend(wanted)
        scored = wanted[: self.patience]
        self.patience -= len(scored)
        return {one.label: float(one.output == one.expected) for one in scored}


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_a_label_that_is_no_score_is_refused(score: float) -> None:
    with pytest.raises(InvalidInput, match=re.escape("metric.gold, label a must be in [0, 1]")):
        _labelling(MemoryJournal(), labels={"a": score})


def test_an_answer_that_is_no_score_is_refused() -> None:
    profile, journal = _measured(0)
    labelling = _labelling(journal, budget=20)
    labelling.ask = lambda wanted: {wanted[0].label: 2.0}
    with pytest.raises(InvalidInput, match=r"label \w+ must be in \[0, 1\], got 2"):
        _accuracy(labelling, profile, 0.5)


def test_without_a_budget_nobody_is_asked_and_nothing_is_wanted() -> None:
    profile, journal = _measured(0)
    people = People()
    labelling = _labelling(journal)
    labelling.ask = people
    known = _accuracy(labelling, profile, 0.5)
    assert (known.low, known.high, people.asked) == (0.0, 1.0, [])
    labelling.ask = None
    _accuracy(labelling, profile, 0.5)
    assert labelling.wanted == {}


def test_where_people_do_not_answer_they_are_not_asked_again() -> None:
    profile, journal = _measured(0)
    people = People(patience=0)
    labelling = _labelling(journal, budget=40)
    labelling.ask = people
    known = _accuracy(labelling, profile, 0.5)
    assert (known.low, known.high, labelling.left) == (0.0, 1.0, 40)
    assert len(people.asked) == 8


def test_a_few_first_labels_are_a_fifth_of_the_budget_at_most() -> None:
    profile, journal = _measured(0)
    kept = np.ones(INPUTS, dtype=bool)
    for budget, asked in ((0, 0), (25, 5), (1000, 16)):
        labelling = _labelling(journal, budget=budget)
        labelling.ask = People()
        labelling.pilot(profile, kept)
        assert len(labelling.labels) == asked


def test_without_a_bound_nobody_is_asked() -> None:
    profile, journal = _measured(0)
    people = People()
    labelling = _labelling(journal, budget=40)
    labelling.ask = people
    _accuracy(labelling, profile, None)
    assert people.asked == []


def test_people_are_asked_in_the_order_drawn_until_it_is_decided() -> None:
    profile, journal = _measured(0)
    people = People()
    labelling = _labelling(journal, budget=1000)
    labelling.ask = people
    known = _accuracy(labelling, profile, 0.5)
    assert known.low >= 0.5  # the truth is 0.8
    assert [one.input for one in people.asked] == profile.inputs[: len(people.asked)].tolist()
    assert 8 <= len(people.asked) < INPUTS
    off = labelling.bias(profile.configuration)
    assert off.low <= 0.0 <= off.high
    assert off.inputs == len(people.asked)


def test_one_audit_takes_half_of_what_is_left() -> None:
    profile, journal = _measured(0)
    labelling = _labelling(journal, budget=20)
    labelling.ask = People()
    _accuracy(labelling, profile, 0.8)  # which is the truth: too close to call
    assert (len(labelling.labels), labelling.left) == (10, 10)


def test_equal_outputs_on_an_input_have_their_label_together() -> None:
    pipeline, profiler, journal = _world()
    one, same, other = (profiler.measure(_chosen(pipeline, by), INPUTS) for by in (0, 1, 2))
    people = People()
    labelling = _labelling(journal, budget=1000)
    labelling.ask = people
    known = _accuracy(labelling, one, 0.5)
    asked = len(people.asked)
    assert _accuracy(labelling, same, 0.5) == known
    assert len(people.asked) == asked
    _accuracy(labelling, other, 0.7)
    # Its wrong outputs are others, and those among the first have no label yet.
    first = other.inputs[:asked].tolist()
    assert {one.input for one in people.asked[asked:]} >= {i for i in first if i % 5 == 0}


def test_what_is_wanted_is_told_and_its_labels_are_taken_the_next_time() -> None:
    profile, journal = _measured(0)
    first = _labelling(journal, budget=50)
    assert _accuracy(first, profile, 0.5).low == 0.0
    assert [one.input for one in first.wanted.values()] == profile.inputs[
        : len(first.wanted)
    ].tolist()
    assert all(one.payload == one.input for one in first.wanted.values())
    labels = {one.label: float(one.output == one.expected) for one in first.wanted.values()}
    again = _labelling(journal, budget=50, labels=labels)
    known = _accuracy(again, profile, 0.5)
    assert known.low > 0.3
    assert known.inputs == INPUTS


def test_scores_are_worth_what_labels_say_of_them() -> None:
    profile, journal = _measured(0)
    labelling = _labelling(journal, budget=1000)
    scores = np.array([0.0, 0.5, 1.0, 1.0])
    assert labelling.corrected(scores).tolist() == scores.tolist()
    labelling.ask = lambda wanted: {one.label: 0.0 for one in wanted}  # all of it is bad
    _accuracy(labelling, profile, 0.5)
    after = labelling.corrected(scores)
    assert after.mean() < 0.3
    assert ((after >= 0) & (after <= scores)).all()


@given(
    scores=st.lists(st.floats(0, 1), min_size=1, max_size=20),
    pairs=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30),
)
def test_corrected_scores_are_scores_in_the_same_order(
    scores: list[float], pairs: list[tuple[float, float]]
) -> None:
    labelling = _labelling(MemoryJournal())
    labelling._pairs = {str(i): pair for i, pair in enumerate(pairs)}
    after = labelling.corrected(np.array(scores))
    assert ((after >= 0) & (after <= 1)).all()
    assert (np.diff(after[np.argsort(scores, kind="stable")]) >= -1e-12).all()


def test_a_failed_input_scores_nothing_and_needs_no_label() -> None:
    def fails(inputs: Payload, knobs: Settings) -> Payload:
        assert isinstance(inputs, int)
        if inputs % 2:
            raise ValueError("odd")
        return inputs

    pipeline, profiler, journal = _world(fails)
    profile = profiler.measure(_chosen(pipeline, 0), INPUTS)
    counted = np.where(np.isnan(profile.score), 0.0, profile.score)
    labelling = _labelling(journal, budget=1000)
    people = labelling.ask = People()
    known = labelling.accuracy(
        _with_scores(profile, counted), np.ones(INPUTS, dtype=bool), population=INPUTS, bound=0.7
    )
    assert known.high < 0.7
    assert all(one.input % 2 == 0 for one in people.asked)


def _with_scores(profile: Profile, scores: FloatArray) -> Profile:
    return replace(profile, score=scores)


def _accuracy(labelling: Labelling, profile: Profile, bound: float | None) -> Estimate:
    kept = np.ones(len(profile.inputs), dtype=bool)
    return labelling.accuracy(profile, kept, population=INPUTS, bound=bound)


def _labelling(
    journal: MemoryJournal, *, budget: int = 0, labels: Mapping[str, float] | None = None
) -> Labelling:
    return Labelling(dataset=_data(), journal=journal, budget=budget, labels=dict(labels or {}))


def _measured(by: int) -> tuple[Profile, MemoryJournal]:
    pipeline, profiler, journal = _world()
    return profiler.measure(_chosen(pipeline, by), INPUTS), journal


def _chosen(pipeline: Pipeline, by: int) -> Configuration:
    return ConfigurationSpace(pipeline.graph).parse({"op": {"by": by}})


def _world(run: OperatorFunction | None = None) -> tuple[Pipeline, Profiler, MemoryJournal]:
    def answer(inputs: Payload, knobs: Settings) -> Payload:
        """Wrong on every fifth; one knob value in three is wrong in other words."""
        assert isinstance(inputs, int)
        return ["wrong", "wrong", "false"][int(knobs["by"])] if inputs % 5 == 0 else inputs

    operator = Operator(
        spec=OperatorSpec(name="op", knobs=(Knob(name="by", values=(0, 1, 2)),)),
        run=run or answer,
    )
    judge = Judge(judge=lambda given, output, expected: float(output == expected))
    pipeline = Pipeline(name="p", operators=(operator,), score=judge)
    journal = MemoryJournal()
    order = np.random.default_rng(2).permutation(INPUTS)
    executor = InProcess(Bench().clock)
    profiler = Profiler(pipeline, _data(), order=order, executor=executor, journal=journal)
    return pipeline, profiler, journal


def _data() -> Dataset:
    examples = tuple(Example(input=i, expected=i) for i in range(INPUTS))
    return Dataset(name="numbers", examples=examples)
