"""Operator `corrector`: a transcript that is nearly a command is taken for it."""

from __future__ import annotations

from pipelines.catalog.speech.sentences import commands
from pipelines.errors import InvalidInput

CLOSE = 80
"""Least likeness, of 100: the share of characters that need no edit (rapidfuzz's `ratio`)."""


def corrected(transcript: str, *, kind: str) -> str:
    """The transcript, or the nearest command where one is near."""
    match kind:
        case "none":
            return transcript
        case "snap":
            return _snapped(transcript)
        case _:
            raise InvalidInput.of("kind", "must be none or snap", kind)


def _snapped(transcript: str) -> str:
    from rapidfuzz import fuzz, process

    found = process.extractOne(transcript, commands(), scorer=fuzz.ratio, score_cutoff=CLOSE)
    return found[0] if found else transcript
