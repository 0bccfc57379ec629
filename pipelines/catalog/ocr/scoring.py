"""The metric: the share of the text that was read right."""

from __future__ import annotations


def share_read(text: str, shown: str) -> float:
    """One less the character error rate, not below 0; runs of white space count as one space.

    Args:
        text: What was read.
        shown: What the page says, not empty.
    """
    from rapidfuzz.distance import Levenshtein

    expected = _one_spaced(shown)
    edits = Levenshtein.distance(expected, _one_spaced(text))
    return max(0.0, 1 - edits / len(expected))


def _one_spaced(text: str) -> str:
    return " ".join(text.split())
