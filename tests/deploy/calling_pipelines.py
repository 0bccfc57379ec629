"""Pipelines whose operators call endpoints, named as `tests.deploy.calling_pipelines:attribute`.

Where they call is in the environment variable `TEST_MODELS_URL`, which workers inherit.
"""

from __future__ import annotations

import os
from functools import cache

import httpx

from circinus.pipelines.execution.calling import report_usage
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.endpoints import CallRetries, EndpointCall
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload

MODULE = "tests.deploy.calling_pipelines"
URL_VARIABLE = "TEST_MODELS_URL"
PRICES = {"tin": "12", "zinc": "31", "lead": "7"}
FACTS = " ".join(f"The price of {what} is {price}." for what, price in PRICES.items())
_RETRIES = CallRetries(attempts=4, first_wait_s=0.02, longest_wait_s=5.0)


@cache
def _client() -> httpx.Client:
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=200)
    return httpx.Client(timeout=30.0, limits=limits)


def chat(model: str, prompt: str) -> str:
    """Ask a model, and tell what that used."""
    asked = {"model": model, "temperature": 1, "messages": [{"role": "user", "content": prompt}]}
    answer = _client().post(f"{os.environ[URL_VARIABLE]}/chat/completions", json=asked)
    answer.raise_for_status()
    told = answer.json()
    used = told["usage"]
    report_usage(
        model,
        input_tokens=used["prompt_tokens"],
        cached_tokens=used["prompt_tokens_details"]["cached_tokens"],
        output_tokens=used["completion_tokens"],
    )
    return str(told["choices"][0]["message"]["content"])


def _prompt(inputs: Payload, knobs: Settings) -> Payload:
    return f"{FACTS} What is the price of {inputs!s}?"


def _read(inputs: Payload, knobs: Settings) -> Payload:
    if knobs["model"] == "rented":
        return "rented"
    return chat(str(knobs["model"]), str(inputs))


def _check(inputs: Payload, knobs: Settings) -> Payload:
    return chat("checker", str(inputs))


def _gather(inputs: Payload, knobs: Settings) -> Payload:
    return inputs


def _refuse(inputs: Payload, knobs: Settings) -> Payload:
    raise ValueError(f"cannot take {inputs!r}")


def _same(output: Payload, expected: Payload) -> float:
    return float(output == expected)


def _reader(after: str) -> Operator:
    models = Knob(name="model", values=("reader", "rented"))
    spec = OperatorSpec(name="read", after=(after,), knobs=(models,), calls=("reader",))
    return Operator(spec=spec, run=_read, retries=_RETRIES)


_PROMPT = Operator(spec=OperatorSpec(name="prompt"), run=_prompt)

reading = Pipeline(
    name="reading",
    operators=(
        _PROMPT,
        _reader("prompt"),
        Operator(spec=OperatorSpec(name="hand", after=("read",)), run=_gather),
    ),
    score=_same,
)

# Two that call, side by side.
doubting = Pipeline(
    name="doubting",
    operators=(
        _PROMPT,
        _reader("prompt"),
        Operator(
            spec=OperatorSpec(
                name="check", after=("prompt",), calls=(EndpointCall(endpoint="checker"),)
            ),
            run=_check,
            retries=_RETRIES,
        ),
        Operator(spec=OperatorSpec(name="both", after=("read", "check")), run=_gather),
    ),
    score=_same,
)

# One that calls, and another behind it that fails.
failing = Pipeline(
    name="failing",
    operators=(
        _PROMPT,
        _reader("prompt"),
        Operator(spec=OperatorSpec(name="refuse", after=("read",)), run=_refuse),
    ),
    score=_same,
)
