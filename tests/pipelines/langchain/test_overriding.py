"""Caches of LangChain's: nothing is measured with them, and they serve as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda

from circinus.pipelines.clock import SystemClock
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.langchain import Reading, as_one, pipeline_from_runnable
from circinus.pipelines.langchain.reporting import trying_once
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.operators import Operator
from circinus.profiler.execution import Completed, run_once

RESPONSES = [f"answer {n}" for n in range(9)]


@pytest.fixture
def cache() -> Iterator[InMemoryCache]:
    """Set a cache for all models, as people do while they develop."""
    cache = InMemoryCache()
    set_llm_cache(cache)
    yield cache
    set_llm_cache(None)


def read(model: FakeListChatModel) -> Pipeline:
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
    operator = read(FakeListChatModel(responses=RESPONSES)).operators[0]

    assert measured(operator) == 2
    assert get_llm_cache() is cache
    assert not cache._cache


def test_no_answer_of_a_model_s_own_cache_is_measured() -> None:
    model = FakeListChatModel(responses=RESPONSES, cache=InMemoryCache())

    assert measured(read(model).operators[0]) == 2
    assert isinstance(model.cache, InMemoryCache)


def test_a_model_that_a_function_calls_is_measured_without_the_cache_as_well(
    cache: InMemoryCache,
) -> None:
    model = FakeListChatModel(responses=RESPONSES)
    chain = as_one(RunnableLambda(lambda text: model.invoke(text).text))

    reading = Reading(name="chain", score=lambda o, e: 1.0)
    assert measured(pipeline_from_runnable(chain, reading).operators[0]) == 2


def test_what_serves_is_answered_by_the_cache(cache: InMemoryCache) -> None:
    pipeline = read(FakeListChatModel(responses=RESPONSES))

    answers = [pipeline.run("a question", Configuration(())) for _ in range(2)]
    assert answers == ["answer 0", "answer 0"]


def test_that_a_cache_was_left_out_is_told(cache: InMemoryCache) -> None:
    pipeline = read(FakeListChatModel(responses=["yes"]))

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
