"""The server that tests call: what it charges, limits and fails is what it says."""

from __future__ import annotations

import httpx
import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from circinus.pipelines.model.endpoints import CallPrice, RateLimits
from tests.calls.server import Model, ModelServer, serving_models, tokens_of

PRICE = CallPrice(input_usd_per_million=1.0, output_usd_per_million=2.0)
PROMPT = "The price of tin is 12. What is the price of tin?"


def asked(server: ModelServer, model: str = "m", *, temperature: float = 0.0) -> httpx.Response:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": PROMPT}],
        "temperature": temperature,
    }
    return httpx.post(f"{server.url}/chat/completions", json=body, timeout=10)


def test_a_model_that_is_not_there_is_not_found() -> None:
    with serving_models({"m": Model(price=PRICE)}) as server:
        assert asked(server, "other").status_code == 404
        assert server.calls == []


def test_what_is_over_a_limit_is_refused_with_the_time_to_wait_and_not_charged() -> None:
    limits = RateLimits(requests_per_minute=2)
    with serving_models({"m": Model(price=PRICE, limits=limits)}) as server:
        answers = [asked(server) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert 55 < float(answers[2].headers["Retry-After"]) <= 60
        assert (len(server.calls), server.refused) == (2, 1)
        assert server.most_in_a_window("m")[0] == 2


def test_calls_that_fail_are_told_and_half_of_them_are_charged() -> None:
    with serving_models({"m": Model(price=PRICE, failing=1.0, median_s=0.001)}) as server:
        statuses = []
        for temperature in range(1, 41):
            try:
                statuses.append(asked(server, temperature=temperature).status_code)
            except httpx.RemoteProtocolError:
                statuses.append(0)
        assert set(statuses) == {0, 500}
        charged = [call for call in server.calls if call.usd > 0]
        assert len(charged) == statuses.count(0)


def test_a_chat_model_reads_the_fact_and_is_told_what_it_used() -> None:
    with serving_models({"m": Model(price=PRICE)}) as server:
        model = ChatOpenAI(model="m", base_url=server.url, api_key=SecretStr("none"))
        answer = model.invoke(PROMPT)
        assert answer.content == "12"
        assert answer.usage_metadata is not None
        assert answer.usage_metadata["input_tokens"] == tokens_of(PROMPT) == 14
        # 14 tokens at 1 and 1 at 2 dollars per million
        assert server.charged_usd == pytest.approx(16e-6)


def test_equal_requests_are_answered_alike_unless_a_temperature_is_asked_for() -> None:
    with serving_models({"m": Model(price=PRICE, skill=0.5, median_s=0.001)}) as server:

        def answers(temperature: float) -> set[str]:
            found = [asked(server, temperature=temperature) for _ in range(12)]
            return {answer.json()["choices"][0]["message"]["content"] for answer in found}

        assert len(answers(0)) == 1
        assert answers(1) == {"12", "I do not know"}


def test_documents_are_reranked_by_what_they_share_with_the_query() -> None:
    with serving_models({"m": Model(price=CallPrice(call_usd=0.001))}) as server:
        body = {"model": "m", "query": "price of tin", "documents": ["of gold", "price of tin"]}
        found = httpx.post(f"{server.url}/rerank", json=body, timeout=10).json()["results"]
        assert [each["index"] for each in found] == [1, 0]
        assert server.charged_usd == pytest.approx(0.001)
