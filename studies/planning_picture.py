"""The planning study as a picture: seconds of profiling of every strategy, drawn as SVG."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np

from studies.planning import Row

_LABEL, _BAR, _ROW, _TOP, _NOTE = 170, 420, 26, 34, 190


def pictures(rows: Iterable[Row]) -> dict[str, str]:
    """Give the SVG of every trace and level, by file name."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"planning-{row.trace}-{row.slo}.svg", []).append(row)
    return {name: picture(group) for name, group in groups.items()}


def picture(rows: Iterable[Row]) -> str:
    """Give a bar per strategy: the mean, a whisker of its standard error, a tick at the median.

    Args:
        rows: Of one trace and one level, at least one.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        earlier = f", {row.history} earlier" if row.history else ""
        groups.setdefault(row.method + earlier, []).append(row)
    seconds = {
        name: np.array([row.profiling_seconds for row in group]) for name, group in groups.items()
    }
    reach = max(float(values.mean()) + _error(values) for values in seconds.values())
    scale = _BAR / reach
    oracle = float(np.mean([row.oracle_seconds for group in groups.values() for row in group]))
    height = _TOP + _ROW * len(groups) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LABEL + _BAR + _NOTE} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LABEL}" y="16">seconds of profiling to the first true plan: mean, standard '
        "error, median (tick)</text>",
    ]
    for i, (name, values) in enumerate(seconds.items()):
        parts += _bar(name, values, _true(groups[name]), _TOP + _ROW * i, scale)
    x = _LABEL + oracle * scale
    parts.append(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - 8}" stroke="#c33" '
        'stroke-dasharray="4 3"/>'
        f'<text x="{x + 3:.1f}" y="{_TOP - 4}" fill="#c33" font-size="10">oracle</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _bar(name: str, values: np.ndarray, true: float, y: float, scale: float) -> list[str]:
    mean, error, middle = float(values.mean()), _error(values), y + _ROW / 2 - 2
    low, high = _LABEL + max(mean - error, 0.0) * scale, _LABEL + (mean + error) * scale
    median = _LABEL + float(np.median(values)) * scale
    return [
        f'<text x="{_LABEL - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{_LABEL}" y="{y + 3}" width="{mean * scale:.1f}" height="{_ROW - 10}" '
        'fill="#9bbbdc"/>',
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="#234"/>',
        f'<line x1="{median:.1f}" x2="{median:.1f}" y1="{y + 3}" y2="{y + _ROW - 7}" '
        'stroke="#234" stroke-width="2"/>',
        f'<text x="{high + 6:.1f}" y="{middle + 4}">{mean:.3f} s, {true:.0%} true, '
        f"{len(values)} runs</text>",
    ]


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _true(rows: list[Row]) -> float:
    return float(np.mean([bool(row.first_answer_true) for row in rows]))
