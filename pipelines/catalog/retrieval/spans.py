"""Spans of a text that may be an answer: years, quantities and names.

One rule: what a question asks for is told by its question word and a few others, as general
knowledge of the language has it, and never by the entity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from pipelines.catalog.retrieval.wording import words_of


class Kind(Enum):
    """What an answer is, with the pattern of its spans."""

    YEAR = r"\b1\d{3}\b(?! [a-z]+s\b)"
    QUANTITY = r"\b\d+ [a-z]+s\b"
    PERSON = r"\b[A-Z][a-z]+ [A-Z][a-z]+\b"
    COMPANY = r"\b[A-Z][a-z]+ (?:Works|Instruments|Brothers|Foundry)\b"
    TOWN = r"(?<=\b(?:in|at|to) )[A-Z][a-z]+\b(?! [A-Z])|(?<=\bwith )[A-Z][a-z]+\b(?! [A-Z])"


_ASKED = (
    (Kind.YEAR, re.compile(r"\b(year|when)\b", re.I)),
    (Kind.QUANTITY, re.compile(r"\bhow\b", re.I)),
    (Kind.PERSON, re.compile(r"\b(who|whom|whose)\b", re.I)),
    (Kind.COMPANY, re.compile(r"\b(company|firm)\b", re.I)),
    (Kind.TOWN, re.compile(r"\b(where|town)\b", re.I)),
)
_PATTERNS = {kind: re.compile(kind.value) for kind in Kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of a text.

    Attributes:
        text: As it stands there.
        first, end: Its words are `words_of(text)[first:end]`.
    """

    text: str
    first: int
    end: int


def kind_asked(question: str) -> Kind:
    """Give what a question asks for; a person when nothing in it says."""
    return next((kind for kind, asked in _ASKED if asked.search(question)), Kind.PERSON)


def spans_of(text: str, kind: Kind, question: str) -> list[Span]:
    """Give the spans of a kind, in order, without those that share a word with the question."""
    known = set(words_of(question))
    spans, before, first = [], 0, 0
    for found in _PATTERNS[kind].finditer(text):
        words = words_of(found.group())
        first += len(words_of(text[before : found.start()]))
        before = found.start()
        if not known & set(words):
            spans.append(Span(text=found.group(), first=first, end=first + len(words)))
    return spans
