"""What pipeline and infrastructure look like to one query, and whether the query fits them."""

from __future__ import annotations

from typing import NamedTuple

from pipelines.device import with_device
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure
from pipelines.query import Query
from pipelines.restrictions import allowed_tiers, restricted_graph


class Fitted(NamedTuple):
    """A pipeline and an infrastructure as a query may use them."""

    graph: PipelineGraph
    infrastructure: Infrastructure


def fitted(query: Query, graph: PipelineGraph, infrastructure: Infrastructure) -> Fitted:
    """Give the graph without knob values that are ruled out, and the query's own device.

    Raises:
        InvalidInput: With every fault of one kind: restrictions that name what is not there or
            leave nothing, or a device where requests start on a shared tier.
    """
    own = with_device(infrastructure, query.device)
    allowed_tiers(graph, own, query.restrictions)
    return Fitted(graph=restricted_graph(graph, query.restrictions), infrastructure=own)
