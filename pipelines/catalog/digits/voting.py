"""Operator `voter`: one reading from the frames' opinions."""

from __future__ import annotations

from pipelines.catalog.digits.geometry import FloatArray


def voted(
    log_probabilities: FloatArray,  # (n_frames, n_digits, n_classes)
) -> str:
    """The most probable digits, were the frames independent: log-probabilities add up."""
    return "".join(str(digit) for digit in log_probabilities.sum(axis=0).argmax(axis=1))


def share_read(reading: str, shown: str) -> float:
    """Share of the shown digits that were read, in [0, 1]."""
    return sum(a == b for a, b in zip(reading, shown, strict=True)) / len(shown)
