"""Chains that commands load by name."""

import sys

from langchain_core.runnables import RunnableLambda

from circinus import Reading, pipeline_from_runnable
from circinus.pipelines.execution.pipeline import Pipeline
from tests.pipelines.langchain.corpus import Step, called, library, rag, scale, texts


def _read(chain: Step) -> Pipeline:
    """The metric is given what the chain gives: a text."""
    return pipeline_from_runnable(chain, Reading(name="own", score=lambda o, e: float(bool(o))))


def retrieval() -> Pipeline:
    return _read(rag(called(library())))


def idle() -> Pipeline:
    return _read(RunnableLambda(lambda text: text[:0]) | scale())


def hiding() -> Pipeline:
    hides = RunnableLambda(lambda text: library().invoke(text), name="hides")
    return _read(library() | texts | hides | texts)


def leaving() -> Pipeline:
    return _read(RunnableLambda(lambda text: sys.exit(3), name="leaves") | scale())
