from collections.abc import Sequence

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.pipeline import Pipeline, features_of
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.operators import (
    Knob,
    KnobValue,
    Operator,
    OperatorSpec,
    Scaling,
    Settings,
)
from circinus.pipelines.model.payload import Payload


def _number(value: Payload) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"no number: {value!r}")
    return float(value)


def _add(inputs: Payload, knobs: Settings) -> Payload:
    return _number(inputs) + float(knobs["by"])


def _join(inputs: Payload, _: Settings) -> Payload:
    if not isinstance(inputs, dict):
        raise TypeError("two parents give a dict")
    return [inputs["left"], inputs["right"]]


def _diamond() -> Pipeline:
    by = (Knob(name="by", values=(1, 10)),)
    return Pipeline(
        name="diamond",
        score=lambda output, expected: float(output == expected),
        operators=(
            Operator(spec=OperatorSpec(name="join", after=("left", "right")), run=_join),
            Operator(spec=OperatorSpec(name="left", after=("source",), knobs=by), run=_add),
            Operator(spec=OperatorSpec(name="right", after=("source",), knobs=by), run=_add),
            Operator(spec=OperatorSpec(name="source", knobs=by), run=_add),
        ),
    )


def _one(run: object, score: object = lambda output, expected: 1.0) -> Pipeline:
    operator = Operator(spec=OperatorSpec(name="op"), run=run)  # type: ignore[arg-type]  # bad on purpose
    return Pipeline(name="one", operators=(operator,), score=score)  # type: ignore[arg-type]  # bad on purpose


def test_an_operator_that_raises_is_named_with_its_cause() -> None:
    pipeline = _diamond()
    configuration = ConfigurationSpace(pipeline.graph).configuration(0)

    with pytest.raises(OperatorFailed, match="operator source failed: TypeError: no number: 'x'"):
        pipeline.run("x", configuration)


@pytest.mark.parametrize(
    ("error", "told"), [(SystemExit("bye"), "SystemExit: bye"), (MemoryError(), "MemoryError")]
)
def test_an_operator_that_asks_to_end_or_says_nothing_has_failed_too(
    error: BaseException, told: str
) -> None:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        raise error

    with pytest.raises(OperatorFailed, match=f"^operator op failed: {told}$"):
        _one(run).run(1, Configuration(()))


def test_an_interrupt_of_the_user_ends_what_runs_in_this_process() -> None:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _one(run).run(1, Configuration(()))


def test_a_function_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"operator op.run must be callable, got 3"):
        _one(3)
    with pytest.raises(InvalidInput, match=r"pipeline one.score must be callable, got None"):
        _one(lambda inputs, knobs: inputs, None)


def test_only_a_batched_operator_takes_several_calls_at_once() -> None:
    batched = OperatorSpec(name="op", scaling=Scaling.BATCHED, batch_latency={1: 1.0})
    assert Operator(spec=batched, run=_add, concurrency=2).concurrency == 2
    rule = r"operator op.concurrency must be"
    with pytest.raises(InvalidInput, match=f"{rule} >= 1, got 0"):
        Operator(spec=batched, run=_add, concurrency=0)
    with pytest.raises(InvalidInput, match=f"{rule} 1 for a proportional operator, got 2"):
        Operator(spec=OperatorSpec(name="op"), run=_add, concurrency=2)


def _add_all(inputs: Sequence[Payload], knobs: Settings) -> list[Payload]:
    return [_add(each, knobs) for each in inputs]


def test_only_a_batched_operator_takes_batches_and_one_of_the_two_functions_is_there() -> None:
    batched = OperatorSpec(name="op", scaling=Scaling.BATCHED, batch_latency={1: 1.0})
    with pytest.raises(InvalidInput, match=r"operator op\.run_batch must be left out for a prop"):
        Operator(spec=OperatorSpec(name="op"), run=_add, run_batch=_add_all)
    with pytest.raises(InvalidInput, match=r"operator op\.run_batch must be callable"):
        Operator(spec=batched, run=_add, run_batch=3)  # type: ignore[arg-type] # what is wrong
    with pytest.raises(InvalidInput, match=r"operator op\.run must be given, or run_batch"):
        Operator(spec=batched)


def test_an_operator_with_batches_alone_runs_one_input_as_a_batch() -> None:
    batched = OperatorSpec(name="op", scaling=Scaling.BATCHED, batch_latency={1: 1.0})
    knobs: dict[str, KnobValue] = {"by": 2}
    alone = Operator(spec=batched, run_batch=_add_all).run(1, knobs)
    assert alone == _add(1, knobs)


@pytest.mark.parametrize("bad", [1.5, -0.1, float("nan")])
def test_a_score_outside_zero_and_one_is_a_failure(bad: float) -> None:
    pipeline = _one(lambda inputs, knobs: inputs, lambda output, expected: bad)

    with pytest.raises(OperatorFailed, match=r"operator score failed: must give .* in \[0, 1\]"):
        pipeline.score_of(None, None)


def test_a_metric_that_raises_is_a_failure() -> None:
    pipeline = _one(lambda inputs, knobs: inputs, lambda output, expected: output["missing"])

    with pytest.raises(OperatorFailed, match="operator score failed: KeyError: 'missing'"):
        pipeline.score_of({}, None)


def test_parents_arrive_by_name_and_the_sink_gives_the_output() -> None:
    pipeline = _diamond()
    space = ConfigurationSpace(pipeline.graph)
    configuration = space.parse({"source": {"by": 1}, "left": {"by": 1}, "right": {"by": 10}})

    output = pipeline.run(5, configuration)

    assert output == [7, 16]
    assert pipeline.score_of(output, [7, 16]) == 1


def test_several_sinks_give_a_dict() -> None:
    same = Operator(spec=OperatorSpec(name="a"), run=lambda inputs, knobs: inputs)
    other = Operator(spec=OperatorSpec(name="b"), run=lambda inputs, knobs: -1)
    pipeline = Pipeline(name="two", operators=(same, other), score=lambda o, e: 1.0)

    assert pipeline.run(4, ConfigurationSpace(pipeline.graph).configuration(0)) == {
        "a": 4,
        "b": -1,
    }


def test_features_come_as_rows_or_not_at_all() -> None:
    pipeline = _one(lambda inputs, knobs: inputs)
    with_features = Pipeline(
        name="f", operators=pipeline.operators, score=pipeline.score, features=lambda _: np.ones(2)
    )

    assert features_of(pipeline, [1, 2]) is None
    rows = features_of(with_features, [1, 2, 3])
    assert rows is not None
    assert rows.shape == (3, 2)


def test_a_data_set_without_examples_is_refused() -> None:
    with pytest.raises(InvalidInput, match="data empty must have 1 to 100000 examples, got 0"):
        Dataset(name="empty", examples=[])
    assert len(Dataset(name="one", examples=[Example(input=1, expected=1)])) == 1
