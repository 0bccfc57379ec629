from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextvars import ContextVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import (
    MOST_DRAWS,
    DrawOrder,
    draws_of,
    draws_worth,
    means_of_inputs,
    units_of,
)
from circinus.pipelines.model.operators import (
    Knob,
    KnobValue,
    Operator,
    OperatorSpec,
    Scaling,
    Settings,
)
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.registry import listed, load_pipeline, registered
from circinus.pipelines.user_code import settled, wait_for


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


def test_a_data_set_without_examples_is_refused() -> None:
    with pytest.raises(InvalidInput, match="data empty must have 1 to 100000 examples, got 0"):
        Dataset(name="empty", examples=[])
    assert len(Dataset(name="one", examples=[Example(input=1, expected=1)])) == 1


ORDER = np.array([3, 0, 2])
INPUTS = st.lists(st.integers(0, 4), max_size=20)


def test_pairs_that_it_has_not_grown_to_are_refused() -> None:
    order = DrawOrder(ORDER, draws=True)
    order.grow(2, 1)
    with pytest.raises(InvalidInput, match=re.escape("pairs must be in [0, 2], got (0, 3).")):
        order.pairs(0, 3)


def test_without_draws_it_is_the_order_of_inputs() -> None:
    order = DrawOrder(ORDER, draws=False)
    order.grow(100, 5)
    assert order.size == 3
    assert order.pairs(0, 3) == [(3, 0), (0, 0), (2, 0)]


def test_inputs_are_drawn_again_when_all_are_used_up() -> None:
    order = DrawOrder(ORDER, draws=True)
    order.grow(5, 1)
    assert order.pairs(1, 5) == [(0, 0), (2, 0), (3, 1), (0, 1)]


def test_those_that_were_drawn_less_often_come_first() -> None:
    order = DrawOrder(ORDER, draws=True)
    order.grow(1, 1)
    order.grow(2, 2)  # two draws of 0
    order.grow(6, 1)  # 2, and then what has one draw: 3 and 2
    assert order.pairs(0, 6) == [(3, 0), (0, 0), (0, 1), (2, 0), (3, 1), (2, 1)]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), max_size=8))
def test_it_ends_with_every_draw_of_every_input_and_never_changes_what_it_gave(
    asked: list[tuple[int, int]],
) -> None:
    order = DrawOrder(ORDER, draws=True)
    given_out: list[tuple[int, int]] = []
    for n, draws in asked:
        order.grow(n, draws)
        pairs = order.pairs(0, min(n, order.size))
        assert pairs[: len(given_out)] == given_out[: len(pairs)]
        given_out = max(given_out, pairs, key=len)
    order.grow(10_000, 1)
    every = order.pairs(0, order.size)
    assert sorted(every) == sorted((i, d) for i in ORDER.tolist() for d in range(MOST_DRAWS))


def test_a_pipeline_that_is_found_to_draw_goes_on_from_where_it_is() -> None:
    found = DrawOrder(ORDER, draws=False).drawing(2)
    found.grow(4, 1)
    assert found.pairs(0, 4) == [(3, 0), (0, 0), (2, 0), (3, 1)]


@given(INPUTS)
def test_draws_are_counted_by_input(inputs: list[int]) -> None:
    by_hand = [inputs[:at].count(one) for at, one in enumerate(inputs)]
    assert draws_of(np.array(inputs, dtype=np.int64)).tolist() == by_hand


@given(INPUTS)
def test_means_are_of_the_draws_of_each_input_as_they_were_first_met(inputs: list[int]) -> None:
    scores = np.arange(len(inputs)) / 20
    by_hand = [
        np.mean([score for i, score in zip(inputs, scores, strict=True) if i == one])
        for one in dict.fromkeys(inputs)
    ]
    assert means_of_inputs(np.array(inputs, dtype=np.int64), scores) == pytest.approx(by_hand)


def test_units_are_draws_made_one_after_the_other() -> None:
    inputs, scores = np.array([3, 0, 0, 2, 3]), np.array([1.0, 0.0, 0.5, 1.0, 0.0])
    assert units_of(inputs, scores).tolist() == [1.0, 0.25, 1.0, 0.0]
    assert units_of(np.zeros(0, dtype=np.int64), np.zeros(0)).tolist() == []


@pytest.mark.parametrize("ratio", [0.1, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("part", [0.02, 0.2, 0.8])
def test_as_many_draws_are_worth_it_as_give_the_least_variance_for_the_cost(
    ratio: float, part: float
) -> None:
    worth = draws_worth(ratio, 1.0, part, 1 - part)
    exact = np.sqrt(ratio * part / (1 - part))
    assert abs(worth - min(max(exact, 1), MOST_DRAWS)) <= 0.5
    loss = {d: (1 - part + part / d) * (ratio + d) for d in range(1, MOST_DRAWS + 1)}
    assert loss[worth] <= 1.05 * min(loss.values())


def test_one_draw_is_enough_where_nothing_is_shared_or_nothing_is_known() -> None:
    assert draws_worth(0.0, 1.0, 0.5, 0.5) == 1
    assert draws_worth(1.0, 0.0, 0.5, 0.5) == 1
    assert draws_worth(1.0, 1.0, 0.5, 0.0) == 1


TINY = Pipeline(
    name="tiny",
    operators=(Operator(spec=OperatorSpec(name="op"), run=lambda inputs, knobs: inputs),),
    score=lambda output, expected: 1.0,
)
NOT_A_PIPELINE = 3


def make_tiny() -> Pipeline:
    return TINY


def raising() -> Pipeline:
    raise KeyError("weights")


def leaving() -> Pipeline:
    raise SystemExit(3)


@pytest.mark.parametrize("reference", ["nothing", "digit", ""])
def test_a_name_that_is_not_registered_is_refused(reference: str) -> None:
    with pytest.raises(InvalidInput, match=r"pipeline must be registered \(.*digits.*\)"):
        load_pipeline(reference)


def test_an_import_is_refused_unless_it_is_allowed() -> None:
    with pytest.raises(InvalidInput, match=r"must be a registered pipeline .*, got 'os:system'"):
        load_pipeline("os:system")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tests.pipelines.test_pipeline:raising", r"must be importable \(KeyError: 'weights'\)"),
        ("tests.pipelines.test_pipeline:leaving", r"must be importable \(SystemExit: 3\)"),
        ("no.such.module:x", "must be importable"),
        ("tests.pipelines.test_pipeline:NOWHERE", "must be importable"),
        (":x", "must be importable"),
        ("tests.pipelines.test_pipeline:NOT_A_PIPELINE", "must name a Pipeline"),
    ],
)
def test_a_reference_that_gives_no_pipeline_is_refused(reference: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_pipeline(reference, allow_import=True)


@pytest.mark.parametrize("attribute", ["TINY", "make_tiny"])
def test_a_reference_names_a_pipeline_or_what_makes_one(attribute: str) -> None:
    found = load_pipeline(f"tests.pipelines.test_pipeline:{attribute}", allow_import=True)

    assert found.name == "tiny"


def test_the_default_pipeline_is_registered_and_brings_data() -> None:
    assert "digits" in registered()
    pipeline = load_pipeline("digits")

    assert pipeline.examples is not None
    assert isinstance(pipeline.examples(2, 0), Dataset)


def test_a_pipeline_that_cannot_be_loaded_is_listed_with_the_reason_beside_the_others() -> None:
    def load(name: str) -> Pipeline:
        reference = f"tests.pipelines.test_pipeline:{name}"
        return load_pipeline(reference, allow_import=True)

    broken, whole = listed(["raising", "TINY"], load)

    assert broken.pipeline is None
    assert "KeyError: 'weights'" in broken.missing[0].name
    assert (whole.name, whole.pipeline, whole.missing) == ("TINY", TINY, ())


_WORD = ContextVar("word", default="")


async def _plus(x: Payload, knobs: Settings) -> Payload:
    await asyncio.sleep(0)
    if x == "bad":
        raise ValueError("no number")
    return int(str(x)) + 1


async def _each(items: Sequence[Payload], knobs: Settings) -> Sequence[Payload]:
    return [await _plus(item, knobs) for item in items]


async def _equal(output: Payload, expected: Payload) -> float:
    return float(output == expected)


_ALONE = Operator(spec=OperatorSpec(name="plus"), run=_plus)  # type: ignore[arg-type]  # awaited
_TOGETHER = Operator(
    spec=OperatorSpec(name="plus", scaling=Scaling.BATCHED, batch_latency={1: 1.0}),
    run_batch=_each,  # type: ignore[arg-type]  # awaited
)


def _pipeline(operator: Operator) -> Pipeline:
    return Pipeline(name="own", operators=(operator,), score=_equal)  # type: ignore[arg-type]  # awaited


@pytest.mark.parametrize("operator", [_ALONE, _TOGETHER])
def test_what_an_async_operator_raises_is_its_failure(operator: Operator) -> None:
    pipeline = _pipeline(operator)
    with pytest.raises(OperatorFailed, match="operator plus failed: ValueError: no number"):
        pipeline.run("bad", ConfigurationSpace(pipeline.graph).configuration(0))


@pytest.mark.parametrize("operator", [_ALONE, _TOGETHER])
def test_async_operators_and_metrics_are_awaited(operator: Operator) -> None:
    pipeline = _pipeline(operator)

    assert pipeline.run(1, ConfigurationSpace(pipeline.graph).configuration(0)) == 2
    assert pipeline.score_of(2, 2) == 1.0


def test_what_is_awaited_sees_the_context_of_its_caller_also_inside_a_loop() -> None:
    async def read() -> str:
        return _WORD.get()

    async def outside() -> str:
        _WORD.set("tin")
        return wait_for(read())

    assert asyncio.run(outside()) == "tin"
    assert wait_for(read()) == ""
    assert settled(3) == 3
