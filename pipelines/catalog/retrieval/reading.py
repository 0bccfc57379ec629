"""Operator `reader`: the span of the passages that answers the question.

Notation: t a term of the question, w_t its weight, s(t, v) the similarity of spelling of t and a
word v; c a candidate span, d(c, v) the number of words from c to v.

One rule: an empty answer means that no passage has a span of the kind asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from circinus.pipelines.catalog.retrieval.retrieving import emphasis, likeness
from circinus.pipelines.catalog.retrieval.wording import (
    Span,
    kind_asked,
    names_in,
    sentences_of,
    spans_of,
    terms_of,
    weights_of,
    words_of,
)

Reading: TypeAlias = Callable[[str, Sequence[str]], str]  # `answer(question, passages)`

REACH = 8.0  # words over which evidence for a candidate fades to 1/e: about half a sentence
PER_RANK = 0.97  # a passage's evidence counts this many times that of the passage before it


def _first(question: str, passages: Sequence[str]) -> str:
    """The first candidate of the first passage that has one."""
    kind = kind_asked(question)
    found = (span.text for passage in passages for span in spans_of(passage, kind, question))
    return next(found, "")


def _window(question: str, passages: Sequence[str]) -> str:
    """The first candidate of the sentence with most of the question's weight, word for word."""
    kind = kind_asked(question)
    sentences = [sentence for passage in passages for sentence in sentences_of(passage)]
    terms, texts = terms_of(question), [words_of(sentence) for sentence in sentences]
    weights = np.array(weights_of(terms, texts))
    best, answer = -1.0, ""
    for sentence, text in zip(sentences, texts, strict=True):
        found = spans_of(sentence, kind, question)
        weight = float(weights @ [term in text for term in terms])
        if found and weight > best:
            best, answer = weight, found[0].text
    return answer


def _evidence(question: str, passages: Sequence[str]) -> str:
    """The candidate c with the largest sum over t of w_t max over v of s(t, v) f(t, c, v).

    f is 1 for names, which may stand far away, and exp(-d(c, v) / REACH) for other terms.
    """
    scored = list(_scored(question, passages))
    return max(scored, key=lambda pair: pair[0], default=(0.0, ""))[1]


def _scored(question: str, passages: Sequence[str]) -> Iterator[tuple[float, str]]:
    kind, terms, names = kind_asked(question), terms_of(question), names_in(question)
    weights = emphasis(terms, question)
    fades = np.array([[float(term not in names)] for term in terms])
    for rank, passage in enumerate(passages):
        text = words_of(passage)
        alike = likeness(terms, text)  # (n_terms, n_words)
        for span in spans_of(passage, kind, question):
            near = np.exp(-fades * _distances(span, len(text)) / REACH)
            yield PER_RANK**rank * float(weights @ (alike * near).max(axis=1)), span.text


def _distances(span: Span, n_words: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Words between a span and each word of its text; 0 inside it."""
    places = np.arange(n_words, dtype=np.float64)
    return np.maximum(0, np.maximum(span.first - places, places - (span.end - 1)))


READERS: Mapping[str, Reading] = {"first": _first, "window": _window, "evidence": _evidence}
