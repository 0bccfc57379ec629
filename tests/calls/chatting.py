"""A pipeline that asks models of `tests.calls.server`, at CHAT_URL, each question once."""

from __future__ import annotations

import os
import signal

import httpx

from circinus.pipelines.execution.calling import report_usage
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.endpoints import CallPrice, CallRetries, Endpoint
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from tests.calls.server import Model

CHATTING = "tests.calls.chatting:pipeline"
PRICES = {
    "small": CallPrice(input_usd_per_million=20.0, output_usd_per_million=80.0),
    "large": CallPrice(input_usd_per_million=50.0, output_usd_per_million=200.0),
}
MOST_INPUT, MOST_OUTPUT = 60, 8
RETRIES = CallRetries(attempts=3, first_wait_s=0.01, longest_wait_s=0.05)


def endpoints(timeout_s: float = 10.0) -> tuple[Endpoint, ...]:
    """Return what the pipeline calls."""
    return tuple(
        Endpoint(
            name=name,
            price=price,
            most_input_tokens=MOST_INPUT,
            most_output_tokens=MOST_OUTPUT,
            timeout_s=timeout_s,
        )
        for name, price in PRICES.items()
    )


def models(**how: float) -> dict[str, Model]:
    """Return them as a server has them, figures of all of them by their names."""
    skills = {"small": 0.8, "large": 1.0}
    return {
        name: Model(price=price, skill=skills[name], words=MOST_OUTPUT, **how)  # type: ignore[arg-type]  # by name
        for name, price in PRICES.items()
    }


def _ask(inputs: Payload, knobs: Settings) -> Payload:
    if inputs == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    model = str(knobs["model"])
    body = {"model": model, "messages": [{"role": "user", "content": _prompt(inputs, knobs)}]}
    url = f"{os.environ['CHAT_URL']}/chat/completions"
    answer = httpx.post(url, json=body, timeout=30, trust_env=False)
    answer.raise_for_status()
    told = answer.json()
    usage = told["usage"]
    report_usage(
        model,
        input_tokens=usage["prompt_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        output_tokens=usage["completion_tokens"],
    )
    return str(told["choices"][0]["message"]["content"])


def _prompt(inputs: Payload, knobs: Settings) -> str:
    return " ".join([*["Be short."] * int(knobs["hints"]), str(inputs)])


def _score(output: Payload, expected: Payload) -> float:
    return float(output == expected)


def _examples(count: int, seed: int) -> Dataset:
    return Dataset(
        name="prices",
        examples=tuple(
            Example(
                input=f"The price of tin{seed} is {i}. What is the price of tin{seed}?",
                expected=str(i),
            )
            for i in range(count)
        ),
    )


pipeline = Pipeline(
    name="chatting",
    operators=(
        Operator(
            spec=OperatorSpec(
                name="reader",
                knobs=(
                    Knob(name="model", values=tuple(PRICES)),
                    Knob(name="hints", values=(0, 1, 2, 3)),
                ),
                calls=tuple(PRICES),
            ),
            run=_ask,
            retries=RETRIES,
        ),
    ),
    score=_score,
    examples=_examples,
)
