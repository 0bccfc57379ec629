"""What pipeline and infrastructure look like to one query, and whether the query fits them."""

from __future__ import annotations

from dataclasses import dataclass

from circinus.pipelines.graph import PipelineGraph
from circinus.pipelines.infrastructure import Infrastructure, with_device
from circinus.pipelines.query import Query
from circinus.pipelines.restrictions import allowed_tiers, restricted_graph
from circinus.pipelines.slo import LatencyStatistic, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """A query with pipeline and infrastructure as it may use them: fixed while it is planned."""

    graph: PipelineGraph
    infrastructure: Infrastructure
    query: Query

    @property
    def slo(self) -> Slo:
        """The query's objectives."""
        return self.query.slo

    @property
    def statistic(self) -> LatencyStatistic:
        """Which figure of the latencies the SLO bounds."""
        return self.query.slo.latency_statistic


def fitted(query: Query, graph: PipelineGraph, infrastructure: Infrastructure) -> PlanningContext:
    """Give the graph without knob values that are ruled out, and the query's own device.

    Raises:
        InvalidInput: With every fault of one kind: restrictions that name what is not there or
            leave nothing, or a device where requests start on a shared tier.
    """
    own = with_device(infrastructure, query.device)
    allowed_tiers(graph, own, query.restrictions)
    restricted = restricted_graph(graph, query.restrictions)
    return PlanningContext(graph=restricted, infrastructure=own, query=query)
