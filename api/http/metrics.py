"""What dispatchers do, in the format of Prometheus: the one home of its client library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from circinus.deploy.runtime.tier_queue import QueueFigures

Queues = Mapping[str, Mapping[str, QueueFigures]]
"""Query id -> tier -> its queue."""

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_LABELS = ("query", "tier")
_GAUGES: Mapping[str, tuple[str, Callable[[QueueFigures], float]]] = {
    "waiting": ("Requests that wait for an instance.", lambda f: f.waiting),
    "idle_instances": ("Instances that could start a request now.", lambda f: f.idle),
    "busy_instances": ("Instances at work or out.", lambda f: len(f.busy)),
    "lateness_max_seconds": ("By how much the latest answer was late.", lambda f: f.late_max_s),
}
_COUNTERS: Mapping[str, tuple[str, Callable[[QueueFigures], float]]] = {
    "answered": ("Requests that were answered.", lambda f: f.answered),
    "late": ("Answers after the deadline.", lambda f: f.late),
    "lateness_seconds": ("By how much they were late, together.", lambda f: f.late_s),
    "turned_away": ("Requests refused or given up.", lambda f: f.turned_away),
    "lost": ("Times that an instance went away with a request.", lambda f: f.lost),
    "waiting_seconds": ("For an instance, of the answered.", lambda f: f.waited_s),
    "predicted_seconds": ("Of their calls, as predicted at the start.", lambda f: f.predicted_s),
    "observed_seconds": ("Of the same calls, as they were.", lambda f: f.observed_s),
    "drifts": ("Times that latencies had changed for good.", lambda f: f.drifts),
}


@dataclass(frozen=True, eq=False)
class _Queues(Collector):
    """Tells the figures of all queues at the moment of asking."""

    queues: Queues

    def collect(self) -> Iterator[Metric]:
        for kind, told in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, (words, figure) in told.items():
                family = kind(f"circinus_dispatch_{name}", words, labels=_LABELS)
                for query, tiers in self.queues.items():
                    for tier, figures in tiers.items():
                        family.add_metric([query, tier], float(figure(figures)))
                yield family


def exposition(queues: Queues) -> bytes:
    """Give the figures as Prometheus' text format, version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Queues(queues))
    return generate_latest(registry)
