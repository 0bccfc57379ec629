"""Operator `chunker`: documents cut into passages of some sentences."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.catalog.retrieval.wording import sentences_of

LONGEST_TITLE = 100
"""Characters of it that a passage repeats."""


def chunked(documents: Sequence[str], size: int, *, titled: bool) -> list[str]:
    """Give the passages of `size` sentences, the last of a document shorter.

    Half of a passage is in the next one too (none when it has one sentence), so that what two
    sentences say together is in one passage.

    Args:
        documents: Each a title, a line break and the rest.
        size: At least 1.
        titled: Whether a passage starts with the title of its document: more to read, but who
            `she` is stands in it.
    """
    step = max(1, (size + 1) // 2)
    passages = []
    for document in documents:
        title, _, rest = document.partition("\n")
        sentences = sentences_of(rest) or [title]
        starts = range(0, max(1, len(sentences) - size + step), step)
        header = f"{title[:LONGEST_TITLE]}: " if titled and rest else ""
        passages += [header + " ".join(sentences[at : at + size]) for at in starts]
    return passages
