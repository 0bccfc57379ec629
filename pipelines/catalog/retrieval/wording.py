"""Sentences, words, their weights and meanings; spans that may be an answer.

The question's words are classified here, once, so that methods differ by how they match words and
not by which. What a question asks for is read off its question word and a few others, as general
knowledge of the language has it, and never by the entity. The thesaurus holds words, not wordings:
what takes a phrase to say (`came into the world`) is not in it, so some questions stay hard.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import log
from pathlib import Path

import yaml

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
WORD = r"[^\W_]+"  # letters and digits
_WORD = re.compile(WORD)
_STOP_WORDS = frozenset(
    re.findall(
        WORD,
        """a an and as at by did do does for from had has have he her his how in into is it its
        large many much of on or out she that the their they this to was were what when where
        which who whom whose with year""",
    )
)


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, those without a word left out."""
    return [part for part in _SENTENCE_END.split(text) if has_word(part)]


def has_word(text: str) -> bool:
    """Return whether there is a word in a text; cheaper than looking for all."""
    return _WORD.search(text) is not None


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, numbers among them."""
    return _WORD.findall(text.lower())


def terms_of(question: str) -> list[str]:
    """Return the words of a question that carry its subject, each once; all when none does."""
    words = list(dict.fromkeys(words_of(question)))
    return [word for word in words if word not in _STOP_WORDS] or words


def names_in(question: str) -> frozenset[str]:
    """Return the capitalised words of a question but the first, in lower case."""
    return frozenset(word.lower() for word in _WORD.findall(question)[1:] if word[0].isupper())


def weights_of(terms: Sequence[str], texts: Sequence[Sequence[str]]) -> list[float]:
    """Return how much each term distinguishes texts: the logarithm of how rarely texts have it.

    Inverse document frequency, smoothed so that a term in no text or in all has a finite weight
    `> 0` (Manning, Raghavan and Schuetze 2008, section 6.2.1). Texts are their words.
    """
    sets = [set(text) for text in texts]
    counts = [sum(term in words for words in sets) for term in terms]
    return [log(1 + (1 + len(sets)) / (1 + count)) for count in counts]


class SpanKind(Enum):
    """What an answer is, with the pattern of its spans."""

    YEAR = r"\b1\d{3}\b(?! [a-z]+s\b)"
    QUANTITY = r"\b\d+ [a-z]+s\b"
    PERSON = r"\b[A-Z][a-z]+ [A-Z][a-z]+\b"
    COMPANY = r"\b[A-Z][a-z]+ (?:Works|Instruments|Brothers|Foundry)\b"
    TOWN = r"(?<=\b(?:in|at|to) )[A-Z][a-z]+\b(?! [A-Z])|(?<=\bwith )[A-Z][a-z]+\b(?! [A-Z])"


_KINDS_BY_WORD = (
    (SpanKind.YEAR, re.compile(r"\b(year|when)\b", re.I)),
    (SpanKind.QUANTITY, re.compile(r"\bhow\b", re.I)),
    (SpanKind.PERSON, re.compile(r"\b(who|whom|whose)\b", re.I)),
    (SpanKind.COMPANY, re.compile(r"\b(company|firm)\b", re.I)),
    (SpanKind.TOWN, re.compile(r"\b(where|town)\b", re.I)),
)
_PATTERNS = {kind: re.compile(kind.value) for kind in SpanKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of a text."""

    text: str  # as it stands there
    first: int  # its words are `words_of(text)[first:end]`
    end: int


def expected_kind(question: str) -> SpanKind:
    """Return what a question asks for; a person when nothing in it decides."""
    return next(
        (kind for kind, pattern in _KINDS_BY_WORD if pattern.search(question)), SpanKind.PERSON
    )


def spans_of(text: str, kind: SpanKind, question: str) -> list[Span]:
    """Return the spans of a kind, in order, without those that share a word with the question."""
    known = set(words_of(question))
    spans, before, first = [], 0, 0
    for match in _PATTERNS[kind].finditer(text):
        words = words_of(match.group())
        first += len(words_of(text[before : match.start()]))
        before = match.start()
        if not known & set(words):
            spans.append(Span(text=match.group(), first=first, end=first + len(words)))
    return spans


_GROUPS = yaml.safe_load(Path(__file__).with_name("thesaurus.yaml").read_text(encoding="utf-8"))
RELATED: Mapping[str, frozenset[str]] = {
    word: frozenset(group.split()) for group in _GROUPS for word in group.split()
}
"""Word -> words near in meaning, itself among them."""
