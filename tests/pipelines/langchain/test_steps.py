"""Steps that answer equal inputs differently: declared, sampled by a model, or seen to."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda

from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.langchain import Reading, as_one, pipeline_from_runnable
from circinus.pipelines.langchain.held import everything_of
from circinus.pipelines.langchain.reporting import trying_once
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.operators import Operator
from circinus.profiler.execution import Completed, run_once


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


class _Turns:
    """Its methods name each other, and each is made anew whenever it is asked for."""

    def one(self, text: str) -> str:
        return self.other(text) if text else text

    def other(self, text: str) -> str:
        return self.one(text[1:])


def test_methods_that_name_each_other_are_looked_into_once() -> None:
    found = everything_of(RunnableLambda(_Turns().one))

    names = [getattr(one, "__name__", "") for one in found]
    assert names.count("one") == names.count("other") == 1


RESPONSES = [f"answer {n}" for n in range(9)]


@pytest.fixture
def cache() -> Iterator[InMemoryCache]:
    """Set a cache for all models, as people do while they develop."""
    cache = InMemoryCache()
    set_llm_cache(cache)
    yield cache
    set_llm_cache(None)


def overriding_read(model: FakeListChatModel) -> Pipeline:
    chain = model | RunnableLambda(lambda message: message.text, name="text")
    return pipeline_from_runnable(chain, Reading(name="chain", score=lambda o, e: 1.0))


def measured(operator: Operator, times: int = 2) -> int:
    """Return how many unlike outputs an input has."""
    none = Configuration(())
    ran = [run_once(SystemClock(), operator, "a question", none) for _ in range(times)]
    outputs = [one.output for one in ran if isinstance(one, Completed)]
    assert len(outputs) == times
    return len({repr(operator.comparable(one)) for one in outputs})


def test_no_answer_of_the_global_cache_is_measured(cache: InMemoryCache) -> None:
    operator = overriding_read(FakeListChatModel(responses=RESPONSES)).operators[0]

    assert measured(operator) == 2
    assert get_llm_cache() is cache
    assert not cache._cache


def test_no_answer_of_a_model_s_own_cache_is_measured() -> None:
    model = FakeListChatModel(responses=RESPONSES, cache=InMemoryCache())

    assert measured(overriding_read(model).operators[0]) == 2
    assert isinstance(model.cache, InMemoryCache)


def test_a_model_that_a_function_calls_is_measured_without_the_cache_as_well(
    cache: InMemoryCache,
) -> None:
    model = FakeListChatModel(responses=RESPONSES)
    chain = as_one(RunnableLambda(lambda text: model.invoke(text).text))

    reading = Reading(name="chain", score=lambda o, e: 1.0)
    assert measured(pipeline_from_runnable(chain, reading).operators[0]) == 2


def test_what_serves_is_answered_by_the_cache(cache: InMemoryCache) -> None:
    pipeline = overriding_read(FakeListChatModel(responses=RESPONSES))

    answers = [pipeline.run("a question", Configuration(())) for _ in range(2)]
    assert answers == ["answer 0", "answer 0"]


def test_that_a_cache_was_left_out_is_told(cache: InMemoryCache) -> None:
    pipeline = overriding_read(FakeListChatModel(responses=["yes"]))

    assert pipeline.remarks is not None
    assert pipeline.remarks(["a"]).remarks == (
        "FakeListChatModel is measured without InMemoryCache: what that answers as it serves is "
        "neither called nor paid, and not in the figures",
    )


def test_a_setting_that_two_threads_want_is_put_back_by_the_last() -> None:
    class Client:
        max_retries = 4

    client, entered, leave = Client(), threading.Event(), threading.Event()

    def holds() -> None:
        with trying_once([client]):
            entered.set()
            leave.wait(5)

    thread = threading.Thread(target=holds)
    thread.start()
    entered.wait(5)
    with trying_once([client]):
        assert client.max_retries == 0
    assert client.max_retries == 0
    leave.set()
    thread.join()
    assert client.max_retries == 4
