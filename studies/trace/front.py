"""The trade-off that a trace holds: accuracy against latency of every configuration.

One rule: means over all inputs, operators one after the other on the reference machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.profile import FloatArray
from circinus.planner.deployment.pareto import undominated
from circinus.studies.report.charts import COLOURS, logarithmic, panels
from circinus.studies.report.tables import markdown_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Tradeoff:
    """What every configuration scores and takes, and which ones nobody dominates."""

    graph: PipelineGraph  # of the pipeline
    accuracy: FloatArray  # mean score, shape (C,)
    latency_s: FloatArray  # mean seconds of the whole pipeline, shape (C,)
    front: Sequence[int]  # rows that no other beats, fastest first
    configurations: Sequence[Configuration]  # of the front, in its order

    @property
    def accuracy_span(self) -> float:
        """Largest mean score less the smallest."""
        return float(np.ptp(self.accuracy))

    @property
    def latency_ratio(self) -> float:
        """Largest mean latency over the smallest."""
        return float(self.latency_s.max() / self.latency_s.min())


def tradeoff(trace: Trace) -> Tradeoff:
    """Return the trade-off of a trace; inputs without a score are left out."""
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


def table(result: Tradeoff) -> str:
    """Return the front as a Markdown table, fastest first; knobs without a choice are left out."""
    slots = [slot for slot in result.graph.slots if len(slot.knob.values) > 1]
    lines = [
        (
            *(f"{result.latency_s[row] * 1000:.3g}", f"{result.accuracy[row]:.3f}"),
            *(str(configuration.of(slot.operator)[slot.knob.name]) for slot in slots),
        )
        for row, configuration in zip(result.front, result.configurations, strict=True)
    ]
    head = ("latency, ms", result.graph.metric, *(slot.key for slot in slots))
    return markdown_lines(head, lines)


def picture(result: Tradeoff) -> Figure:
    """Draw a dot per configuration, log latency to the right, score upwards."""
    figure, [[axes]] = panels(1, width=9, height=5)
    others = np.setdiff1d(np.arange(len(result.accuracy)), result.front)
    latency_ms, front = result.latency_s * 1000, list(result.front)
    axes.scatter(latency_ms[others], result.accuracy[others], s=9, alpha=0.6)
    axes.step(latency_ms[front], result.accuracy[front], "o-", where="post", color=COLOURS[1])
    count = f"{len(result.accuracy)} configurations, {len(result.front)} that nobody dominates"
    axes.set_title(f"{result.graph.name}: {count}")
    axes.set(xlabel="mean latency, ms", ylabel=f"mean {result.graph.metric}")
    axes.set_ylim(0, 1)
    logarithmic(axes, "x")
    return figure


def _longest_path_s(trace: Trace) -> FloatArray:  # (C, N)
    finish = np.empty(trace.latency_s.shape)  # (C, O, N)
    for o, parents in enumerate(trace.graph.parents):
        start = np.max([finish[:, p] for p in parents], axis=0) if parents else 0.0
        finish[:, o] = start + trace.latency_s[:, o]
    return np.asarray(finish.max(axis=1))
