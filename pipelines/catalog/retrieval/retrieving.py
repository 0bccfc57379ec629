"""Operator `retriever`: how well each passage fits the question, by words or by their letters.

One rule: an index is built for the request and thrown away, as the documents come with the
question; so its cost is part of the latency. Heavy packages are imported where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.catalog.retrieval.wording import WORD, terms_of, words_of

Ranking: TypeAlias = Callable[[str, Sequence[str]], npt.NDArray[np.float64]]
"""`score(question, passages)`, one number for each passage, higher is better."""

BUCKETS = 2**16
"""Hash buckets for letter sequences; few of a request's share one."""


def retrieved(question: str, passages: Sequence[str], score: Ranking, k: int) -> list[str]:
    """Give the `k` best passages, best first, the earlier of two equals first; all when fewer."""
    order = np.argsort(-score(question, passages), kind="stable")
    return [passages[i] for i in order[:k]]


def _contained(question: str, passages: Sequence[str]) -> npt.NDArray[np.float64]:
    """Number of the question's words in each passage, `of` and `in` and parts of others too."""
    terms = set(words_of(question))
    lowered = [passage.lower() for passage in passages]
    return np.array([sum(term in passage for term in terms) for passage in lowered], np.float64)


def _bm25(question: str, passages: Sequence[str]) -> npt.NDArray[np.float64]:
    """BM25 as Lucene has it (Robertson and Zaragoza 2009), over whole words."""
    import bm25s

    index = bm25s.BM25(backend="numpy")
    index.index([words_of(passage) for passage in passages], show_progress=False)
    return np.asarray(index.get_scores(terms_of(question)), np.float64)


def _tfidf(question: str, passages: Sequence[str]) -> npt.NDArray[np.float64]:
    """Cosine of tf-idf vectors of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True)
    rows = vectorizer.fit_transform(passages)
    asked = vectorizer.transform([" ".join(terms_of(question))])
    return np.asarray((rows @ asked.T).toarray()[:, 0], np.float64)


def _hashed(question: str, passages: Sequence[str]) -> npt.NDArray[np.float64]:
    """Cosine of tf-idf vectors of hashed letter sequences: a misspelt word is still near."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    vectorizer = HashingVectorizer(  # counts: rare sequences are told apart before lengths are
        analyzer="char_wb",
        ngram_range=(2, 4),
        n_features=BUCKETS,
        alternate_sign=False,
        norm=None,
    )
    weighting = TfidfTransformer(sublinear_tf=True)
    rows = weighting.fit_transform(vectorizer.transform(passages))
    asked = weighting.transform(vectorizer.transform([" ".join(terms_of(question))]))
    return np.asarray((rows @ asked.T).toarray()[:, 0], np.float64)


RETRIEVERS: Mapping[str, Ranking] = MappingProxyType(
    {"contained": _contained, "bm25": _bm25, "tfidf": _tfidf, "hashed": _hashed}
)
