"""What of a chain is called over the network: which models, under which options, how often."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, Runnable, RunnableConfig, RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import SecretStr

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.langchain import Reading, as_one, pipeline_from_runnable
from circinus.pipelines.langchain.hosted import MOST_CALLS, endpoint_name, hosted_models, is_hosted
from circinus.pipelines.langchain.reporting import trying_once
from circinus.pipelines.model.endpoints import EndpointCall
from circinus.pipelines.model.operators import OperatorSpec

NOWHERE = "http://127.0.0.1:9/v1"  # the port that discards: nothing listens


def hosted(name: str, **more: Any) -> ChatOpenAI:  # noqa: ANN401 - any field
    return ChatOpenAI(model=name, base_url=NOWHERE, api_key=SecretStr("none"), **more)


def read(chain: Runnable[Any, Any], **choices: list[Any]) -> dict[str, OperatorSpec]:
    reading = Reading(name="chain", score=lambda o, e: 1.0, choices=choices)
    return {one.name: one.spec for one in pipeline_from_runnable(chain, reading).operators}


def test_a_fake_model_calls_nothing() -> None:
    fake = FakeListChatModel(responses=["yes"])

    assert not is_hosted(fake)
    assert read(fake | RunnableLambda(str, name="text"))["FakeListChatModel"].calls == ()


def test_a_model_by_itself_is_called_once_a_run_and_draws_unless_it_is_asked_not_to() -> None:
    assert read(hosted("m"))["ChatOpenAI"].calls == (EndpointCall(endpoint="m"),)
    drawing = {t: read(hosted("m", temperature=t))["ChatOpenAI"].draws for t in (None, 0.0, 0.5)}
    assert drawing == {None: True, 0.0: False, 0.5: True}


def test_alternatives_are_called_under_their_keys_and_local_ones_not_at_all() -> None:
    fake: BaseChatModel = FakeListChatModel(responses=["yes"])
    models = hosted("small").configurable_alternatives(
        ConfigurableField(id="model"), default_key="cheap", good=hosted("org/large"), fake=fake
    )
    spec = read(ChatPromptTemplate.from_template("{x}") | models)["ChatOpenAI"]

    assert spec.calls == (
        EndpointCall(endpoint="small", when={"model": "cheap"}),
        EndpointCall(endpoint="org-large", when={"model": "good"}),
    )
    assert spec.called({"model": "fake"}) == ()


def test_an_alternative_that_is_made_when_asked_for_is_found() -> None:
    models = hosted("small").configurable_alternatives(
        ConfigurableField(id="model"), default_key="small", large=lambda: hosted("large")
    )

    assert read(models)["ChatOpenAI"].endpoints == ("small", "large")


def test_a_configurable_name_is_a_condition_and_a_temperature_is_none() -> None:
    model = hosted("small").configurable_fields(
        model_name=ConfigurableField(id="name"), temperature=ConfigurableField(id="heat")
    )
    spec = read(model, name=["small", "large"], heat=[0.0, 1.0])["ChatOpenAI"]

    assert spec.calls == (
        EndpointCall(endpoint="small", when={"name": "small"}),
        EndpointCall(endpoint="large", when={"name": "large"}),
    )
    assert spec.draws
    assert not read(model, name=["small"], heat=[0.0])["ChatOpenAI"].draws


def test_alternatives_of_one_model_are_one_call_whatever_is_chosen() -> None:
    models = hosted("m", max_tokens=5).configurable_alternatives(
        ConfigurableField(id="length"), default_key="short", long=hosted("m", max_tokens=50)
    )

    assert read(models)["ChatOpenAI"].calls == (EndpointCall(endpoint="m"),)


def test_a_model_that_falls_back_may_call_both_and_one_that_tries_again_calls_more_often() -> None:
    falling = hosted("a").with_fallbacks([hosted("b")])
    trying = hosted("a").with_retry(stop_after_attempt=4)

    (spec,) = read(falling).values()
    assert spec.calls == (EndpointCall(endpoint="a"), EndpointCall(endpoint="b"))
    (spec,) = read(trying).values()
    assert spec.calls == (EndpointCall(endpoint="a", most=4),)


def test_what_a_function_calls_is_found_and_may_be_often() -> None:
    model = hosted("m")
    spec = read(RunnableLambda(lambda text: model.invoke(text).text, name="asks"))["asks"]

    assert spec.calls == (EndpointCall(endpoint="m", most=MOST_CALLS),)


def test_one_model_twice_in_a_step_is_two_calls() -> None:
    model = hosted("m")
    parallel = {"a": model, "b": model} | RunnableLambda(str, name="join")
    assert read(as_one(parallel, "both"))["both"].calls[0] == EndpointCall(endpoint="m", most=2)


class _ConfigurableModel(RunnableLambda[Any, Any]):
    """Stands in for what `langchain.chat_models.init_chat_model` gives: a model in each call."""

    def __init__(self, fields: Any = "any", prefix: str = "", **default: Any) -> None:  # noqa: ANN401 - as theirs
        super().__init__(lambda text: self._model().invoke(text), name="late")
        self._default_config, self._configurable_fields = default, fields
        self._config_prefix = prefix

    def _model(self, config: RunnableConfig | None = None) -> Runnable[Any, Any]:
        chosen = (config or {}).get("configurable", {})
        own = {key.removeprefix(self._config_prefix): value for key, value in chosen.items()}
        return hosted(**{**self._default_config, **own})


_ConfigurableModel.__module__ = "langchain.chat_models.base"


def test_a_model_that_is_made_in_each_call_is_read_off_as_called() -> None:
    (spec,) = read(_ConfigurableModel(name="small", temperature=0)).values()

    assert spec.calls == (EndpointCall(endpoint="small"),)
    assert not spec.draws


@pytest.mark.parametrize("fields", ["any", ["name"]])
def test_the_name_of_a_model_that_is_made_in_each_call_is_a_condition(fields: Any) -> None:  # noqa: ANN401 - as theirs
    model = _ConfigurableModel(fields, "my_", name="small")
    found = hosted_models([model], {"my_name": ["small", "large"], "k": [1, 2]})

    assert [one.call for one in found] == [
        EndpointCall(endpoint="small", when={"my_name": "small"}),
        EndpointCall(endpoint="large", when={"my_name": "large"}),
    ]


def test_a_model_that_cannot_be_made_without_a_choice_calls_nothing() -> None:
    assert hosted_models([_ConfigurableModel(["name"])], {}) == ()


def test_a_model_that_is_made_in_each_call_is_made_without_retries_of_its_own() -> None:
    model = _ConfigurableModel(name="small")
    (found,) = hosted_models([model], {})
    with trying_once(found.trying_again):
        assert model._default_config["max_retries"] == 0
    assert "max_retries" not in model._default_config


def test_a_chain_that_makes_failed_calls_anew_is_not_run_again_by_us() -> None:
    def attempts(chain: Runnable[Any, Any]) -> int:
        reading = Reading(name="chain", score=lambda o, e: 1.0)
        (operator,) = pipeline_from_runnable(chain, reading).operators
        return operator.retries.attempts

    trying = hosted("a").with_retry(stop_after_attempt=4)
    assert attempts(trying) == attempts(as_one(trying | str)) == 1
    assert attempts(trying.with_fallbacks([hosted("b")])) == 1
    assert attempts(hosted("a")) == 3


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("org/model:free", "org-model-free"),
        ("4o", "model-4o"),
        ("m" * 80, "m" * 63),
    ],
)
def test_a_model_s_name_is_made_that_of_an_endpoint(model: str, name: str) -> None:
    assert endpoint_name(model) == name


def test_a_check_calls_nothing_and_says_what_it_left_out() -> None:
    shout: Runnable[Any, Any] = RunnableLambda(lambda text: f"{text}!", name="shout")
    after: Runnable[Any, Any] = RunnableLambda(lambda message: message.text, name="after")
    chain = shout | hosted("m", max_retries=9) | after
    pipeline = pipeline_from_runnable(chain, Reading(name="chain", score=lambda o, e: 1.0))

    assert pipeline.remarks is not None
    assert pipeline.remarks(["a", "b"]).remarks == (
        "ChatOpenAI calls what is paid for: it and what comes after it were not compared",
    )


def test_a_check_still_refuses_a_step_that_comes_before_what_is_paid_for() -> None:
    odd: Runnable[Any, Any] = RunnableLambda(lambda text: iter(text), name="odd")
    chain = odd | hosted("m")
    pipeline = pipeline_from_runnable(chain, Reading(name="chain", score=lambda o, e: 1.0))

    assert pipeline.remarks is not None
    with pytest.raises(InvalidInput, match="output of operator odd must be made of"):
        pipeline.remarks(["a"])


def test_embeddings_that_tell_nothing_and_calls_that_are_not_counted_are_told() -> None:
    embeddings = OpenAIEmbeddings(model="e", base_url=NOWHERE, api_key=SecretStr("none"))
    retriever = InMemoryVectorStore(embeddings).as_retriever()
    model = hosted("m")
    asks: Runnable[Any, Any] = RunnableLambda(
        lambda documents: model.invoke(str(documents)).text, name="asks"
    )
    pipeline = pipeline_from_runnable(
        retriever | asks, Reading(name="chain", score=lambda o, e: 1.0)
    )

    assert pipeline.remarks is not None
    assert pipeline.remarks([]).remarks[:2] == (
        "VectorStoreRetriever embeds by OpenAIEmbeddings, which does not tell what it uses: that "
        "is not in the bill",
        "asks may call m 10 times in a run, as far as the chain tells: money is kept back for as "
        "many",
    )


def test_an_address_of_the_environment_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ChatOpenAI(model="gpt-4o-mini", api_key=SecretStr("none"))
    monkeypatch.setenv("OPENAI_BASE_URL", NOWHERE)
    other = ChatOpenAI(model="gpt-4o-mini", api_key=SecretStr("none"))

    found = [hosted_models([model], {})[0].suggested for model in (own, other)]
    assert found[0].listed("2026-01-15") is not None
    assert found[1].listed("2026-01-15") is None
