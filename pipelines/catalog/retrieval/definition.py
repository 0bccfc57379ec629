"""Pipeline `retrieval` put together: its chain, choices, metric and data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipelines.catalog.retrieval.answers import f1
from pipelines.catalog.retrieval.cases import draw_case
from pipelines.catalog.retrieval.names import names_of
from pipelines.catalog.retrieval.requests import checked_request
from pipelines.catalog.retrieval.wording import terms_of
from pipelines.dataset import Dataset, Example
from pipelines.needs import package
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline
from pipelines.profile import FloatArray

NAME = "retrieval"
SIZES = (1, 4)
"""Sentences of a passage."""
DEPTHS = (3, 12)
"""Passages that the retriever finds."""
NEEDS = (package("bm25s", extra=NAME), package("rapidfuzz", extra=NAME))


def pipeline() -> Pipeline:
    """The pipeline with all its choices: 288 configurations."""
    from pipelines.catalog.retrieval.chain import chain
    from pipelines.langchain import Reading, pipeline_from_runnable

    reading = Reading(
        name=NAME,
        metric="F1 of the answer's words",
        score=f1,
        features=_features,
        examples=_examples,
        choices={"size": SIZES, "titled": (False, True), "k": DEPTHS},
        version="1",
    )
    return replace(pipeline_from_runnable(chain(), reading), needs=NEEDS)


def _features(value: Payload) -> FloatArray:
    """How heavy and how hard a request looks.

    Returns:
        (5,): characters and number of the documents; the question's terms, the share of them that
        no document has (misspelt or put in other words), and the smallest number of times that
        one which some document has occurs.
    """
    request = checked_request(value, "documents")
    text = "\n".join(request.texts).lower()
    terms = terms_of(request.question)
    counts = [text.count(term) for term in terms]
    unknown = counts.count(0) / len(counts)
    rarest = min((count for count in counts if count), default=0)
    return np.array([len(text), len(request.texts), len(terms), unknown, rarest], np.float64)


def _examples(count: int, seed: int) -> Dataset:
    """Cases drawn from a seed; a longer data set starts with the shorter one of its seed."""
    rng = np.random.Generator(np.random.PCG64(seed))
    cases = [draw_case(rng, names_of(seed)) for _ in range(count)]
    return Dataset(
        name=f"{NAME} questions, seed {seed}",
        examples=[
            Example(
                input={"question": case.question, "documents": list(case.documents)},
                expected=case.answer,
            )
            for case in cases
        ],
    )
