from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Sequence
from typing import cast

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import Profile
from circinus.profiler.journal import MeasuredInput, MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache
from tests.profiler.synthetic import Bench, chain, chosen, numbers, one

NOTHING_TO_SET = Configuration(())


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([], "order must be indices in [0, 3), at least one, got []."),
        ([0, 3], "order must be indices in [0, 3), at least one, got [0, 3]."),
        ([-1, 0], "order must be indices in [0, 3), at least one, got [-1, 0]."),
        ([0, 1, 0], "order must not repeat, got 0."),
    ],
)
def test_an_order_that_does_not_fit_the_data_is_refused(order: list[int], message: str) -> None:
    bench = Bench()
    with pytest.raises(InvalidInput, match=re.escape(message)):
        bench.profiler(chain(bench), numbers(3), order=order)


@pytest.mark.parametrize("inputs", [-1, 0, 4])
def test_a_number_of_inputs_outside_the_population_is_refused(inputs: int) -> None:
    bench = Bench()
    pipeline = chain(bench)
    profiler = bench.profiler(pipeline, numbers(3))
    message = re.escape(f"inputs must be in [1, 3], got {inputs}.")
    with pytest.raises(InvalidInput, match=message):
        profiler.measure(chosen(pipeline, first=0, second=0), inputs)
    assert not bench.calls


@pytest.mark.parametrize(
    "values",
    [
        (("first", "by", 0), ("second", "by", 7)),
        (("first", "by", 0),),
        (("first", "by", 0), ("second", "by", 0), ("third", "by", 0)),
    ],
)
def test_a_configuration_of_another_pipeline_is_refused(
    values: tuple[tuple[str, str, int], ...],
) -> None:
    bench = Bench()
    with pytest.raises(InvalidInput, match="must be"):
        bench.profiler(chain(bench), numbers(3)).measure(Configuration(values), 1)
    assert not bench.calls


def test_an_input_that_is_no_payload_is_a_failed_measurement() -> None:
    examples = (
        Example(input=cast(Payload, object()), expected=0.0),
        Example(input=1.0, expected=1.0),
    )
    profile = Bench().profiler(
        one(lambda inputs, settings: 0), Dataset(name="odd", examples=examples)
    )
    measured = profile.measure(NOTHING_TO_SET, 2)
    assert measured.succeeded.tolist() == [False, True]
    assert measured.failures[0].operator == "input"
    assert "payload must be None" in measured.failures[0].cause


class Unreadable(Sequence[Example]):
    """Examples in files that are gone."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: object) -> Example:  # type: ignore[override]  # never a slice
        raise FileNotFoundError("gone.png")

    def __iter__(self) -> Iterator[Example]:
        raise FileNotFoundError("gone.png")


def test_an_input_that_cannot_be_read_is_a_failed_measurement() -> None:
    profiler = Bench().profiler(
        one(lambda inputs, settings: 0), Dataset(name="gone", examples=Unreadable())
    )
    assert profiler.measure(NOTHING_TO_SET, 1).failures[0].cause == "gone.png"


@pytest.mark.parametrize(
    ("score", "cause"),
    [
        (float("nan"), "must give a score in [0, 1], got nan"),
        (1.5, "must give a score in [0, 1], got 1.5"),
        ("high", "ValueError: could not convert string to float: 'high'"),
    ],
)
def test_a_metric_that_gives_no_score_is_a_failure_of_the_metric(
    score: object, cause: str
) -> None:
    operator = Operator(spec=OperatorSpec(name="op"), run=lambda inputs, settings: 0)
    pipeline = Pipeline(
        name="p", operators=(operator,), score=lambda output, expected: cast(float, score)
    )
    profile = Bench().profiler(pipeline, numbers(1)).measure(NOTHING_TO_SET, 1)
    (failure,) = profile.failures
    assert (failure.operator, failure.ends_planning) == ("score", True)
    assert f"score every output, 0 where nothing of it is right ({cause}" in failure.cause


def test_a_failed_measurement_is_nan_in_all_that_was_measured() -> None:
    def broken(inputs: object, settings: object) -> Payload:
        raise RuntimeError("broke")

    profile = Bench().profiler(one(broken), numbers(1)).measure(NOTHING_TO_SET, 1)
    for array in (profile.score, profile.operator_s, profile.output_bytes, profile.input_bytes):
        assert np.isnan(array).all()


def test_a_failed_measurement_is_not_tried_again_by_who_made_it() -> None:
    bench = Bench()

    def broken(inputs: Payload, settings: Settings) -> Payload:
        raise RuntimeError("broke")

    profiler = bench.profiler(one(bench.operator("op", broken).run), numbers(3))
    for _ in range(2):
        assert len(profiler.measure(NOTHING_TO_SET, 3).failures) == 3
    assert bench.calls == {"op": 3}


def test_what_failed_before_a_restart_runs_again_and_what_did_not_does_not() -> None:
    bench, journal, away = Bench(), MemoryJournal(), {1.0}

    def read(inputs: Payload, settings: Settings) -> Payload:
        if inputs in away:
            raise ConnectionError("the store is away")
        return inputs

    pipeline = one(bench.operator("op", read).run)
    before = bench.profiler(pipeline, numbers(3), journal=journal).measure(NOTHING_TO_SET, 3)
    assert [failure.input for failure in before.failures] == [1]
    assert bench.calls == {"op": 1 + 3}  # a warm-up and three runs
    away.clear()

    restarted = bench.profiler(pipeline, numbers(3), journal=journal)
    after = restarted.measure(NOTHING_TO_SET, 3)
    assert after.failures == ()
    assert np.isfinite(after.score).all()
    assert bench.calls == {"op": 4 + 2}  # of the one that failed, with a warm-up
    assert restarted.spent_s == 6 * 0.25  # the failed run was paid for, too
    assert bench.profiler(pipeline, numbers(3), journal=journal).measure(
        NOTHING_TO_SET, 3
    ).spent_s == (6 * 0.25)


def test_a_journal_of_another_pipeline_is_refused() -> None:
    bench = Bench()
    journal = MemoryJournal()
    bench.profiler(one(lambda inputs, settings: 0), numbers(3), journal=journal).measure(
        NOTHING_TO_SET, 1
    )
    two = Pipeline(
        name="two",
        operators=tuple(
            Operator(spec=OperatorSpec(name=name), run=lambda inputs, settings: 0)
            for name in ("a", "b")
        ),
        score=lambda output, expected: 1.0,
    )
    message = "journal, input 0 must be of the 2 operators of two, got 1."
    with pytest.raises(InvalidInput, match=message):
        bench.profiler(two, numbers(3), journal=journal).measure(NOTHING_TO_SET, 1)


def test_inputs_are_measured_in_the_given_order() -> None:
    bench = Bench()
    pipeline = chain(bench)
    profiler = bench.profiler(pipeline, numbers(4), order=[2, 0, 3])
    configuration = chosen(pipeline, first=1, second=0)
    assert profiler.population == 3
    assert profiler.measure(configuration, 2).inputs.tolist() == [2, 0]
    profile = profiler.measure(configuration, 3)
    assert profile.inputs.tolist() == [2, 0, 3]
    assert profile.score.tolist() == [0.5] * 3  # each off by one
    assert profile.operator_s.tolist() == [[0.25] * 3] * 2
    assert profile.input_bytes.tolist() == [3] * 3  # "2.0" as JSON


class Watched(MemoryJournal):
    """A journal that counts and can be interrupted."""

    recalls = 0
    records = 0
    last = 10**6

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        self.recalls += 1
        return super().recall(configuration)

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        if self.records == self.last:
            raise InterruptedError("killed")
        self.records += 1
        super().record(configuration, measured)


def test_the_journal_is_asked_once_per_configuration_and_told_once_per_input() -> None:
    bench = Bench()
    pipeline = chain(bench)
    journal = Watched()
    profiler = bench.profiler(pipeline, numbers(5), journal=journal)
    for inputs in (1, 3, 3, 2, 5):
        profiler.measure(chosen(pipeline, first=0, second=0), inputs)
    assert (journal.recalls, journal.records) == (1, 5)
    assert bench.calls == {"first": 6, "second": 6}


def search(profiler: Profiler) -> list[tuple[int, float, float, bytes]]:
    """Ask as a planner does, and give all that it sees, step by step."""
    space = ConfigurationSpace(profiler.graph)
    seen = []
    for number in (4, 1, 5, 4):
        for inputs in (2, 3, 6):
            profile = profiler.measure(space.configuration(number), inputs)
            values = np.concatenate([[profile.score], profile.operator_s])
            seen.append((len(profile.inputs), profiler.spent_s, profile.spent_s, values.tobytes()))
    return seen


@pytest.mark.parametrize("killed_after", [0, 1, 5, 7, 18])
@pytest.mark.parametrize("cached", [True, False])
def test_a_search_that_is_started_again_repeats_no_measurement_and_sees_the_same(
    killed_after: int, cached: bool
) -> None:
    def fresh(bench: Bench, journal: MemoryJournal) -> Profiler:
        cache = PrefixCache() if cached else None
        return bench.profiler(chain(bench), numbers(6), journal=journal, cache=cache)

    uninterrupted = search(fresh(Bench(), MemoryJournal()))
    journal = Watched()
    journal.last = killed_after
    profiler = fresh(Bench(), journal)
    if killed_after < 18:
        with pytest.raises(InterruptedError):
            search(profiler)
    else:
        search(profiler)
    journal.last = 10**6
    again = Bench()
    seen = search(fresh(again, journal))
    assert journal.records == 18
    assert [(n, values) for n, _, _, values in seen] == [
        (n, values) for n, _, _, values in uninterrupted
    ]
    # What was journalled counts as spent; only warm-ups and lost outputs are paid for again.
    assert seen[-1][1] >= uninterrupted[-1][1]
    if killed_after == 18:
        assert not again.calls
        assert seen == uninterrupted


def test_seconds_in_the_journal_are_kept_though_the_output_is_run_again() -> None:
    bench = Bench()
    pipeline = chain(bench, seconds=lambda call: call / 8)
    journal = MemoryJournal()
    configuration = chosen(pipeline, first=1, second=0)
    before = bench.profiler(pipeline, numbers(3), journal=journal).measure(configuration, 3)
    restarted = bench.profiler(pipeline, numbers(3), journal=journal, cache=PrefixCache())
    restarted.measure(configuration, 3)
    other = restarted.measure(chosen(pipeline, first=1, second=2), 3)
    assert other.operator_s[0].tolist() == before.operator_s[0].tolist()
    assert other.spent_s > other.operator_s.sum()


def test_the_spend_is_the_sum_over_the_profiles() -> None:
    bench = Bench()
    pipeline = chain(bench)
    profiler = bench.profiler(pipeline, numbers(4), cache=PrefixCache())
    space = ConfigurationSpace(pipeline.graph)
    profiles: list[Profile] = [
        profiler.measure(space.configuration(number), 4) for number in range(space.size)
    ]
    assert profiler.spent_s == sum(profile.spent_s for profile in profiles)
    assert profiler.saved_s == sum(profile.saved_s for profile in profiles)
    # All that moved the clock was paid for.
    assert bench.clock.seconds == profiler.spent_s
    # 9 configurations of 4 inputs: `first` runs for 3 of them only.
    assert profiler.saved_s == 6 * 4 * 0.25


class Costly(dict[str, Payload]):
    """A dict that counts how often it is gone through."""

    walks = 0

    def items(self) -> ItemsView[str, Payload]:  # type: ignore[override]  # dict_items: private
        self.walks += 1
        return super().items()


def test_an_input_is_hashed_once_for_all_configurations() -> None:
    def walks(configurations: int) -> int:
        bench = Bench()
        by = Knob(name="by", values=(0, 1, 2))
        operator = bench.operator("op", lambda inputs, settings: 0, knobs=(by,))
        pipeline = Pipeline(name="p", operators=(operator,), score=lambda output, expected: 1.0)
        payload = Costly(a=1)
        data = Dataset(name="costly", examples=(Example(input=payload, expected=0),))
        profiler = bench.profiler(pipeline, data)
        for number in range(configurations):
            profiler.measure(chosen(pipeline, op=number), 1)
        return payload.walks

    # Handing it out goes through it once per configuration, hashing and sizing only once at all.
    assert walks(3) - walks(2) == walks(2) - walks(1) == 1
    assert walks(1) > 1


def test_an_operator_cannot_change_the_data() -> None:
    array = np.zeros(3)
    data = Dataset(name="arrays", examples=(Example(input=array, expected=0),))

    def greedy(inputs: Payload, settings: object) -> Payload:
        assert isinstance(inputs, np.ndarray)
        inputs[0] = 1
        return 0

    profile = Bench().profiler(one(greedy), data).measure(NOTHING_TO_SET, 1)
    assert "read-only" in profile.failures[0].cause
    array[0] = 2  # the owner still may
