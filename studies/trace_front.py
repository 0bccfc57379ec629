"""The trade-off that a trace holds: accuracy against latency of every configuration.

One rule: means over all inputs, operators one after the other on the reference machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10

import numpy as np

from pipelines.configuration import Configuration, ConfigurationSpace
from pipelines.graph import PipelineGraph
from pipelines.profile import FloatArray
from pipelines.trace import Trace
from planner.pareto import undominated

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 380, 60, 34, 34, 46
_COLOUR, _FRONT = "#9bbbdc", "#c0392b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tradeoff:
    """What every configuration scores and takes, and which ones nobody dominates.

    Attributes:
        graph: Of the pipeline.
        accuracy: Mean score, shape (C,).
        latency_s: Mean seconds of the whole pipeline, shape (C,).
        front: Rows that no other beats, fastest first.
        configurations: Of the front, in its order.
    """

    graph: PipelineGraph
    accuracy: FloatArray
    latency_s: FloatArray
    front: Sequence[int]
    configurations: Sequence[Configuration]

    @property
    def accuracy_span(self) -> float:
        """Largest mean score less the smallest."""
        return float(np.ptp(self.accuracy))

    @property
    def latency_ratio(self) -> float:
        """Largest mean latency over the smallest."""
        return float(self.latency_s.max() / self.latency_s.min())


def tradeoff(trace: Trace) -> Tradeoff:
    """Give the trade-off of a trace; inputs without a score are left out."""
    accuracy = np.nanmean(trace.score.astype(np.float64), axis=1)
    latency_s = np.nanmean(_longest_path_s(trace), axis=1)
    front = undominated(np.column_stack([latency_s, -accuracy]))
    front = front[np.argsort(latency_s[front], kind="stable")]
    space = ConfigurationSpace(trace.graph)
    numbers = space.numbers(trace.configurations[front].astype(np.int64))
    return Tradeoff(
        graph=trace.graph,
        accuracy=accuracy,
        latency_s=latency_s,
        front=front.tolist(),
        configurations=[space.configuration(int(number)) for number in numbers],
    )


def table(found: Tradeoff) -> str:
    """Give the front as a Markdown table, fastest first; knobs without a choice are left out."""
    slots = [slot for slot in found.graph.slots if len(slot.knob.values) > 1]
    lines = [
        f"| latency, ms | {found.graph.metric} | {' | '.join(slot.key for slot in slots)} |",
        "| --- |" + " --- |" * (len(slots) + 1),
    ]
    for row, configuration in zip(found.front, found.configurations, strict=True):
        chosen = [configuration.of(slot.operator)[slot.knob.name] for slot in slots]
        values = " | ".join(map(str, chosen))
        lines.append(
            f"| {found.latency_s[row] * 1000:.3g} | {found.accuracy[row]:.3f} | {values} |"
        )
    return "\n".join(lines)


def picture(found: Tradeoff) -> str:
    """Give an SVG: a dot per configuration, latency to the right (logarithmic), score upwards."""
    low, high = floor(log10(found.latency_s.min())), ceil(log10(found.latency_s.max()))
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def across(seconds: float) -> float:
        return _LEFT + wide * (log10(seconds) - low) / (high - low)

    def up(score: float) -> float:
        return _TOP + tall * (1 - score)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20">{escape(found.graph.name)}: {len(found.accuracy)} '
        f"configurations, {len(found.front)} that nobody dominates</text>",
    ]
    for decade in range(low, high + 1):
        x = across(10.0**decade)
        parts.append(_line(x, _TOP, x, _TOP + tall))
        parts.append(_text(x, _HEIGHT - 28, f"{10.0 ** (decade + 3):g} ms", "middle"))
    for tenth in range(0, 11, 2):
        y = up(tenth / 10)
        parts.append(_line(_LEFT, y, _LEFT + wide, y))
        parts.append(_text(_LEFT - 8, y + 4, f"{tenth / 10:g}", "end"))
    parts.append(_text(_LEFT + wide / 2, _HEIGHT - 8, "mean latency", "middle"))
    parts.append(
        f'<text transform="translate(16 {_TOP + tall / 2}) rotate(-90)" text-anchor="middle">mean '
        f"{escape(found.graph.metric)}</text>"
    )
    kept = set(found.front)
    for row, (score, seconds) in enumerate(zip(found.accuracy, found.latency_s, strict=True)):
        if row not in kept:
            parts.append(_dot(across(seconds), up(score), 2, _COLOUR))
    path = [(across(found.latency_s[row]), up(found.accuracy[row])) for row in found.front]
    stairs = [path[0], *(p for a, b in pairwise(path) for p in ((b[0], a[1]), b))]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in stairs)
    parts.append(f'<polyline points="{points}" fill="none" stroke="{_FRONT}"/>')
    parts += [_dot(x, y, 3.5, _FRONT) for x, y in path]
    return "\n".join([*parts, "</svg>", ""])


def _longest_path_s(trace: Trace) -> FloatArray:  # (C, N)
    finish = np.empty(trace.latency_s.shape)  # (C, O, N)
    for o, parents in enumerate(trace.graph.parents):
        start = np.max([finish[:, p] for p in parents], axis=0) if parents else 0.0
        finish[:, o] = start + trace.latency_s[:, o]
    return np.asarray(finish.max(axis=1))


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e3e3e3"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _dot(x: float, y: float, radius: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"/>'
