"""The statistics of judged scores: an oracle, invariants, and coverage by replays.

CIRCINUS_TEST_REPLAYS says how many replays the slow test makes of each case.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

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
from circinus.profiler.labelling import (
    JudgedScores,
    Labelling,
    WantedLabel,
    believed,
    bias,
    intervals,
    judged_accuracy,
    point_estimate,
)
from circinus.profiler.measure import Profiler
from circinus.profiler.stopping import wealth
from tests.profiler.synthetic import Bench

REPLAYS = int(os.environ.get("CIRCINUS_TEST_REPLAYS", "100"))
POPULATION = 20_000
ROUNDING = 1e-6

GOLD = np.array([1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0.5, 1])
JUDGE = np.array([1, 0, 1, 1, 1, 1, 0, 0.75, 1, 1, 0.5, 0.75])
REST = np.array([1, 1, 0, 1, 0.5, 1, 1, 0, 1, 0.25, 1, 1, 0, 1, 1, 1, 0.75, 1, 0, 1])


@pytest.mark.parametrize(
    ("judge", "gold", "population", "message"),
    [
        ([0.5, 1.1], [], 2, "judge must be in [0, 1], got [1.1]."),
        ([0.5, float("nan")], [], 2, "judge must be in [0, 1], got [nan]."),
        ([0.5], [-0.1], 2, "gold must be in [0, 1], got [-0.1]."),
        ([0.5], [1.0, 1.0], 2, "gold must be at most the 1 scores by the judge, got 2."),
        ([0.5, 0.5], [], 1, "judge must be 1 to 1, got 2."),
        ([], [], 1, "judge must be 1 to 1, got 0."),
    ],
)
def test_what_cannot_be_scores_is_refused(
    judge: list[float], gold: list[float], population: int, message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        JudgedScores(judge=np.array(judge), gold=np.array(gold), population=population)


def test_without_labels_nothing_is_known_however_sure_the_judge_is() -> None:
    known = judged_accuracy(_scores(np.ones(50), np.zeros(0)))
    assert (known.value, known.low, known.high) == (1.0, 0.0, 1.0)


def test_without_labels_nothing_is_known_of_the_bias() -> None:
    known = bias(_scores(np.ones(50), np.zeros(0)))
    assert (known.value, known.low, known.high, known.inputs) == (0.0, -1.0, 1.0, 0)


def test_the_point_estimate_is_that_of_ppi_python() -> None:
    # Computed once with ppi-python 0.2.3: ppi_mean_pointestimate(GOLD, JUDGE, REST). With lam=1 it
    # gives 0.6833, with lam=0 the mean label, 0.7083. REST has the inputs without a label.
    found = point_estimate(GOLD, np.concatenate([JUDGE, REST]))
    assert found == pytest.approx(0.6972157016171101, abs=1e-12)


def test_where_all_are_labelled_the_mean_label_is_known() -> None:
    known = judged_accuracy(_scores(1 - GOLD, GOLD))
    assert known.value == pytest.approx(GOLD.mean())
    assert known.low == pytest.approx(known.high, abs=ROUNDING)
    off = bias(_scores(JUDGE, GOLD))
    assert off.low == pytest.approx(float((GOLD - JUDGE).mean()), abs=ROUNDING)
    assert off.high == pytest.approx(off.low, abs=ROUNDING)


def test_a_judge_that_is_right_is_worth_labels_and_one_that_is_constant_none() -> None:
    rng = np.random.default_rng(3)
    gold = (rng.random(400) < 0.7).astype(float)
    right = judged_accuracy(_scores(gold, gold[:60]))
    constant = judged_accuracy(_scores(np.full(400, 0.5), gold[:60]))
    alone = intervals(gold[None, :60], None, 400)
    assert right.high - right.low < 0.6 * (constant.high - constant.low)
    assert constant.high - constant.low == pytest.approx(
        float(alone[1][0] - alone[0][0]), rel=0.15
    )


def test_a_judge_that_says_the_contrary_is_left_out_of_account() -> None:
    gold = np.tile([1.0, 0.0, 1.0, 1.0], 30)
    assert point_estimate(gold[:40], 1 - gold) == gold[:40].mean()
    assert believed(gold[None], 1 - gold[None])[0, 20:].max() == 0.0


def test_the_belief_in_a_label_knows_nothing_of_it() -> None:
    rng = np.random.default_rng(4)
    y, h = rng.random((1, 30)), rng.random((1, 30))
    changed = y.copy()
    changed[0, 17:] = rng.random(13)
    assert (believed(y, h)[0, :18] == believed(changed, h)[0, :18]).all()
    assert (believed(y, h)[0, 18:] != believed(changed, h)[0, 18:]).all()


def test_betting_against_the_truth_wins_nothing_over_all_orders() -> None:
    # Exactly: the mean capital over all 720 orders of six inputs, at theta, after each label.
    gold, judge = np.array([1, 1, 0, 1, 0, 0.5]), np.array([1, 0.5, 0, 1, 1, 0])
    orders = np.array(list(permutations(range(6))))
    y, h = gold[orders], judge[orders]
    ahead = (judge.sum() - np.cumsum(h, axis=1) + h) / (6 - np.arange(6))
    trust = believed(y, h)
    theta = np.full(len(orders), gold.mean())
    capital = wealth(y, trust * (ahead - h), trust * (ahead - 1), theta, 6)
    assert capital.mean(axis=0) == pytest.approx(np.ones(6))
    assert capital.std(axis=0).max() > 0.1


@settings(max_examples=40, deadline=None)
@given(
    population=st.integers(5, 60),
    right=st.floats(0.0, 1.0),
    seed=st.integers(0, 10_000),
    data=st.data(),
)
def test_intervals_are_nested_in_those_of_fewer_labels_and_within_what_can_be(
    population: int, right: float, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    gold = rng.random(population).round(1)
    judge = np.where(rng.random(population) < right, gold, rng.random(population))
    n = data.draw(st.integers(1, population))
    m = data.draw(st.integers(0, n))
    more, fewer = (judged_accuracy(_scores(judge[:n], gold[:k], population)) for k in (m, m // 2))
    assert fewer.low - ROUNDING <= more.low <= more.value <= more.high <= fewer.high + ROUNDING
    assert more.low >= gold[:m].sum() / population - ROUNDING
    assert more.high <= (gold[:m].sum() + population - m) / population + ROUNDING


@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.5])
def test_the_truth_is_in_the_interval_while_the_judge_has_not_scored_all(wrong: float) -> None:
    """300 replays at 95 %: fewer than 270 by chance in one run of 10,000 at most."""
    rng = np.random.default_rng(11)
    gold, judge = _drawn(rng, 300, 400, 0.7, wrong)
    low, high = intervals(gold[:, :80], judge[:, :200], 400)
    theta = gold.mean(axis=1)
    assert ((low <= theta + ROUNDING) & (theta <= high + ROUNDING)).sum() >= 270
    every = intervals(gold[:, :80], judge, 400)
    assert (every[1] - every[0]).mean() < (high - low).mean()


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", [0.5, 0.6, 0.7, 0.8, 0.85])
def test_a_good_judge_saves_labels_and_a_bad_one_costs_few(
    accuracy: float, record_property: Callable[[str, object], None]
) -> None:
    """Coverage at 95 %, judge wrong on 5 %; 0.4 of the labels, and 1.1 for a judge by chance.

    Gold alone is the same bets on labels only. Coverage must reach 95 % within its own two-sided
    95 % interval: of 15 such figures at exactly 95 % one in 40 would be below by chance each; here
    they are above. Widths are compared as means over replays.
    """
    rng = np.random.default_rng(int(1000 * accuracy))
    labels, found = 1200, dict[str, list[FloatArray]]()
    for _ in range(0, REPLAYS, 50):
        gold, judge = _drawn(rng, 50, POPULATION, accuracy, 0.05)
        chance = (rng.random(gold.shape) < accuracy).astype(float)
        theta = gold.mean(axis=1)
        cases = {
            "gold": (labels, None),
            "judge": (int(0.4 * labels), judge),
            "chance": (int(1.1 * labels), chance),
        }
        for name, (m, scores) in cases.items():
            low, high = intervals(gold[:, :m], scores, POPULATION)
            covers = (low <= theta + ROUNDING) & (theta <= high + ROUNDING)
            found.setdefault(name, []).append(np.array([covers, high - low]))
    width = {}
    for name, parts in found.items():
        covers, widths = np.concatenate(parts, axis=1)
        reached = binomtest(int(covers.sum()), len(covers)).proportion_ci(0.95, "exact").high
        width[name] = float(widths.mean())
        record_property(f"{name}: covers, width", (float(covers.mean()), width[name]))
        assert reached >= 0.95, name
    assert width["judge"] <= width["gold"]
    assert width["chance"] <= width["gold"]


def _scores(judge: FloatArray, gold: FloatArray, population: int | None = None) -> JudgedScores:
    return JudgedScores(judge=judge, gold=gold, population=population or len(judge))


def _drawn(
    rng: np.random.Generator, replays: int, population: int, accuracy: float, wrong: float
) -> tuple[FloatArray, FloatArray]:  # (replays, population) each
    gold = (rng.random((replays, population)) < accuracy).astype(float)
    judge = np.where(rng.random(gold.shape) < wrong, 1 - gold, gold)
    return gold, judge


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
