"""Forty small pipelines in the shapes that people bring, each with an accuracy that is known.

Operators wait, compute, or do both, in line and in parallel. Whether an answer is right depends on
its input alone, or on chance where a model samples: the expected accuracy of every setting is in
`QUALITY`.
"""

# ruff: noqa: ANN401 - as people write them

from __future__ import annotations

import asyncio
import hashlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableLambda,
    RunnablePassthrough,
    RunnableSerializable,
)
from pydantic import BaseModel

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec

QUALITY = {"small": 0.75, "medium": 0.85, "large": 0.95}
EFFORT = {"small": 1.0, "medium": 2.0, "large": 3.0}
_ROUNDS_PER_MS = 1500
_MODELS = tuple(QUALITY)

Work = Callable[[float], None]  # of so many milliseconds


def waits(ms: float) -> None:
    time.sleep(ms / 1e3)


def computes(ms: float) -> None:
    digest = b"x"
    for _ in range(int(ms * _ROUNDS_PER_MS)):
        digest = hashlib.sha256(digest).digest()


def does_both(ms: float) -> None:
    waits(ms / 2)
    computes(ms / 2)


def starts_a_program(ms: float) -> None:
    """Compute in a child process, as a pipeline around a command-line tool does."""
    rounds = int(ms * _ROUNDS_PER_MS)
    code = f"import hashlib\nd = b''\nfor _ in range({rounds}): d = hashlib.sha256(d).digest()"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def share_of(*parts: object) -> float:
    """Return a number in [0, 1) that the parts alone decide."""
    digest = hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()
    return int(digest[:12], 16) / 16**12


def answer(text: str, model: str) -> str:
    return text.upper() if share_of(model, text) < QUALITY[model] else "unknown"


def sampled(text: str, model: str) -> str:
    return text.upper() if random.SystemRandom().random() < QUALITY[model] else "unknown"


def examples(count: int, seed: int) -> Dataset:
    drawn = random.Random(seed)
    texts = [f"item {drawn.randrange(10**9)} {'x' * drawn.randrange(20)}" for _ in range(count)]
    return Dataset(name="items", examples=[Example(input=t, expected=t.upper()) for t in texts])


def right(output: object, expected: object) -> float:
    return float(output == expected)


def _operator(
    name: str, run: Callable[[Any, Mapping[str, Any]], Any], *after: str, model: bool = False
) -> Operator:
    knobs = (Knob(name="model", values=_MODELS, ordered=True),) if model else ()
    return Operator(spec=OperatorSpec(name=name, after=after, knobs=knobs), run=run)


def _line(name: str, *works: Work) -> Pipeline:
    """Make a line of operators that do these works; the last one answers."""
    *before, last = works
    operators: list[Operator] = []
    for number, work in enumerate(before):
        after = (f"step{number - 1}",) if number else ()

        def step(text: Any, _: Mapping[str, Any], work: Work = work) -> Any:
            work(6)
            return text

        operators.append(_operator(f"step{number}", step, *after))

    def respond(text: Any, knobs: Mapping[str, Any]) -> str:
        last(6 * EFFORT[knobs["model"]])
        return answer(text, knobs["model"])

    operators.append(_operator("respond", respond, operators[-1].spec.name, model=True))
    return Pipeline(name=name, operators=tuple(operators), score=right, examples=examples)


def _parallel(name: str, left: Work, right_: Work) -> Pipeline:
    """Make two branches over one input, and an operator that joins them and answers."""

    def branch(work: Work) -> Callable[[Any, Mapping[str, Any]], Any]:
        def run(text: Any, _: Mapping[str, Any]) -> Any:
            work(12)
            return text

        return run

    def respond(texts: Any, knobs: Mapping[str, Any]) -> str:
        computes(2 * EFFORT[knobs["model"]])
        return answer(texts["left"], knobs["model"])

    operators = (
        _operator("split", lambda text, _: text),
        _operator("left", branch(left), "split"),
        _operator("right", branch(right_), "split"),
        _operator("respond", respond, "left", "right", model=True),
    )
    return Pipeline(name=name, operators=operators, score=right, examples=examples)


def _sampling(name: str, work: Work) -> Pipeline:
    def respond(text: Any, knobs: Mapping[str, Any]) -> str:
        work(4 * EFFORT[knobs["model"]])
        return sampled(text, knobs["model"])

    operators = (
        _operator("prepare", lambda text, _: text),
        _operator("respond", respond, "prepare", model=True),
    )
    return Pipeline(name=name, operators=operators, score=right, examples=examples)


def _asynchronous() -> Pipeline:
    async def respond(text: Any, knobs: Mapping[str, Any]) -> str:
        await asyncio.sleep(0.006 * EFFORT[knobs["model"]])
        return answer(text, knobs["model"])

    operators = (
        _operator("prepare", lambda text, _: text),
        _operator("respond", respond, "prepare", model=True),
    )
    return Pipeline(name="asynchronous", operators=operators, score=right, examples=examples)


class Model(RunnableSerializable[Any, str]):
    """A step with a field that is left open, as a chat model's name is."""

    model: str = "small"
    seconds: float = 0.006
    does: str = "waits"

    def invoke(self, input: Any, config: Any = None, **_: Any) -> str:
        text = input["question"] if isinstance(input, dict) else str(input)
        work = waits if self.does == "waits" else computes
        work(self.seconds * 1e3 * EFFORT[self.model])
        return answer(text, self.model)


class Reply(BaseModel):
    """What a structured chain answers."""

    text: str
    length: int


def _model(does: str) -> Runnable[Any, str]:
    return Model(does=does).configurable_fields(model=ConfigurableField(id="model", name="model"))


def _retrieve(text: str) -> list[str]:
    computes(4)
    return [text[::-1], text]


def _read(
    name: str, chain: Runnable[Any, Any], score: Callable[[Any, Any], float] = right
) -> Pipeline:
    from circinus import Reading, pipeline_from_runnable

    reading = Reading(name=name, score=score, examples=examples, choices={"model": _MODELS})
    return pipeline_from_runnable(chain, reading)


def _with_passthrough(name: str, does: str) -> Pipeline:
    context = RunnableLambda(_retrieve)
    return _read(name, {"context": context, "question": RunnablePassthrough()} | _model(does))


def _structured(name: str, does: str) -> Pipeline:
    def shaped(text: str) -> Reply:
        return Reply(text=text, length=len(text))

    return _read(
        name,
        _model(does) | RunnableLambda(shaped),
        lambda out, expected: right(out.text, expected),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pipeline and what is asked of it."""

    pipeline: Callable[[], Pipeline]
    latency_s: float
    accuracy: float = 0.7
    holds_for: str = "examples"
    samples: bool = False  # whether answers are drawn: then accuracy is of expectation


_WORKS: Mapping[str, Work] = {"wait": waits, "compute": computes, "both": does_both}
_SLACK = {"tight": 1.4, "loose": 4.0, "slow": 10.0}  # of some 24 ms on a whole machine


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for pace, slack in _SLACK.items():
        latency_s = 0.026 * slack
        for kind, work in _WORKS.items():
            cases[f"line_{kind}_{pace}"] = Case(
                pipeline=partial(_line, f"line-{kind}", work, work, work), latency_s=latency_s
            )
            cases[f"parallel_{kind}_{pace}"] = Case(
                pipeline=partial(_parallel, f"parallel-{kind}", work, work),
                latency_s=latency_s * 1.2,
            )
        cases[f"line_mixed_{pace}"] = Case(
            pipeline=lambda: _line("line-mixed", waits, computes, does_both), latency_s=latency_s
        )
        cases[f"parallel_mixed_{pace}"] = Case(
            pipeline=lambda: _parallel("parallel-mixed", waits, computes),
            latency_s=latency_s * 1.2,
        )
        cases[f"passthrough_{pace}"] = Case(
            pipeline=lambda: _with_passthrough("passthrough", "computes"), latency_s=latency_s
        )
    for kind, work in (("wait", waits), ("compute", computes)):
        for accuracy in (0.8, 0.9, 0.97):
            cases[f"sampling_{kind}_{accuracy * 100:.0f}"] = Case(
                pipeline=partial(_sampling, f"sampling-{kind}", work),
                latency_s=0.1,
                accuracy=accuracy,
                holds_for="future",
                samples=True,
            )
    for pace in ("tight", "loose"):
        cases[f"program_{pace}"] = Case(
            pipeline=lambda: _line("program", waits, starts_a_program),
            latency_s=0.1 * _SLACK[pace],
        )
        cases[f"structured_{pace}"] = Case(
            pipeline=lambda: _structured("structured", "waits"), latency_s=0.012 * _SLACK[pace]
        )
    cases["passthrough_wait"] = Case(
        pipeline=lambda: _with_passthrough("passthrough-wait", "waits"), latency_s=0.06
    )
    cases["asynchronous"] = Case(pipeline=_asynchronous, latency_s=0.05)
    cases["future"] = Case(
        pipeline=lambda: _line("future", waits, computes),
        latency_s=0.1,
        accuracy=0.8,
        holds_for="future",
    )
    return cases


CASES = _cases()


def __getattr__(name: str) -> Pipeline:
    """Return the pipeline of a case, so that `module:case` names it."""
    if name in CASES:
        return CASES[name].pipeline()
    raise AttributeError(name)
