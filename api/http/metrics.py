"""What dispatchers do, in the format of Prometheus: the one home of its client library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from circinus.deploy.routes.routed import RouteStatus
from circinus.deploy.routes.units import UnitStatus
from circinus.deploy.runtime.report import DeploymentReport, QueueFigures, SpanCounts
from circinus.scheduler.routing.regimes import Regime

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
    "endpoint_calls": ("Calls to endpoints.", lambda f: f.endpoints.calls),
    "endpoint_input_tokens": ("Tokens that they read.", lambda f: f.endpoints.input_tokens),
    "endpoint_cached_tokens": ("Of these, cached.", lambda f: f.endpoints.cached_tokens),
    "endpoint_output_tokens": ("Tokens that they wrote.", lambda f: f.endpoints.output_tokens),
    "endpoint_dollars": ("US dollars that they cost.", lambda f: f.endpoints.usd),
}


_OF_SPANS: Mapping[str, tuple[str, Callable[[SpanCounts], float | None]]] = {
    "requests": ("Requests within the span.", lambda f: f.requests),
    "in_time": ("Answered within the latency objective.", lambda f: f.in_time),
    "turned_away": ("Refused, so that others are in time.", lambda f: f.turned_away),
    "failed": ("Those that got another error.", lambda f: f.failed),
    "goodput_per_second": ("Answers in time per second.", lambda f: f.goodput_per_s),
    "p50_seconds": ("Median latency from arrival.", lambda f: f.p50_s),
    "p95_seconds": ("95th percentile of it.", lambda f: f.p95_s),
    "p99_seconds": ("99th percentile of it.", lambda f: f.p99_s),
}


@dataclass(frozen=True, eq=False)
class _Spans(Collector):
    """Exports the recent service of requests of all queries, per span of the past."""

    reports: Mapping[str, DeploymentReport]

    def collect(self) -> Iterator[Metric]:
        for name, (words, figure) in _OF_SPANS.items():
            family = GaugeMetricFamily(
                f"circinus_lately_{name}", words, labels=("query", "span_seconds")
            )
            for query, report in self.reports.items():
                for each in report.spans:
                    if (value := figure(each)) is not None:
                        family.add_metric([query, f"{each.span_s:g}"], float(value))
            yield family


@dataclass(frozen=True, eq=False)
class _Queues(Collector):
    """Exports the figures of all queues at the moment of the scrape."""

    reports: Mapping[str, DeploymentReport]

    def collect(self) -> Iterator[Metric]:
        for kind, metrics in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, (words, figure) in metrics.items():
                family = kind(f"circinus_dispatch_{name}", words, labels=_LABELS)
                for query, report in self.reports.items():
                    for tier, figures in report.queues.items():
                        family.add_metric([query, tier], float(figure(figures)))
                yield family


_OF_UNITS: Mapping[str, tuple[str, Callable[[UnitStatus], float]]] = {
    "wanted": ("Workers that the route's mode asks for.", lambda u: u.wanted),
    "running": ("Workers that take requests.", lambda u: u.running),
    "traffic_part": ("Of the route's requests at this moment.", lambda u: u.part),
}


@dataclass(frozen=True, eq=False)
class _Routes(Collector):
    """Exports all served routes, and their units."""

    routes: Mapping[str, RouteStatus]

    def collect(self) -> Iterator[Metric]:
        words = "Whether traffic goes to all that can be had, not to the cheapest."
        mode = GaugeMetricFamily("circinus_route_capacity_mode", words, labels=("route",))
        for name, status in self.routes.items():
            mode.add_metric([name], float(status.state.regime is Regime.CAPACITY))
        yield mode
        labels = ("route", "unit")
        for figure_name, (words, figure) in _OF_UNITS.items():
            family = GaugeMetricFamily(f"circinus_route_{figure_name}", words, labels=labels)
            for name, unit in self._units():
                family.add_metric([name, unit.name], float(figure(unit)))
            yield family
        sent = CounterMetricFamily("circinus_route_requests", "Sent to a unit.", labels=labels)
        for name, unit in self._units():
            sent.add_metric([name, unit.name], float(unit.sent))
        yield sent

    def _units(self) -> Iterator[tuple[str, UnitStatus]]:
        return ((name, unit) for name, status in self.routes.items() for unit in status.units)


def exposition(
    reports: Mapping[str, DeploymentReport], routes: Mapping[str, RouteStatus] | None = None
) -> bytes:
    """Return the figures of reports by query, and of routes, in Prometheus' text format 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Queues(reports))
    registry.register(_Spans(reports))
    registry.register(_Routes(routes or {}))
    return generate_latest(registry)
