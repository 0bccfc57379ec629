"""The built-in pipeline `retrieval`: answer a question from a pile of documents, on a CPU.

    chunker -> retriever -> reranker -> reader

It is written as a LangChain chain and read by `pipelines.langchain`, as a user's own chain would
be. Every document is invented, so that the answer is known exactly.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from circinus.pipelines.catalog.material import DrawnExamples
from circinus.pipelines.catalog.retrieval.cases import (
    checked_request,
    draw_case,
    names_of,
)
from circinus.pipelines.catalog.retrieval.wording import terms_of, words_of
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import package
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import FloatArray

NAME = "retrieval"
SIZES = (1, 4)  # sentences of a passage
DEPTHS = (3, 12)  # passages that the retriever finds
LONGEST_ANSWER = 1_000  # characters
_ARTICLES = frozenset({"a", "an", "the"})
NEEDS = (package("bm25s", extra=NAME), package("rapidfuzz", extra=NAME))


def pipeline() -> Pipeline:
    """Return the pipeline with all its choices: 288 configurations."""
    from circinus.pipelines.catalog.retrieval.chain import chain
    from circinus.pipelines.langchain import Reading, pipeline_from_runnable

    reading = Reading(
        name=NAME,
        metric="F1 of the answer's words",
        score=f1,
        features=_features,
        examples=DrawnExamples(
            f"{NAME} questions", lambda rng, seed: draw_case(rng, names_of(seed))
        ),
        choices={"size": SIZES, "titled": (False, True), "k": DEPTHS},
        version="1",
    )
    return replace(pipeline_from_runnable(chain(), reading), needs=NEEDS)


def _features(value: Payload) -> FloatArray:
    """Return how heavy and how hard a request looks.

    Shape (5,): characters and number of the documents; the question's terms, the share of them
    that no document has (misspelt or put in other words), and the smallest number of times that
    one which some document has occurs.
    """
    request = checked_request(value, "documents")
    text = "\n".join(request.texts).lower()
    terms = terms_of(request.question)
    counts = [text.count(term) for term in terms]
    unknown = counts.count(0) / len(counts)
    rarest = min((count for count in counts if count), default=0)
    return np.array([len(text), len(request.texts), len(terms), unknown, rarest], np.float64)


def f1(output: Payload, expected: Payload) -> float:
    """Return the F1 of words, in [0, 1], as for SQuAD (Rajpurkar et al. 2016, section 6.1).

    Case, punctuation and articles do not count. Without a common word it is 0. InvalidInput if
    either is no text or too long, or the expected answer has no word.
    """
    answered, right = _words("output", output), _words("expected", expected)
    if not right:
        raise InvalidInput.of("expected", "must have a word that is no article", expected)
    common = (answered & right).total()
    return 2 * common / (answered.total() + right.total())


def _words(field: str, value: Payload) -> Counter[str]:
    if not (isinstance(value, str) and len(value) <= LONGEST_ANSWER):
        rule = f"must be a text of at most {LONGEST_ANSWER} characters"
        raise InvalidInput.of(field, rule, value)
    return Counter(word for word in words_of(value) if word not in _ARTICLES)
