"""What hosted chat models report of themselves, held against what a server charged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.outputs import ChatResult
from langchain_core.runnables import ConfigurableField, Runnable, RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from circinus.pipelines.clock import SystemClock
from circinus.pipelines.execution.calling import Called, EndpointCaller, OpenGate
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.langchain import Reading, as_one, pipeline_from_runnable
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, RateLimits
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import UNPLANNABLE
from tests.calls.server import Model, ModelServer, serving_models

PRICE = CallPrice(
    input_usd_per_million=100.0, cached_usd_per_million=10.0, output_usd_per_million=400.0
)
PROMPT = "The price of tin is 12. What is the price of tin?"
UNBOUNDED = RateLimits()


def quick(limits: RateLimits = UNBOUNDED, *, failing: float = 0.0) -> Model:
    return Model(price=PRICE, limits=limits, failing=failing, median_s=0.001, spread=0.0)


def chat(server: ModelServer, model: str = "m", **more: Any) -> ChatOpenAI:  # noqa: ANN401 - any field
    given = {"temperature": 0.0, **more}
    return ChatOpenAI(model=model, base_url=server.url, api_key=SecretStr("none"), **given)


def read(chain: Runnable[Any, Any]) -> Pipeline:
    return pipeline_from_runnable(chain, Reading(name="chain", score=lambda o, e: 1.0))


class _Impatient(SystemClock):
    """Does not wait between attempts."""

    def sleep(self, seconds: float) -> None:
        return


@contextmanager
def calling(server: ModelServer) -> Iterator[EndpointCaller]:
    endpoints = {
        name: Endpoint(
            name=name,
            price=model.price,
            limits=model.limits,
            most_input_tokens=100,
            most_output_tokens=10,
        )
        for name, model in server.models.items()
    }
    yield EndpointCaller(
        endpoints=endpoints,
        gate=OpenGate(),
        clock=_Impatient(),
        rng=np.random.default_rng(0),
    )


def run(
    server: ModelServer, pipeline: Pipeline, number: int = 0, item: Payload = PROMPT
) -> Called:
    (operator,) = pipeline.operators
    with calling(server) as caller:
        return caller.run(operator, item, ConfigurationSpace(pipeline.graph).configuration(number))


def test_a_call_beyond_those_counted_on_is_refused_before_it_is_made() -> None:
    with serving_models({"m": quick()}) as server:
        model = chat(server)
        often: Runnable[Any, Any] = RunnableLambda(
            lambda text: [model.invoke(text).text for _ in range(11)][-1]
        )
        called = run(server, read(often))

        assert called.failure is not None
        assert called.failure.cause.startswith(UNPLANNABLE)
        assert "calls of m in one run must be at most 10, got 11" in called.failure.cause
        assert len(server.calls) == 10
        assert called.used.usd == pytest.approx(server.charged_usd)


def test_a_model_that_was_not_found_in_the_step_is_not_called() -> None:
    with serving_models({"m": quick(), "n": quick()}) as server:
        model = chat(server)
        other = {"made": lambda: chat(server, "n")}
        step: Runnable[Any, Any] = RunnableLambda(
            lambda text: model.invoke(other["made"]().invoke(text).text).text
        )
        called = run(server, read(step))

        assert called.failure is not None
        assert "calls of n in one run must be none" in called.failure.cause
        assert server.calls == []


def test_a_model_that_tells_no_usage_fails_and_is_charged_as_the_most() -> None:
    with serving_models({"m": quick()}) as server:
        silent = _Silent(model="m", base_url=server.url, api_key=SecretStr("none"))
        called = run(server, read(silent))

        assert called.failure is not None
        assert "what a call of m used must be told by the model" in called.failure.cause
        assert called.used.usd == pytest.approx(100 * 100e-6 + 10 * 400e-6)
        assert called.used.usd >= server.charged_usd


class _Silent(ChatOpenAI):
    def _create_chat_result(
        self,
        response: Any,  # noqa: ANN401 - as its parent takes it
        generation_info: dict[str, Any] | None = None,
    ) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        for each in result.generations:
            each.message.usage_metadata = None  # type: ignore[attr-defined]  # of an answer
        return result


def test_every_attempt_is_seen_and_a_limit_keeps_its_status() -> None:
    limits = RateLimits(requests_per_minute=1)
    with serving_models({"m": quick(limits)}) as server:
        pipeline = read(chat(server))
        assert run(server, pipeline).failure is None
        called = run(server, pipeline)

        assert called.failure is not None
        assert getattr(called.failure.__cause__, "status_code", None) == 429
        assert called.used.calls == server.refused == 1  # it asks for a minute: not tried again
        assert called.used.usd == 0.0


def test_calls_that_fail_are_tried_again_by_circinus_alone() -> None:
    with serving_models({"m": quick(failing=1.0)}) as server:
        called = run(server, read(chat(server)))

        assert called.failure is not None
        assert len(server.calls) == called.used.calls == 3  # `Retries.attempts`
        assert called.used.usd >= server.charged_usd


def test_outside_of_circinus_a_model_tries_again_as_it_did() -> None:
    with serving_models({"m": quick()}) as server:
        model = chat(server, max_retries=5)
        run(server, read(model))

        assert model.root_client.max_retries == 5


@pytest.mark.parametrize("way", ["alone", "parallel", "function", "async", "alternatives"])
def test_dollars_and_tokens_are_those_that_the_server_charged(way: str) -> None:
    with serving_models({"m": quick()}) as server:
        pipeline, number = read(_way(way, chat(server))), 1 if way == "alternatives" else 0
        for item in (PROMPT, PROMPT + " ", PROMPT):
            before = len(server.calls)
            called = run(server, pipeline, number, item)

            assert called.failure is None
            charged = server.calls[before:]
            assert called.used.usd == pytest.approx(sum(call.usd for call in charged))
            assert called.used.tokens == sum(call.used.tokens for call in charged)
            assert called.used.cached_tokens == sum(call.cached_tokens for call in charged)
            assert called.used.calls == len(charged) >= 1


def _way(way: str, model: ChatOpenAI) -> Runnable[Any, Any]:
    known: Runnable[Any, Any] = RunnableLambda(
        lambda text: [("system", "Be brief."), ("human", text)]
    )
    if way == "parallel":
        return as_one(known | {"a": model, "b": model})
    if way == "function":
        return RunnableLambda(lambda text: [model.invoke(text).text for _ in range(3)])
    if way == "async":

        async def asks(text: str) -> str:
            return str((await model.ainvoke(text)).text)

        return RunnableLambda(asks)
    if way == "alternatives":
        field = ConfigurableField(id="which")
        return model.configurable_alternatives(field, default_key="a", b=model)
    return as_one(known | model)


def test_what_comes_out_of_langchain_s_cache_is_not_paid_for() -> None:
    with serving_models({"m": quick()}) as server:
        pipeline = read(chat(server, cache=InMemoryCache()))
        paid, free = run(server, pipeline), run(server, pipeline)

        assert paid.used.usd == pytest.approx(server.charged_usd)
        assert (free.failure, free.used.calls, free.used.usd) == (None, 0, 0)
        assert len(server.calls) == 1


def test_an_answer_that_is_lost_beside_one_that_came_counts_as_the_most() -> None:
    models = {"m": quick(failing=1.0), "n": quick()}
    with serving_models(models) as server:
        called = run(server, read(chat(server).with_fallbacks([chat(server, "n")])))

        assert called.failure is None
        by_name = {call.model: call.usd for call in server.calls}
        most = 100 * 100e-6 + 10 * 400e-6
        assert called.used.usd == pytest.approx(most + by_name["n"])
        assert called.used.calls == 2
