"""A LangChain chain is planned through the path that every query takes."""

import re
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableLambda,
    RunnablePassthrough,
)
from langgraph.graph import StateGraph
from langgraph.types import Command

from circinus.api.bootstrap.planning import plan_query
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.langchain import Reading, configured, pipeline_from_runnable, runnable_of
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.query import OnFailure, PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.search.result import PlanningOutcome

WORDS = ("  Planner ", "EDGE ", " cloud", "De vice  ")


def _tidied() -> Runnable[Any, Any]:
    return RunnablePassthrough().configurable_alternatives(
        ConfigurableField(id="tidy"),
        default_key="keep",
        strip=RunnableLambda(lambda text: text.strip()),
    )


def _chain() -> Runnable[Any, Any]:
    """Tidies text two ways, then counts letters and words side by side."""
    case: Runnable[Any, Any] = RunnablePassthrough().configurable_alternatives(
        ConfigurableField(id="case"),
        default_key="same",
        lower=RunnableLambda(lambda text: text.lower()),
        upper=RunnableLambda(lambda text: text.upper()),
    )
    counts = {
        "text": case,
        "words": RunnableLambda(lambda text: len(text.split())),
    }
    return _tidied() | counts | RunnableLambda(lambda both: f"{both['text']}/{both['words']}")


def _examples(count: int) -> Dataset:
    texts = [f"{WORDS[i % 4]}{i}" for i in range(count)]
    answers = [f"{text.strip().lower()}/{len(text.split())}" for text in texts]
    pairs = zip(texts, answers, strict=True)
    return Dataset(name="words", examples=[Example(input=t, expected=a) for t, a in pairs])


def _exact(output: Payload, expected: Payload) -> float:
    return float(output == expected)


def test_a_chain_with_alternatives_is_planned_and_handed_back_configured() -> None:
    chain, data = _chain(), _examples(60)
    pipeline = pipeline_from_runnable(chain, Reading(name="tidied", score=_exact))
    query = Query(
        pipeline="tidied",
        slo=Slo(accuracy=0.9, latency_s=1.0),
        limits=PlanningLimits(profiling_s=10.0),
    )

    result = plan_query(query, PRESETS["three-tier"], pipeline, data)

    assert result.outcome is PlanningOutcome.FEASIBLE
    best = result.plans[0].configuration
    assert {knob: value for _, knob, value in best.values} == {"tidy": "strip", "case": "lower"}
    for example in data.examples:
        by_hand = pipeline.run(example.input, best)
        assert configured(chain, best).invoke(example.input) == by_hand == example.expected
        assert runnable_of(pipeline, best).invoke(example.input) == by_hand


def test_a_chain_that_no_alternative_makes_good_enough_is_told_so() -> None:
    data = Dataset(
        name="never",
        examples=[Example(input=text, expected="nothing gives this") for text in WORDS],
    )
    pipeline = pipeline_from_runnable(_chain(), Reading(name="tidied", score=_exact))
    query = Query(pipeline="tidied", slo=Slo(accuracy=0.5, latency_s=1.0))

    result = plan_query(query, PRESETS["one-tier"], pipeline, data)

    assert result.outcome is PlanningOutcome.INFEASIBLE
    assert result.shortfall is not None
    assert result.shortfall.binding == ("accuracy",)


class State(TypedDict):
    text: str


def _commanded(update: State) -> Command[str]:
    return Command(update=update)


def _now_and_then(state: State) -> object:
    update = State(text=state["text"].upper())
    return _commanded(update) if state["text"].endswith("7") else update


def _commanding() -> Runnable[Any, Any]:
    graph = StateGraph(State)
    graph.add_node("commands", _now_and_then)
    graph.add_edge("__start__", "commands")
    return graph.compile()


def _as_an_object(text: str) -> str | object:
    return object() if text.endswith("7") else text


@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_what_cannot_travel_on_some_inputs_ends_planning(on_failure: OnFailure) -> None:
    chain = _tidied() | RunnableLambda(_as_an_object, name="odd") | RunnableLambda(str)
    pipeline = pipeline_from_runnable(chain, Reading(name="odd", score=lambda o, e: 1.0))
    slo = Slo(accuracy=0.5, latency_s=1.0)
    query = Query(pipeline="odd", slo=slo, on_failure=on_failure)

    result = plan_query(query, PRESETS["one-tier"], pipeline, _examples(40))

    assert result.outcome is PlanningOutcome.FAILED
    assert result.plans == ()
    assert re.match(
        r"odd failed on input \d+.*: cannot be planned: output", result.stopped_because
    )


def test_a_node_that_commands_on_some_inputs_ends_planning() -> None:
    begins: Runnable[Any, Any] = RunnableLambda(lambda text: {"text": text})
    chain = begins | _commanding()
    pipeline = pipeline_from_runnable(chain, Reading(name="odd", score=lambda o, e: 1.0))
    query = Query(pipeline="odd", slo=Slo(accuracy=0.5, latency_s=1.0))

    result = plan_query(query, PRESETS["one-tier"], pipeline, _examples(40))

    assert result.outcome is PlanningOutcome.FAILED
    assert "cannot be planned: update of node commands must be" in result.stopped_because
