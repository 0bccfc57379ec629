"""Steps that answer equal inputs differently: declared, sampled by a model, or seen to."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.langchain import Reading, as_one, pipeline_from_runnable


class Local(BaseChatModel):
    """A model in this process that is asked for a temperature."""

    temperature: float | None = None

    @property
    def _llm_type(self) -> str:
        return "local"

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("yes"))])


def read(chain: Runnable[Any, Any], *draws: str) -> Pipeline:
    reading = Reading(name="chain", score=lambda output, expected: 1.0, draws=draws)
    return pipeline_from_runnable(chain, reading)


def drawing(pipeline: Pipeline) -> list[str]:
    return [operator.name for operator in pipeline.graph.operators if operator.draws]


def shout() -> Runnable[Any, Any]:
    return RunnableLambda(lambda text: f"{text}!", name="shout")


def numbered() -> Runnable[Any, Any]:
    count = itertools.count()
    return RunnableLambda(lambda text: f"{text} {next(count)}", name="numbered")


def test_an_operator_that_is_not_there_cannot_be_declared() -> None:
    with pytest.raises(InvalidInput, match="draws must be among shout, got 'whisper'"):
        read(shout(), "whisper")


@pytest.mark.parametrize(("heat", "draws"), [(None, []), (0.0, []), (0.7, ["Local"])])
def test_a_local_model_draws_where_its_temperature_is_above_zero(
    heat: float | None, draws: list[str]
) -> None:
    assert drawing(read(shout() | Local(temperature=heat))) == draws


def test_a_model_that_a_function_calls_is_found_and_told() -> None:
    model = Local(temperature=0.7)
    asks: Runnable[Any, Any] = RunnableLambda(lambda text: model.invoke(text).text, name="asks")
    pipeline = read(asks)
    assert drawing(pipeline) == ["asks"]
    assert pipeline.remarks is not None
    (told,) = pipeline.remarks([]).remarks
    assert told.startswith("asks samples, as its model's temperature is above 0")


def test_a_model_without_a_temperature_does_not_draw() -> None:
    assert drawing(read(FakeListChatModel(responses=["yes"]))) == []


def test_a_reading_declares_operators_by_name() -> None:
    assert drawing(read(shout() | numbered(), "shout")) == ["shout"]


def test_steps_kept_as_one_are_declared_with_them() -> None:
    whole = as_one(shout() | numbered(), "whole", draws=True)
    assert drawing(read(shout() | whole)) == ["whole"]
    assert drawing(read(shout() | as_one(numbered(), "whole"))) == []


def test_a_check_names_what_it_saw_to_draw() -> None:
    pipeline = read(shout() | numbered())
    assert pipeline.remarks is not None
    shown = pipeline.remarks(["a"])
    assert shown.draws == ("numbered",)
    assert "numbered gives another output each time" in shown.remarks[0]


def test_where_only_the_whole_was_seen_to_differ_all_are_named_unless_one_says_so() -> None:
    count = itertools.count()

    def rarely(text: str) -> str:  # alike in the five runs by itself, not within the whole
        return f"{text} {next(count) // 5}"

    def made() -> Runnable[Any, Any]:
        return shout() | RunnableLambda(rarely, name="rarely")

    undeclared = read(made())
    assert undeclared.remarks is not None
    shown = undeclared.remarks(["a"])
    assert "pipeline chain gives another output" in shown.remarks[0]
    assert shown.draws == ("rarely", "shout")
    count = itertools.count()
    declared = read(made(), "rarely")
    assert declared.remarks is not None
    assert declared.remarks(["a"]).draws == ()
