"""Sentences, words and their weights: what all operators see in a text.

One rule: the question's words are told apart here, once, so that methods differ by how they match
words and not by which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
WORD = r"[^\W_]+"
"""Letters and digits."""
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
    """Give the sentences of a text, those without a word left out."""
    return [part for part in _SENTENCE_END.split(text) if has_word(part)]


def has_word(text: str) -> bool:
    """Say whether there is a word in a text; cheaper than looking for all."""
    return _WORD.search(text) is not None


def words_of(text: str) -> list[str]:
    """Give the words of a text in lower case, numbers among them."""
    return _WORD.findall(text.lower())


def terms_of(question: str) -> list[str]:
    """Give the words of a question that say what it is about, each once; all when none does."""
    words = list(dict.fromkeys(words_of(question)))
    return [word for word in words if word not in _STOP_WORDS] or words


def names_in(question: str) -> frozenset[str]:
    """Give the capitalised words of a question but the first, in lower case."""
    return frozenset(word.lower() for word in _WORD.findall(question)[1:] if word[0].isupper())


def weights_of(terms: Sequence[str], texts: Sequence[Sequence[str]]) -> list[float]:
    """Give how much each term tells texts apart: the logarithm of how rarely texts have it.

    Inverse document frequency, smoothed so that a term in no text or in all has a finite weight
    `> 0` (Manning, Raghavan and Schuetze 2008, section 6.2.1).

    Args:
        terms: Any number.
        texts: Their words.
    """
    sets = [set(text) for text in texts]
    counts = [sum(term in words for words in sets) for term in terms]
    return [log(1 + (1 + len(sets)) / (1 + count)) for count in counts]
