"""Operators `retriever`, `reranker` and `reader`: fewer passages, best first, then a span of one.

An index is built for the request and thrown away, as documents come with the question: its cost is
part of the latency. Heavy packages are imported where they are used. An empty answer means that no
passage has a span of the kind asked for.

Notation: t a term of the question, w_t its weight; s(t, v) the similarity of words, in [0, 1]. A
passage P scores sum over t of w_t * max over v in P of s(t, v). c a candidate span, d(c, v) the
number of words from c to v.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from circinus.pipelines.catalog.retrieval.wording import (
    RELATED,
    WORD,
    Span,
    expected_kind,
    names_in,
    sentences_of,
    spans_of,
    terms_of,
    weights_of,
    words_of,
)

Ranking: TypeAlias = Callable[[str, Sequence[str]], npt.NDArray[np.float64]]
"""`score(question, passages)`, one number for each passage, higher is better."""

BUCKETS = 2**16  # hash buckets for letter sequences; few of a request's share one


def retrieved(question: str, passages: Sequence[str], score: Ranking, k: int) -> list[str]:
    """Return the `k` best passages, best first, the earlier of two equals first; all if fewer."""
    return _best(passages, score(question, passages), k)


def _best(passages: Sequence[str], scores: npt.ArrayLike, k: int) -> list[str]:
    order = np.argsort(-np.asarray(scores), kind="stable")
    return [passages[i] for i in order[:k]]


def _contained(question: str, passages: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return how many of the question's words each passage has, parts of others included."""
    terms = set(words_of(question))
    lowered = [passage.lower() for passage in passages]
    return np.array([sum(term in passage for term in terms) for passage in lowered], np.float64)


def _bm25(question: str, passages: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return BM25 as Lucene has it (Robertson and Zaragoza 2009), over whole words."""
    import bm25s

    index = bm25s.BM25(backend="numpy")
    index.index([words_of(passage) for passage in passages], show_progress=False)
    return np.asarray(index.get_scores(terms_of(question)), np.float64)


def _tfidf(question: str, passages: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the cosine of tf-idf vectors of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True)
    rows = vectorizer.fit_transform(passages)
    query = vectorizer.transform([" ".join(terms_of(question))])
    return np.asarray((rows @ query.T).toarray()[:, 0], np.float64)


def _hashed(question: str, passages: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the cosine of tf-idf vectors of hashed letters: misspelt words stay near."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    vectorizer = HashingVectorizer(  # counts: rare sequences are weighed before lengths are
        analyzer="char_wb", ngram_range=(2, 4), n_features=BUCKETS, alternate_sign=False, norm=None
    )
    weighting = TfidfTransformer(sublinear_tf=True)
    rows = weighting.fit_transform(vectorizer.transform(passages))
    query = weighting.transform(vectorizer.transform([" ".join(terms_of(question))]))
    return np.asarray((rows @ query.T).toarray()[:, 0], np.float64)


RETRIEVERS: Mapping[str, Ranking] = {
    "contained": _contained,
    "bm25": _bm25,
    "tfidf": _tfidf,
    "hashed": _hashed,
}


Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Matrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]

Reranking: TypeAlias = Callable[[str, Sequence[str]], list[str]]
"""`reranked(question, passages)`, best first."""

RERANKED = 3  # passages that a reranker returns: a reader that looks at fewer errs less often
STEM = 4  # letters that words must share from the start to be taken as forms of one
NAME_WEIGHT = 2.0  # weight of a term that is a name; that of another is 1
MEANING = 0.8  # likeness of words of nearly the same meaning
LEAST_SIMILARITY = 0.7  # words that are less alike than this are other words


def _by_overlap(question: str, passages: Sequence[str]) -> list[str]:
    """With s 1 when the first letters agree, else 0."""
    terms = terms_of(question)
    weights = emphasis(terms, question)
    stems = [term[:STEM] for term in terms]
    texts = [{word[:STEM] for word in words_of(passage)} for passage in passages]
    scores = [float(weights @ [stem in text for stem in stems]) for text in texts]
    return _best(passages, scores, RERANKED)


def _by_alignment(question: str, passages: Sequence[str]) -> list[str]:
    """With s likeness of spelling or meaning; what has no span of the kind asked for is last."""
    terms, kind = terms_of(question), expected_kind(question)
    weights = emphasis(terms, question)
    scores = [
        float(weights @ likeness(terms, words_of(passage)).max(axis=1))
        + sum(weights) * bool(spans_of(passage, kind, question))
        for passage in passages
    ]
    return _best(passages, scores, RERANKED)


def emphasis(terms: Sequence[str], question: str) -> Floats:  # (n_terms,)
    """Return the weight of each term: names identify the subject of a question, and count more."""
    names = names_in(question)
    return np.array([NAME_WEIGHT if term in names else 1.0 for term in terms])


def likeness(terms: Sequence[str], words: Sequence[str]) -> Matrix:  # (n_terms, n_words)
    """Return how alike terms and words are, in [0, 1].

    For spelling, 1 - insertions and deletions over both lengths, 0 below `LEAST_SIMILARITY`. Words
    that a thesaurus has together are alike to `MEANING`. There is at least one term and one word.
    """
    from rapidfuzz import fuzz, process

    cutoff = 100 * LEAST_SIMILARITY
    percent = process.cdist(terms, words, scorer=fuzz.ratio, score_cutoff=cutoff, workers=1)
    related = [[word in RELATED.get(term, ()) for word in words] for term in terms]
    return np.maximum(np.asarray(percent, np.float64) / 100, MEANING * np.array(related))


RERANKERS: Mapping[str, Reranking] = {
    "none": lambda question, passages: list(passages),
    "overlap": _by_overlap,
    "alignment": _by_alignment,
}


Reading: TypeAlias = Callable[[str, Sequence[str]], str]  # `answer(question, passages)`

REACH = 8.0  # words over which evidence for a candidate fades to 1/e: about half a sentence
PER_RANK = 0.97  # a passage's evidence counts this many times that of the passage before it


def _first(question: str, passages: Sequence[str]) -> str:
    """Return the first candidate of the first passage that has one."""
    kind = expected_kind(question)
    candidates = (span.text for passage in passages for span in spans_of(passage, kind, question))
    return next(candidates, "")


def _window(question: str, passages: Sequence[str]) -> str:
    """Return the first candidate of the sentence that has most of the question's weight."""
    kind = expected_kind(question)
    sentences = [sentence for passage in passages for sentence in sentences_of(passage)]
    terms, texts = terms_of(question), [words_of(sentence) for sentence in sentences]
    weights = np.array(weights_of(terms, texts))
    best, answer = -1.0, ""
    for sentence, text in zip(sentences, texts, strict=True):
        spans = spans_of(sentence, kind, question)
        weight = float(weights @ [term in text for term in terms])
        if spans and weight > best:
            best, answer = weight, spans[0].text
    return answer


def _evidence(question: str, passages: Sequence[str]) -> str:
    """Return the candidate c with the largest sum over t of w_t max over v of s(t, v) f(t, c, v).

    f is 1 for names, which may stand far away, and exp(-d(c, v) / REACH) for other terms.
    """
    scored = list(_scored(question, passages))
    return max(scored, key=lambda pair: pair[0], default=(0.0, ""))[1]


def _scored(question: str, passages: Sequence[str]) -> Iterator[tuple[float, str]]:
    kind, terms, names = expected_kind(question), terms_of(question), names_in(question)
    weights = emphasis(terms, question)
    fades = np.array([[float(term not in names)] for term in terms])
    for rank, passage in enumerate(passages):
        text = words_of(passage)
        alike = likeness(terms, text)  # (n_terms, n_words)
        for span in spans_of(passage, kind, question):
            near = np.exp(-fades * _distances(span, len(text)) / REACH)
            yield PER_RANK**rank * float(weights @ (alike * near).max(axis=1)), span.text


def _distances(span: Span, n_words: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return words between a span and each word of its text; 0 inside it."""
    places = np.arange(n_words, dtype=np.float64)
    return np.maximum(0, np.maximum(span.first - places, places - (span.end - 1)))


READERS: Mapping[str, Reading] = {"first": _first, "window": _window, "evidence": _evidence}
