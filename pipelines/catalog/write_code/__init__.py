"""The built-in pipeline `write-code`: agents that write a function and are scored by its tests.

Its chain is `analyser -> generator -> repairer`. Models are GGUF files by llama.cpp, or endpoints
with the interface of OpenAI. What they write is run contained, or the pipeline refuses to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from circinus.pipelines import checks
from circinus.pipelines.catalog.chaining import chain, step
from circinus.pipelines.catalog.language import GGUFS, ChatEndpoint, ChatModel, weights_model
from circinus.pipelines.catalog.write_code.agents import (
    ANALYSES,
    GENERATIONS,
    LIMITS,
    NO_MODEL,
    OWN,
    Agents,
    checked_analysed,
    checked_draft,
    checked_program,
)
from circinus.pipelines.catalog.write_code.problems import (
    HUMAN_EVAL,
    SMALLEST_PART,
    HumanEvalExamples,
    asserts_of,
    checked_problem,
    checked_text,
    problem_features,
)
from circinus.pipelines.execution.contained.running import (
    containment_need,
    require_containment,
    run_contained,
)
from circinus.pipelines.execution.needs import package
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.execution.weights import ModelWeights
from circinus.pipelines.model.endpoints import EndpointCall
from circinus.pipelines.model.operators import Operator
from circinus.pipelines.model.payload import Payload

NAME = "write-code"
TEMPERATURES = (0.0, 0.4, 0.8)
MODELS: Mapping[str, ModelWeights] = {
    **{name: GGUFS[name] for name in ("smollm2-135m", "qwen2.5-coder-0.5b")},
    "qwen2.5-coder-1.5b": ModelWeights(
        name="qwen2.5-coder-1.5b",
        what="Qwen2.5-Coder-1.5B-Instruct, 4 bits, GGUF",
        licence="Apache-2.0 upstream",
        size_bytes=1_117_320_768,
        files={"model.gguf": "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"},
    ),
}


def pipeline() -> Pipeline:
    """Return the pipeline with models in memory, at temperature 0: 1,152 configurations."""
    return local_pipeline(MODELS)


def sampling_pipeline() -> Pipeline:
    """Return it with temperatures above 0 as well, whose programs differ each time."""
    return local_pipeline(MODELS, temperatures=TEMPERATURES)


def local_pipeline(
    models: Mapping[str, ModelWeights], temperatures: tuple[float, ...] = (0.0,)
) -> Pipeline:
    """Return the pipeline with GGUF models of your own, each the file `model.gguf`, by name."""
    chats = {name: weights_model(weights) for name, weights in models.items()}
    coders = tuple(name for name in models if "coder" in name) or tuple(models)
    needs = (package("xllamacpp", extra=NAME), containment_need())
    made = _pipeline(chats, (OWN, *coders), temperatures)
    return replace(made, needs=needs, weights=(HUMAN_EVAL, *models.values()))


def hosted_pipeline(
    endpoints: Sequence[ChatEndpoint], temperatures: tuple[float, ...] = (0.0,)
) -> Pipeline:
    """Return the pipeline with models that are called, at least one.

    The infrastructure has an endpoint of each name on a remote tier.
    """
    checks.require(len(endpoints) > 0, "endpoints", "must have at least one", len(endpoints))
    names = tuple(endpoint.name for endpoint in endpoints)
    checks.unique("endpoints", names)
    models = {endpoint.name: endpoint.chat for endpoint in endpoints}
    made = _pipeline(models, names, temperatures)
    repairs = tuple(EndpointCall(endpoint=n, when={"rounds": 1, "model": n}) for n in names)
    calls: Mapping[str, tuple[EndpointCall, ...] | tuple[str, ...]]
    calls = {"analyser": names, "generator": names, "repairer": repairs}
    operators = tuple(
        replace(each, spec=replace(each.spec, calls=calls[each.name])) for each in made.operators
    )
    return replace(made, operators=operators, needs=(containment_need(),), weights=(HUMAN_EVAL,))


def _pipeline(
    models: Mapping[str, ChatModel], repairers: tuple[str, ...], temperatures: tuple[float, ...]
) -> Pipeline:
    return Pipeline(
        name=NAME,
        metric="share of the tests passed",
        operators=_operators(Agents(models), repairers, temperatures),
        score=_score,
        features=lambda problem: problem_features(checked_problem(problem)),
        examples=HumanEvalExamples(),
        example_count=SMALLEST_PART,
        prepare=require_containment,
        request_size=lambda problem: float(len(checked_text("problem", problem, "prompt")) or 1),
    )


def _operators(
    agents: Agents, repairers: tuple[str, ...], temperatures: tuple[float, ...]
) -> tuple[Operator, ...]:
    """Return the operators; the generator is one that draws, if a temperature is above 0."""
    names = tuple(agents.models)
    analyser = step(
        checked_problem,
        agents.analysed,
        model=(NO_MODEL, *names),
        prompt=tuple(ANALYSES),
        most_tokens=(64, 160),
    )
    generator = step(
        checked_analysed,
        agents.generated,
        model=names,
        prompt=GENERATIONS,
        temperature=temperatures,
        most_tokens=(160, 400),
    )
    repairer = step(checked_draft, agents.repaired, rounds=(0, 1), model=repairers)
    steps = {"analyser": analyser, "generator": generator, "repairer": repairer}
    draws = any(temperature > 0 for temperature in temperatures)
    return tuple(
        replace(each, spec=replace(each.spec, draws=draws)) if each.name == "generator" else each
        for each in chain(steps)
    )


def _score(output: Payload, expected: Payload) -> float:
    """Return the share of the tests that a program passes; none where it had to be ended."""
    tests = asserts_of(
        checked_text("expected", expected, "test"), checked_text("expected", expected, "entry")
    )
    outcome = run_contained(checked_program("output", output), tests, LIMITS)
    return outcome.passed / len(tests)
