"""Seconds and dollars as people read them, the same in every message and on every page."""

from __future__ import annotations

_LEAST_MS = 0.01  # below, figures in powers of ten


def seconds(value: float) -> str:
    """Return seconds with three figures, as ms below one second."""
    if abs(value) >= 1:
        return f"{figures(value)} s"
    ms = value * 1000
    return f"{ms:.3g} ms" if 0 < abs(ms) < _LEAST_MS else f"{figures(ms)} ms"


def dollars_per_hour(value: float) -> str:
    """Return dollars per hour."""
    return f"${value:.4f}/h"


def figures(value: float) -> str:
    """Return a number with three figures, at most two of them behind the point."""
    decimals = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{decimals}f}"
