"""What every Evaluator promises, over every implementation.

To add an implementation, add a function to `EVALUATORS` that gives a fresh evaluator of
`synthetic()` on `DATA`: same graph, all inputs in `ORDER`, scores of `truth`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.replay import TraceEvaluator
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import Evaluator
from circinus.profiler.comparing import Comparisons
from circinus.profiler.execution import InProcess
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache
from tests.profiler.synthetic import Wide

INPUTS = 8
ORDER = np.array([5, 0, 3, 7, 1, 6, 2, 4])
DATA = Dataset(
    name="integers", examples=tuple(Example(input=i, expected=i) for i in range(INPUTS))
)
BROKEN = 3  # the input on which `double` fails in its mode "strict"
LOST = 6  # the input on which `shift` fails when it shifts by one, in whatever mode `double` is


def synthetic(clock: ManualClock | None = None) -> Pipeline:
    """Return `shift` before `double` and `keep`, both before `join`; knobs set seconds."""
    clock = ManualClock() if clock is None else clock

    def shift(inputs: Payload, settings: Settings) -> Payload:
        clock.sleep(0.25 * (1 + int(settings["by"])))
        assert isinstance(inputs, int)
        if settings["by"] == 1 and inputs == LOST:
            raise RuntimeError("lost")
        return inputs + int(settings["by"])

    def double(inputs: Payload, settings: Settings) -> Payload:
        clock.sleep(0.5 if settings["mode"] == "strict" else 0.125)
        assert isinstance(inputs, int)
        if settings["mode"] == "strict" and inputs == BROKEN:
            raise RuntimeError("strict")
        return 2 * inputs

    def keep(inputs: Payload, settings: Settings) -> Payload:
        clock.sleep(0.0625)
        return inputs

    def join(inputs: Payload, settings: Settings) -> Payload:
        clock.sleep(0.5)
        assert isinstance(inputs, dict)
        doubled, kept = inputs["double"], inputs["keep"]
        assert isinstance(doubled, int)
        assert isinstance(kept, int)
        return doubled - kept

    def score(output: Payload, expected: Payload) -> float:
        assert isinstance(output, int)
        assert isinstance(expected, int)
        return 1 / (1 + abs(output - expected))

    by = Knob(name="by", values=(0, 1))
    mode = Knob(name="mode", values=("strict", "lenient"))
    specs = (
        (OperatorSpec(name="shift", knobs=(by,)), shift),
        (OperatorSpec(name="double", after=("shift",), knobs=(mode,)), double),
        (OperatorSpec(name="keep", after=("shift",)), keep),
        (OperatorSpec(name="join", after=("double", "keep")), join),
    )
    operators = tuple(Operator(spec=spec, run=run) for spec, run in specs)
    return Pipeline(name="synthetic", operators=operators, score=score)


def truth(configuration: Configuration, index: int) -> float | None:
    """Return the score of an input by hand; None when it fails."""
    by = int(configuration.of("shift")["by"])
    if by == 1 and index == LOST:
        return None
    if configuration.of("double")["mode"] == "strict" and index + by == BROKEN:
        return None
    return 1 / (1 + by)


def over_operators(cache: PrefixCache | None, *, width: int = 1) -> Evaluator:
    clock = ManualClock()
    return Profiler(
        synthetic(clock),
        DATA,
        order=ORDER,
        executor=InProcess(clock) if width == 1 else Wide(width),
        journal=MemoryJournal(),
        cache=cache,
        comparisons=Comparisons(most=0),
    )


def over_a_trace(*, cached: bool, width: int = 1) -> Evaluator:
    profiler = over_operators(PrefixCache())
    space = ConfigurationSpace(profiler.graph)
    profiles = [profiler.measure(space.configuration(c), INPUTS) for c in range(space.size)]
    by_input = np.argsort(ORDER)
    trace = Trace(
        graph=profiler.graph,
        configurations=space.indices(list(range(space.size))).astype(np.int16),
        score=np.array([p.score[by_input] for p in profiles], np.float32),
        latency_s=np.array([p.operator_s[:, by_input] for p in profiles], np.float32),
        output_bytes=np.array([p.output_bytes[:, by_input] for p in profiles], np.float32),
        input_bytes=np.full(INPUTS, 1, np.float32),
        features=np.zeros((INPUTS, 1), np.float32),
    )
    return TraceEvaluator(trace, ORDER, cached=cached, width=width)


EVALUATORS: Mapping[str, Callable[[], Evaluator]] = {
    "profiler": lambda: over_operators(PrefixCache()),
    "profiler without cache": lambda: over_operators(None),
    "profiler with a cache that holds one output": lambda: over_operators(PrefixCache(600)),
    "wide profiler": lambda: over_operators(PrefixCache(), width=3),
    "wide profiler without cache": lambda: over_operators(None, width=3),
    "replayed trace": lambda: over_a_trace(cached=True),
    "wide replayed trace": lambda: over_a_trace(cached=True, width=3),
    "replayed trace without cache": lambda: over_a_trace(cached=False),
}

CONFIGURATIONS = tuple(
    ConfigurationSpace(synthetic().graph).configuration(number) for number in range(4)
)


@pytest.fixture(params=EVALUATORS.values(), ids=list(EVALUATORS))
def fresh(request: pytest.FixtureRequest) -> Callable[[], Evaluator]:
    make: Callable[[], Evaluator] = request.param
    return make


@pytest.fixture
def evaluator(fresh: Callable[[], Evaluator]) -> Evaluator:
    return fresh()


@pytest.mark.parametrize("inputs", [-1, 0, INPUTS + 1])
def test_a_number_of_inputs_outside_the_population_is_refused_and_costs_nothing(
    evaluator: Evaluator, inputs: int
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"must be in [1, {INPUTS}], got {inputs}.")):
        evaluator.measure(CONFIGURATIONS[0], inputs)
    assert evaluator.spent_s == 0


@pytest.mark.parametrize("inputs", [0, INPUTS + 1])
def test_one_of_several_that_is_refused_costs_nothing(evaluator: Evaluator, inputs: int) -> None:
    asked = [(CONFIGURATIONS[0], 2), (CONFIGURATIONS[1], inputs)]
    with pytest.raises(InvalidInput, match=re.escape(f"must be in [1, {INPUTS}], got {inputs}.")):
        evaluator.measure_each(asked)
    assert evaluator.spent_s == 0


def test_a_configuration_that_is_asked_for_twice_at_once_is_refused_and_costs_nothing(
    evaluator: Evaluator,
) -> None:
    asked = [(CONFIGURATIONS[0], 2), (CONFIGURATIONS[1], 2), (CONFIGURATIONS[0], 3)]
    with pytest.raises(InvalidInput, match=r"configurations must not repeat"):
        evaluator.measure_each(asked)
    assert evaluator.spent_s == 0


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a_failed_measurement_is_nan_and_named_and_never_raises(
    evaluator: Evaluator, configuration: Configuration
) -> None:
    profile = evaluator.measure(configuration, INPUTS)
    failing = {index for index in range(INPUTS) if truth(configuration, index) is None}
    assert {failure.input for failure in profile.failures} == failing
    assert all(failure.operator and failure.cause for failure in profile.failures)
    lost = np.isin(profile.inputs, list(failing))
    assert np.array_equal(profile.succeeded, ~lost)
    for array in (profile.score, profile.operator_s, profile.output_bytes):
        assert np.isnan(array[..., lost]).all()
        assert np.isfinite(array[..., ~lost]).all()


def test_what_fails_in_several_at_once_fails_in_each(evaluator: Evaluator) -> None:
    shifted = [each for each in CONFIGURATIONS if each.of("shift")["by"] == 1]
    for profile in evaluator.measure_each([(each, INPUTS) for each in shifted]):
        assert LOST in {failure.input for failure in profile.failures}


def test_nothing_asked_gives_nothing(evaluator: Evaluator) -> None:
    assert evaluator.measure_each([]) == ()
    assert evaluator.spent_s == 0


def test_it_says_what_it_measures(evaluator: Evaluator) -> None:
    assert evaluator.width >= 1
    assert evaluator.graph == synthetic().graph
    assert evaluator.population == INPUTS
    assert evaluator.spent_s == 0


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_scores_are_those_of_the_configuration_on_the_inputs(
    evaluator: Evaluator, configuration: Configuration
) -> None:
    profile = evaluator.measure(configuration, INPUTS)
    assert profile.configuration == configuration
    expected = [truth(configuration, index) for index in profile.inputs.tolist()]
    # A trace keeps single precision.
    assert profile.score == pytest.approx(np.array(expected, dtype=float), abs=1e-6, nan_ok=True)
    assert profile.operator_s.shape == (4, INPUTS)
    measured = profile.succeeded
    assert (profile.operator_s[:, measured] >= 0).all()
    assert (profile.output_bytes[:, measured] >= 0).all()
    assert (profile.input_bytes[measured] >= 0).all()


def test_at_least_as_many_inputs_are_measured_as_were_asked_for(evaluator: Evaluator) -> None:
    for inputs in (3, 1, 5, INPUTS):
        assert len(evaluator.measure(CONFIGURATIONS[2], inputs).inputs) >= inputs


def test_all_configurations_are_measured_on_the_same_inputs_in_the_same_order(
    evaluator: Evaluator,
) -> None:
    for configuration in CONFIGURATIONS:
        profile = evaluator.measure(configuration, INPUTS)
        assert profile.inputs.tolist() == ORDER.tolist()


def test_measuring_more_inputs_changes_nothing_that_is_known(evaluator: Evaluator) -> None:
    few = evaluator.measure(CONFIGURATIONS[1], 3)
    kept = few.operator_s.copy()
    many = evaluator.measure(CONFIGURATIONS[1], INPUTS)
    count = len(few.inputs)
    assert np.array_equal(few.inputs, many.inputs[:count])
    assert np.array_equal(few.score, many.score[:count], equal_nan=True)
    assert np.array_equal(few.operator_s, many.operator_s[:, :count], equal_nan=True)
    assert np.array_equal(few.operator_s, kept, equal_nan=True)


def test_asking_again_gives_the_same_and_costs_nothing(evaluator: Evaluator) -> None:
    first = evaluator.measure(CONFIGURATIONS[0], 5)
    spent_s = evaluator.spent_s
    again = evaluator.measure(CONFIGURATIONS[0], 5)
    assert evaluator.spent_s == spent_s
    assert np.array_equal(first.score, again.score, equal_nan=True)
    assert np.array_equal(first.operator_s, again.operator_s, equal_nan=True)
    assert again.spent_s == first.spent_s


@pytest.mark.parametrize("numbers", [(0, 1, 2, 3), (3, 1, 2, 0), (2, 0)], ids=str)
def test_several_at_once_give_and_cost_together_what_they_do_one_by_one(
    fresh: Callable[[], Evaluator], numbers: tuple[int, ...]
) -> None:
    together, apart = fresh(), fresh()
    for inputs in (2, 1, INPUTS):  # of the second, always one less than of the first, and so on
        asked = [(CONFIGURATIONS[n], max(inputs - at, 1)) for at, n in enumerate(numbers)]
        at_once = together.measure_each(asked)
        one_by_one = [apart.measure(*each) for each in asked]
        for one, other in zip(at_once, one_by_one, strict=True):
            assert one.configuration == other.configuration
            assert one.failures == other.failures
            for name in ("inputs", "score", "operator_s", "output_bytes", "input_bytes"):
                assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True)
        for name in ("spent_s", "saved_s", "runs", "saved_runs"):
            total = sum(getattr(profile, name) for profile in at_once)
            assert total == pytest.approx(sum(getattr(profile, name) for profile in one_by_one))
        assert together.spent_s == pytest.approx(apart.spent_s)


def test_the_spend_never_falls_and_is_the_sum_over_the_profiles(evaluator: Evaluator) -> None:
    spent = [evaluator.spent_s]
    for inputs in (2, INPUTS):
        for configuration in CONFIGURATIONS:
            evaluator.measure(configuration, inputs)
            spent.append(evaluator.spent_s)
    assert spent == sorted(spent)
    assert spent[-1] > 0
    total = sum(evaluator.measure(c, INPUTS).spent_s for c in CONFIGURATIONS)
    assert total == pytest.approx(spent[-1], rel=1e-6)


def test_every_run_of_an_operator_is_made_or_saved(evaluator: Evaluator) -> None:
    for configuration in CONFIGURATIONS:
        profile = evaluator.measure(configuration, INPUTS)
        if not profile.failures:
            assert profile.runs + profile.saved_runs == 4 * INPUTS
        assert (profile.saved_s > 0) == (profile.saved_runs > 0)


def test_seconds_and_bytes_depend_on_the_knobs_of_the_lineage_only(evaluator: Evaluator) -> None:
    space = ConfigurationSpace(evaluator.graph)
    profiles = [evaluator.measure(c, INPUTS) for c in CONFIGURATIONS]
    values = space.indices([0, 1, 2, 3])
    owners = [evaluator.graph.position(slot.operator) for slot in evaluator.graph.slots]
    for operator, lineage in enumerate(evaluator.graph.lineages):
        decisive = [column for column, owner in enumerate(owners) if owner in lineage]
        for a in range(4):
            for b in range(a):
                if not np.array_equal(values[a, decisive], values[b, decisive]):
                    continue
                both = profiles[a].succeeded & profiles[b].succeeded
                for array in ("operator_s", "output_bytes"):
                    one, other = getattr(profiles[a], array), getattr(profiles[b], array)
                    assert np.array_equal(one[operator, both], other[operator, both])
