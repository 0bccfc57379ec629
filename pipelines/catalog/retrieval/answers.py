"""Metric: how much of the right answer an answer has, in words."""

from __future__ import annotations

from collections import Counter

from pipelines.catalog.retrieval.wording import words_of
from pipelines.errors import InvalidInput
from pipelines.payload import Payload

LONGEST_ANSWER = 1_000
"""Characters."""
_ARTICLES = frozenset({"a", "an", "the"})


def f1(output: Payload, expected: Payload) -> float:
    """Give the F1 of words, in [0, 1], as for SQuAD (Rajpurkar et al. 2016, section 6.1).

    Case, punctuation and articles do not count. Without a common word it is 0.

    Raises:
        InvalidInput: If either is no text or too long, or the expected answer has no word.
    """
    given, right = _words("output", output), _words("expected", expected)
    if not right:
        raise InvalidInput.of("expected", "must have a word that is no article", expected)
    common = (given & right).total()
    return 2 * common / (given.total() + right.total())


def _words(field: str, value: Payload) -> Counter[str]:
    if not (isinstance(value, str) and len(value) <= LONGEST_ANSWER):
        rule = f"must be a text of at most {LONGEST_ANSWER} characters"
        raise InvalidInput.of(field, rule, value)
    return Counter(word for word in words_of(value) if word not in _ARTICLES)
