"""What every Evaluator promises of a pipeline that answers differently each time.

To add an implementation, add a function to `EVALUATORS` that gives a fresh evaluator of
`flipping()` on `DATA`: all inputs in `ORDER`, scores of `truth`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.replay import TraceEvaluator
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import MOST_DRAWS, draws_of, measurable
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import Evaluator, Profile
from circinus.profiler.execution import Completed, FailedRun, run_once
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache

INPUTS = 5
ORDER = np.array([3, 0, 4, 1, 2])
DATA = Dataset(name="numbers", examples=tuple(Example(input=i, expected=i) for i in range(INPUTS)))
LOST = (1, 2)  # the input and the draw of it on which `answer` fails in its mode "b"
MOST = INPUTS * MOST_DRAWS


def flipping(clock: ManualClock | None = None) -> Pipeline:
    """Return `read` before `answer`, which draws, and `tell` after it; a call tells its draw."""
    clock = clock or ManualClock()
    met: Counter[tuple[str, int]] = Counter()

    def read(inputs: Payload, settings: Settings) -> Payload:
        clock.sleep(1.5)
        return inputs

    def answer(inputs: Payload, settings: Settings) -> Payload:
        assert isinstance(inputs, int)
        mode = str(settings["mode"])
        draw = met[mode, inputs]
        met[mode, inputs] += 1
        if mode == "b" and (inputs, draw) == LOST:
            raise RuntimeError("lost")
        clock.sleep(0.25 if mode == "a" else 0.5 + draw / 4)
        return [mode, inputs, draw]

    def tell(inputs: Payload, settings: Settings) -> Payload:
        clock.sleep(0.125)
        return inputs

    def score(output: Payload, expected: Payload) -> float:
        assert isinstance(output, list)
        mode, index, draw = output
        return truth(str(mode), int(str(index)), int(str(draw))) or 0.0

    mode = Knob(name="mode", values=("a", "b"))
    specs = (
        (OperatorSpec(name="read"), read),
        (OperatorSpec(name="answer", after=("read",), knobs=(mode,), draws=True), answer),
        (OperatorSpec(name="tell", after=("answer",)), tell),
    )
    operators = tuple(Operator(spec=spec, run=run) for spec, run in specs)
    return Pipeline(name="flipping", operators=operators, score=score)


def truth(mode: str, index: int, draw: int) -> float | None:
    """Return the score of a draw; None when it fails."""
    if mode == "b" and (index, draw) == LOST:
        return None
    return ((3 * index + 5 * draw + (mode == "b")) % 7) / 8


@dataclass
class Once:
    """Runs operators once: nothing has to warm up, and none is taken to draw undeclared."""

    clock: ManualClock
    width: int = 1

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | FailedRun:
        done = run_once(self.clock, operator, inputs, configuration)
        return done if isinstance(done, FailedRun) else replace(done, varies=False)


def over_operators(*, cached: bool = True) -> Evaluator:
    clock = ManualClock()
    return Profiler(
        flipping(clock),
        DATA,
        order=ORDER,
        executor=Once(clock),
        journal=MemoryJournal(),
        cache=PrefixCache() if cached else None,
    )


def over_a_trace(*, cached: bool = True, width: int = 1, draws: int = MOST_DRAWS) -> Evaluator:
    return TraceEvaluator(recorded(draws), ORDER, cached=cached, width=width)


def recorded(draws: int = MOST_DRAWS) -> Trace:
    """Return the trace of what a profiler measured, of so many draws."""
    profiler = over_operators()
    space = ConfigurationSpace(profiler.graph)
    profiles = [profiler.measure(space.configuration(c), MOST) for c in range(space.size)]
    drawn = draws_of(profiles[0].inputs)
    columns = np.argsort(drawn * INPUTS + profiles[0].inputs)[: INPUTS * draws]
    return Trace(
        graph=profiler.graph,
        configurations=space.indices(list(range(space.size))).astype(np.int16),
        score=np.array([p.score[columns] for p in profiles], np.float32),
        latency_s=np.array([p.operator_s[:, columns] for p in profiles], np.float32),
        output_bytes=np.array([p.output_bytes[:, columns] for p in profiles], np.float32),
        input_bytes=np.full(INPUTS, 1, np.float32),
        features=np.zeros((INPUTS, 1), np.float32),
    )


EVALUATORS: Mapping[str, Callable[[], Evaluator]] = {
    "profiler": over_operators,
    "profiler without cache": lambda: over_operators(cached=False),
    "replayed trace": over_a_trace,
    "wide replayed trace": lambda: over_a_trace(width=3),
    "replayed trace without cache": lambda: over_a_trace(cached=False),
}
CONFIGURATIONS = tuple(
    ConfigurationSpace(flipping().graph).configuration(number) for number in range(2)
)


@pytest.fixture(params=EVALUATORS.values(), ids=list(EVALUATORS))
def fresh(request: pytest.FixtureRequest) -> Callable[[], Evaluator]:
    make: Callable[[], Evaluator] = request.param
    return make


@pytest.fixture
def evaluator(fresh: Callable[[], Evaluator]) -> Evaluator:
    return fresh()


def told(profile: Profile) -> list[tuple[int, int]]:
    """Return the (input, draw) pairs of a profile."""
    return list(zip(profile.inputs.tolist(), draws_of(profile.inputs).tolist(), strict=True))


@pytest.mark.parametrize("inputs", [0, MOST + 1])
def test_more_draws_than_are_measured_at_most_are_refused_and_cost_nothing(
    evaluator: Evaluator, inputs: int
) -> None:
    with pytest.raises(InvalidInput, match=rf"must be in \[1, {MOST}\], got {inputs}\."):
        evaluator.measure(CONFIGURATIONS[0], inputs)
    assert evaluator.spent_s == 0


def test_a_draw_that_fails_leaves_the_other_draws_of_its_input(evaluator: Evaluator) -> None:
    profile = evaluator.measure(CONFIGURATIONS[1], MOST)
    assert [(failure.input, failure.draw) for failure in profile.failures] == [LOST]
    assert np.isnan(profile.score).sum() == 1
    assert np.isnan(profile.operator_s).any(axis=0).sum() == 1


def test_inputs_and_draws_of_them_are_counted_apart(evaluator: Evaluator) -> None:
    assert evaluator.graph == flipping().graph
    assert evaluator.population == INPUTS
    assert measurable(evaluator.graph, evaluator.population) == MOST


def test_every_draw_is_met_once_and_has_its_own_score(evaluator: Evaluator) -> None:
    for configuration in CONFIGURATIONS:
        mode = str(configuration.of("answer")["mode"])
        profile = evaluator.measure(configuration, MOST)
        pairs = told(profile)
        assert sorted(pairs) == [(i, d) for i in range(INPUTS) for d in range(MOST_DRAWS)]
        expected = np.array([truth(mode, *pair) for pair in pairs], dtype=float)
        assert profile.score == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_every_input_comes_before_any_used_up_is_drawn_again(evaluator: Evaluator) -> None:
    for inputs in range(1, MOST + 1):
        profile = evaluator.measure(CONFIGURATIONS[0], inputs)
    _, first = np.unique(profile.inputs, return_index=True)
    begun = profile.inputs[np.sort(first)]
    assert begun.tolist() == ORDER.tolist()
    assert (np.diff(profile.inputs[: np.max(first)]) != 0).sum() <= INPUTS - 1


def test_all_configurations_meet_the_same_draws_in_the_same_order(evaluator: Evaluator) -> None:
    few = evaluator.measure(CONFIGURATIONS[0], 7)
    other = evaluator.measure(CONFIGURATIONS[1], MOST)
    many = evaluator.measure(CONFIGURATIONS[0], MOST)
    assert told(few) == told(many)[:7]
    assert told(many) == told(other)


def test_asking_again_gives_the_same_and_costs_nothing(evaluator: Evaluator) -> None:
    first = evaluator.measure(CONFIGURATIONS[1], 17)
    spent_s = evaluator.spent_s
    again = evaluator.measure(CONFIGURATIONS[1], 17)
    assert evaluator.spent_s == spent_s > 0
    assert np.array_equal(first.score, again.score, equal_nan=True)


@pytest.mark.parametrize("cached", [True, False])
def test_a_replay_gives_and_charges_what_operators_did(cached: bool) -> None:
    real, replayed = over_operators(cached=cached), over_a_trace(cached=cached)
    for inputs in (1, 2, 4, 3, 11, 12, 30, MOST):
        for configuration in CONFIGURATIONS[:: 1 if inputs % 2 else -1]:
            one, other = (each.measure(configuration, inputs) for each in (real, replayed))
            assert told(one) == told(other)
            np.testing.assert_allclose(one.score, other.score)
            np.testing.assert_allclose(one.operator_s, other.operator_s)
            # A trace has no seconds of operators before one that failed: here of `read`.
            lost_s = 0.0 if cached else 1.5 * len(one.failures)
            assert one.spent_s == pytest.approx(other.spent_s + lost_s)
            if not one.failures:
                assert (one.runs, one.saved_runs) == (other.runs, other.saved_runs)
    assert real.spent_s == pytest.approx(replayed.spent_s + (0.0 if cached else 1.5))
    assert told(one) != sorted(told(one), key=lambda pair: pair[1])  # some at once: `read` is dear


@pytest.mark.parametrize("draws", [1, 3])
def test_a_replay_draws_an_input_as_often_as_the_trace_did_and_says_so(draws: int) -> None:
    replayed = over_a_trace(draws=draws)
    most = INPUTS * draws
    rule = rf"must be in \[1, {most}\], as the trace has few draws of each input: {draws}, got"
    with pytest.raises(InvalidInput, match=rule):
        replayed.measure(CONFIGURATIONS[0], most + 1)
    profile = replayed.measure(CONFIGURATIONS[0], most)
    assert Counter(profile.inputs.tolist()) == dict.fromkeys(range(INPUTS), draws)
