"""Operator `reranker`: the retrieved passages put in a better order, and fewer of them.

Notation: w_t weight of term t; s(t, v) similarity of words, in [0, 1]. A passage P scores
sum over t of w_t * max over v in P of s(t, v).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from pipelines.catalog.retrieval.spans import kind_asked, spans_of
from pipelines.catalog.retrieval.thesaurus import RELATED
from pipelines.catalog.retrieval.wording import names_in, terms_of, words_of

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Matrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]

Reranking: TypeAlias = Callable[[str, Sequence[str]], list[str]]
"""`reranked(question, passages)`, best first."""

KEPT = 3
"""Passages that a reranker hands on: a reader that looks at fewer goes wrong less often."""
STEM = 4
"""Letters that words must share from the start to be taken as forms of one."""
NAME_WEIGHT = 2.0
"""Weight of a term that is a name; that of another is 1."""
MEANING = 0.8
"""Likeness of words of nearly the same meaning."""
LEAST_SIMILARITY = 0.7
"""Words that are less alike than this are other words."""


def _unchanged(question: str, passages: Sequence[str]) -> list[str]:
    return list(passages)


def _by_overlap(question: str, passages: Sequence[str]) -> list[str]:
    """With s 1 when the first letters agree, else 0."""
    terms = terms_of(question)
    weights = emphasis(terms, question)
    stems = [term[:STEM] for term in terms]
    texts = [{word[:STEM] for word in words_of(passage)} for passage in passages]
    return _best(passages, [float(weights @ [stem in text for stem in stems]) for text in texts])


def _by_alignment(question: str, passages: Sequence[str]) -> list[str]:
    """With s likeness of spelling or meaning; what has no span of the kind asked for is last."""
    terms, kind = terms_of(question), kind_asked(question)
    weights = emphasis(terms, question)
    scores = [
        float(weights @ likeness(terms, words_of(passage)).max(axis=1))
        + sum(weights) * bool(spans_of(passage, kind, question))
        for passage in passages
    ]
    return _best(passages, scores)


def emphasis(terms: Sequence[str], question: str) -> Floats:  # (n_terms,)
    """Give the weight of each term: names say whom a question is about, and count more."""
    names = names_in(question)
    return np.array([NAME_WEIGHT if term in names else 1.0 for term in terms])


def likeness(terms: Sequence[str], words: Sequence[str]) -> Matrix:  # (n_terms, n_words)
    """Give how alike terms and words are, in [0, 1].

    For spelling, 1 - insertions and deletions over both lengths, 0 below `LEAST_SIMILARITY`. Words
    that a thesaurus has together are alike to `MEANING`.

    Args:
        terms: At least one.
        words: At least one.
    """
    from rapidfuzz import fuzz, process

    cutoff = 100 * LEAST_SIMILARITY
    percent = process.cdist(terms, words, scorer=fuzz.ratio, score_cutoff=cutoff, workers=1)
    related = [[word in RELATED.get(term, ()) for word in words] for term in terms]
    return np.maximum(np.asarray(percent, np.float64) / 100, MEANING * np.array(related))


def _best(passages: Sequence[str], scores: Sequence[float]) -> list[str]:
    order = np.argsort(-np.array(scores), kind="stable")
    return [passages[i] for i in order[:KEPT]]


RERANKERS: Mapping[str, Reranking] = MappingProxyType(
    {"none": _unchanged, "overlap": _by_overlap, "alignment": _by_alignment}
)
