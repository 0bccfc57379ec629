"""What operators used of endpoints, between `Usage` and its form in messages."""

from __future__ import annotations

from collections.abc import Mapping

from circinus.deploy.workers.proto.worker_pb2 import EndpointUsage, OperatorUsage
from circinus.pipelines.endpoints import Usage

UsedByOperator = Mapping[str, Mapping[str, Usage]]
"""Operator -> endpoint -> what was used of it."""


def to_wire(used: UsedByOperator) -> dict[str, OperatorUsage]:
    """Return what `from_wire` restores."""
    return {
        operator: OperatorUsage(
            endpoints={name: EndpointUsage(**one._asdict()) for name, one in by_endpoint.items()}
        )
        for operator, by_endpoint in used.items()
    }


def from_wire(used: Mapping[str, OperatorUsage]) -> dict[str, dict[str, Usage]]:
    """Return what was used, from a message's field."""
    return {
        operator: {
            name: Usage(*(getattr(one, field) for field in Usage._fields))
            for name, one in told.endpoints.items()
        }
        for operator, told in used.items()
    }
