import sys
from operator import itemgetter
from typing import Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnablePassthrough,
    RunnableSerializable,
)
from langchain_core.runnables.utils import ConfigurableFieldSingleOption
from langgraph.graph import StateGraph

from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.langchain import Reading, configured, pipeline_from_runnable, runnable_of
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.payload import Payload, encode


class Scale(RunnableSerializable[float, float]):
    """Multiplies; the factor can be configured."""

    factor: float = 1.0

    def invoke(
        self,
        input: float,
        config: RunnableConfig | None = None,
        **_: object,
    ) -> float:
        return input * self.factor


def _scale(id_: str = "factor") -> Runnable[Any, Any]:
    options = {"one": 1.0, "double": 2.0}
    field = ConfigurableFieldSingleOption(id=id_, options=options, default="one")
    return Scale().configurable_fields(factor=field)


def _shift(id_: str = "shift") -> Runnable[Any, Any]:
    return Scale().configurable_alternatives(
        ConfigurableField(id=id_), default_key="none", ten=RunnableLambda(lambda x: x + 10)
    )


def _read(chain: Runnable[Any, Any], **more: object) -> Pipeline:
    return pipeline_from_runnable(chain, Reading(name="chain", score=lambda o, e: 1.0, **more))  # type: ignore[arg-type]  # any field


def _agree_everywhere(chain: Runnable[Any, Any], pipeline: Pipeline, item: Payload) -> list[Any]:
    """Outputs over all configurations; the chain and both Runnables agree."""
    space = ConfigurationSpace(pipeline.graph)
    outputs = []
    for number in range(space.size):
        configuration = space.configuration(number)
        by_hand = pipeline.run(item, configuration)
        assert configured(chain, configuration).invoke(item) == by_hand
        assert runnable_of(pipeline, configuration).invoke(item) == by_hand
        outputs.append(by_hand)
    return outputs


def test_one_id_with_other_values_in_another_step_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"of Scale-2, factor, must have the options"):
        _read(_scale() | _shift("factor"))


def test_one_id_in_several_steps_is_one_knob() -> None:
    chain = {"a": _scale(), "b": _shift()} | RunnableLambda(lambda d: d["a"] + d["b"]) | _scale()
    pipeline = _read(chain)

    assert [slot.key for slot in pipeline.graph.slots] == ["a.factor", "b.shift"]
    assert ConfigurationSpace(pipeline.graph).size == 4
    # doubled or not, (3 + 3) or (3 + 13), doubled or not with the first
    assert sorted(_agree_everywhere(chain, pipeline, 3.0)) == [6.0, 16.0, 18.0, 38.0]
    assert pipeline.remarks is not None
    assert pipeline.remarks([3.0]).remarks == ()


def test_a_knob_that_only_a_later_step_heeds_is_not_called_idle() -> None:
    chain: Runnable[Any, Any] = (
        RunnableLambda(lambda x: x * 0) | _scale() | RunnableLambda(lambda x: x + 1) | _scale()
    )
    pipeline = _read(chain)

    assert pipeline.remarks is not None
    assert pipeline.remarks([3.0]).remarks == ()


def test_choices_for_an_unknown_id_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"choices must be .* factor, or what .* got 'k'"):
        _read(_scale(), choices={"k": [1]})


def test_a_step_that_raises_is_named() -> None:
    pipeline = _read(_scale() | RunnableLambda(lambda x: x / 0, name="divide"))
    configuration = ConfigurationSpace(pipeline.graph).configuration(0)

    with pytest.raises(OperatorFailed, match="operator divide failed: ZeroDivisionError"):
        pipeline.run(1.0, configuration)


def test_a_sequence_becomes_a_chain_and_its_options_knobs() -> None:
    chain = _scale() | _shift() | RunnableLambda(lambda x: -x, name="negate")
    pipeline = _read(chain)

    assert [op.after for op in pipeline.graph.operators][1:] == [
        (pipeline.graph.operators[0].name,),
        (pipeline.graph.operators[1].name,),
    ]
    assert [(s.knob.name, s.knob.values) for s in pipeline.graph.slots] == [
        ("factor", ("one", "double")),
        ("shift", ("none", "ten")),
    ]
    assert sorted(_agree_everywhere(chain, pipeline, 3.0)) == [-16.0, -13.0, -6.0, -3.0]


def test_a_parallel_step_becomes_branches_that_a_later_step_joins() -> None:
    chain = (
        _scale()
        | {"a": _shift(), "b": RunnableLambda(lambda x: x * 100), "c": RunnablePassthrough()}
        | RunnableLambda(lambda d: [d["a"], d["b"], d["c"]], name="join")
    )
    pipeline = _read(chain)

    assert pipeline.graph.operator("join").after == (
        "a",
        "b",
        "Scale",
    )  # what hands on is no operator
    assert _agree_everywhere(chain, pipeline, 2.0)[-1] == [14.0, 400.0, 4.0]


@pytest.mark.parametrize(
    "aside",
    [
        RunnablePassthrough(),
        {"again": RunnablePassthrough(), "word": itemgetter("word")},
        RunnablePassthrough() | itemgetter("word"),
        RunnablePassthrough.assign(more=itemgetter("word")),
        RunnablePassthrough().pick("word"),
        RunnableLambda(itemgetter("word")),
    ],
)
def test_what_only_hands_on_beside_other_steps_adds_no_operator_and_no_width(
    aside: Runnable[Any, Any],
) -> None:
    context = RunnableLambda(lambda x: x["word"] * 2, name="find") | RunnableLambda(str.upper)
    chain = {"context": context, "question": aside} | RunnableLambda(
        lambda d: f"{d['context']} {d['question']}", name="answer"
    )
    pipeline = _read(chain)

    assert [op.after for op in pipeline.graph.operators] == [(), ("find",), ("upper",)]
    assert pipeline.graph.width([0, 1, 2]) == 1
    _agree_everywhere(chain, pipeline, {"word": "tin"})


def test_what_is_handed_on_reaches_a_step_past_branches_that_are_nested() -> None:
    inner = {"a": _scale(), "b": _shift()} | RunnableLambda(lambda d: d["a"] + d["b"], name="add")
    chain = {"sum": inner, "same": RunnablePassthrough()} | RunnableLambda(
        lambda d: [d["sum"], d["same"]], name="join"
    )
    pipeline = _read(chain)

    assert [op.name for op in pipeline.graph.operators] == ["a", "b", "add", "join"]
    assert pipeline.graph.operator("join").after == ("add",)
    assert _agree_everywhere(chain, pipeline, 2.0)[-1] == [16.0, 2.0]


def test_a_parallel_end_gives_the_dict_that_the_chain_gives() -> None:
    chain = RunnableLambda(lambda x: x, name="in") | {"a": _scale(), "b": {"c": _shift()}}
    pipeline = _read(chain)

    assert _agree_everywhere(chain, pipeline, 2.0)[0] == {"a": 2.0, "b": {"c": 2.0}}


def test_two_branches_at_the_end_of_which_one_is_used_keep_the_chain_s_output() -> None:
    chain = {"a": _scale(), "b": _shift()} | RunnableLambda(lambda d: d["b"], name="pick")

    assert _agree_everywhere(chain, _read(chain), 2.0) == [2.0, 12.0, 2.0, 12.0]


def test_assign_adds_keys_to_the_dict_before_it() -> None:
    chain = (
        RunnablePassthrough.assign(double=RunnableLambda(lambda d: d["x"] * 2))
        | RunnablePassthrough.assign(sum=RunnableLambda(lambda d: d["x"] + d["double"]))
        | RunnableLambda(lambda d: d["sum"], name="last")
    )

    assert _agree_everywhere(chain, _read(chain), {"x": 2}) == [6]


def test_assign_to_something_that_is_no_dict_is_a_failure_of_the_operator() -> None:
    pipeline = _read(RunnablePassthrough.assign(a=RunnableLambda(lambda x: x)))
    configuration = ConfigurationSpace(pipeline.graph).configuration(0)

    with pytest.raises(OperatorFailed, match="must be given a dict, got 'int'"):
        pipeline.run(3, configuration)


def test_a_field_without_options_is_a_knob_when_choices_are_given() -> None:
    chain = Scale().configurable_fields(factor=ConfigurableField(id="free"))

    assert _read(chain).graph.slots == ()
    pipeline = _read(chain, choices={"free": [1.0, 3.0]})
    assert _agree_everywhere(chain, pipeline, 2.0) == [2.0, 6.0]


def test_alternatives_inside_alternatives_are_knobs_of_one_operator() -> None:
    chain = Scale().configurable_alternatives(
        ConfigurableField(id="kind"), default_key="plain", scaled=_scale()
    )
    pipeline = _read(chain)

    assert len(pipeline.graph.operators) == 1
    assert sorted(_agree_everywhere(chain, pipeline, 2.0)) == [2.0, 2.0, 2.0, 4.0]


def test_a_lambda_that_gives_a_step_runs_it() -> None:
    chain = RunnableLambda(lambda x: RunnableLambda(lambda y: y + 1), name="indirect")

    assert _agree_everywhere(chain, _read(chain), 1) == [2]


def test_a_step_runs_its_own_function_without_the_chain_around_it() -> None:
    callers: list[str] = []

    def spy(item: float) -> float:
        callers.append(sys._getframe(1).f_globals["__name__"])
        return item

    pipeline = _read(RunnableLambda(spy, name="spy"))
    pipeline.run(1.0, ConfigurationSpace(pipeline.graph).configuration(0))

    assert callers == ["circinus.pipelines.langchain.steps"]


def test_steps_of_one_name_get_names_of_their_own() -> None:
    step = RunnableLambda(lambda x: x, name="same step!")
    pipeline = _read(step | step | step)

    assert [op.name for op in pipeline.graph.operators] == [
        "same-step",
        "same-step-2",
        "same-step-3",
    ]


class State(TypedDict):
    text: str


@pytest.mark.parametrize("chain", [3, "no step", StateGraph(State)])
def test_what_is_no_chain_is_refused(chain: Runnable[Any, Any]) -> None:
    with pytest.raises(InvalidInput, match="chain must be a Runnable, a function or a dict of th"):
        _read(chain)


def test_a_function_and_a_dict_are_read_as_langchain_does() -> None:
    functions: Any = {"a": lambda x: x + 1, "b": lambda x: x * 2}
    pipeline = _read(functions)

    assert [op.name for op in pipeline.graph.operators] == ["a", "b", "output"]
    assert _agree_everywhere(RunnableLambda(functions["a"]), _read(functions["a"]), 1) == [2]


def test_examples_and_scores_are_in_the_chain_s_own_values() -> None:
    seen: list[Any] = []

    def score(output: Payload, expected: Payload) -> float:
        seen.extend([output, expected])
        return 1.0

    data = Dataset(name="d", examples=[Example(input=HumanMessage("hi"), expected=("hi", 2))])  # type: ignore[arg-type]  # what authors write
    chain: Runnable[Any, Any] = RunnableLambda(lambda said: (said.content, len(said.content)))
    reading = Reading(name="talk", score=score, examples=lambda count, seed: data)
    pipeline = pipeline_from_runnable(chain, reading)

    assert pipeline.examples is not None
    (example,) = pipeline.examples(1, 0).examples
    output = pipeline.run(example.input, ConfigurationSpace(pipeline.graph).configuration(0))
    pipeline.score_of(output, example.expected)
    assert encode(example.input)
    assert seen == [("hi", 2), ("hi", 2)]


def test_a_named_sequence_is_still_read_step_by_step() -> None:
    steps = _scale() | _shift()
    pipeline = _read(steps.with_config(run_name="both", tags=["t"], metadata={"m": 1}))

    assert len(pipeline.graph.operators) == 2


def test_a_step_that_has_to_be_asked_otherwise_is_asked_once() -> None:
    calls: list[int] = []

    def refuses(item: int, unused: int = 0) -> int:
        calls.append(item)
        raise NotImplementedError("not for this")

    pipeline = _read(RunnableLambda(refuses, name="refuses"))
    with pytest.raises(OperatorFailed, match="not for this"):
        pipeline.run(1, ConfigurationSpace(pipeline.graph).configuration(0))

    assert calls == [1]


def test_what_ends_its_process_is_left_to_profiling() -> None:
    leaves: Runnable[Any, Any] = RunnableLambda(lambda x: sys.exit(3), name="leaves")
    pipeline = _read(_scale() | leaves)

    assert pipeline.remarks is not None
    assert pipeline.remarks([1.0]) == ((), ())


def test_two_chains_may_have_one_id_with_other_alternatives() -> None:
    def of(**alternatives: Runnable[Any, Any]) -> Runnable[Any, Any]:
        which = ConfigurableField(id="shared-by-two")
        return Scale().configurable_alternatives(which, default_key="same", **alternatives)  # type: ignore[arg-type]  # names of one's own

    half, third = Scale(factor=0.5), Scale(factor=1 / 3)
    values = [
        _read(chain).graph.slots[0].knob.values for chain in (of(half=half), of(third=third))
    ]

    assert values == [("same", "half"), ("same", "third")]
