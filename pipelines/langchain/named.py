"""Chains by name: a module with a chain, and beside it what a chain does not state itself.

    chain      a Runnable, or a function without arguments that gives one
    metric     function (output, expected) -> score in [0, 1]; of all outputs together
               "sklearn.metrics.f1_score", or {"function": ..., "arguments": {...}}
    examples   if wanted: pairs (input, expected), dicts {input, expected}, or a function
               (count, seed) that gives some
    choices    if wanted: {id: values} of configurable fields without options

Nothing in it is ours, so that the module is the one that serves without Circinus.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from types import ModuleType
from typing import Any

from langchain_core.runnables import Runnable

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.code_digest import code_digest
from circinus.pipelines.execution.metrics import SetMetric, set_metric
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.langchain.reading import Reading, pipeline_from_runnable

_CHAIN = "chain"


def is_chain(value: object) -> bool:
    """Return whether something is what LangChain runs: a Runnable, or a dict that has some."""
    values = value.values() if isinstance(value, dict) else ()
    return isinstance(value, Runnable) or any(isinstance(each, Runnable) for each in values)


def named_chain(reference: str, chain: object) -> Pipeline:
    """Return the pipeline of the chain at `module:attribute`.

    It is called as the module is, or `module.attribute` unless that is `chain`. InvalidInput if
    what stands beside the chain is missing or not as it should be, or the chain cannot be read.
    """
    name, _, attribute = reference.partition(":")
    module = sys.modules[name]
    metric = getattr(module, "metric", None)
    if isinstance(metric, str | Mapping):
        metric = set_metric(metric, "metric")
    elif not callable(metric) and not isinstance(metric, SetMetric):
        rule = f"must be a function (output, expected) in module {name}, beside the chain"
        raise InvalidInput.of("metric", rule, metric)
    choices = getattr(module, "choices", {})
    if not isinstance(choices, Mapping):
        raise InvalidInput.of("choices", f"must be {{id: values}} in module {name}", choices)
    reading = Reading(
        name=_name(name, attribute),
        score=metric,
        choices=choices,
        version=code_digest(chain, metric),
    )
    examples_of = getattr(module, "examples", None)
    if examples_of is None:
        return pipeline_from_runnable(chain, reading)  # type: ignore[arg-type]  # it is coerced
    if callable(examples_of):
        made = partial(_of_function, module, examples_of)
        return pipeline_from_runnable(chain, replace(reading, examples=made))  # type: ignore[arg-type]  # it is coerced
    examples = _examples(module, examples_of)
    reading = replace(reading, examples=partial(_some, name, examples))
    pipeline = pipeline_from_runnable(chain, reading)  # type: ignore[arg-type]  # it is coerced
    return replace(pipeline, example_count=len(examples))


def _name(module: str, attribute: str) -> str:
    name = module.rpartition(".")[2]
    name = name if attribute == _CHAIN else f"{name}.{attribute}"
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", name).lstrip("-_.")
    return (name if name[:1].isalpha() else f"{_CHAIN}-{name}")[:63]


def _of_function(
    module: ModuleType, made: Callable[[int, int], Any], count: int, seed: int
) -> Dataset:
    made_of = made(count, seed)
    if isinstance(made_of, Dataset):
        return made_of
    return Dataset(name=module.__name__, examples=_examples(module, made_of))


def _some(name: str, examples: list[Example], count: int, seed: int) -> Dataset:
    """Return so many of a fixed set: the first ones, or with another seed than 0 others."""
    if count > len(examples):
        rule = f"must be at most {len(examples)}: module {name} has no more"
        raise InvalidInput.of("data.examples", rule, count)
    order = sorted(range(len(examples)), key=lambda i: _drawn(seed, i) if seed else b"")
    return Dataset(name=name, examples=[examples[i] for i in order[:count]])


def _drawn(seed: int, number: int) -> bytes:
    return blake2b(f"{seed} {number}".encode(), digest_size=8).digest()


def _examples(module: ModuleType, values: object) -> list[Example]:
    where = f"examples of module {module.__name__}"
    rule = "must be pairs (input, expected), or dicts with input and expected"
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise InvalidInput.of(where, rule, type(values).__name__)
    examples = []
    for number, each in enumerate(values, start=1):
        if isinstance(each, Mapping) and {"input", "expected"} <= set(each):
            examples.append(Example(input=each["input"], expected=each["expected"]))
        elif isinstance(each, tuple | list) and len(each) == 2:
            examples.append(Example(input=each[0], expected=each[1]))
        else:
            raise InvalidInput.of(f"{where}, number {number}", rule, each)
    if not examples:
        raise InvalidInput.of(where, "must have at least one", 0)
    return examples
