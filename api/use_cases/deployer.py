"""What the service needs of whoever runs deployments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from circinus.deploy.runtime.dispatcher import RequestResult, RequestTerms
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.orchestrator import DeploymentStatus
from circinus.deploy.runtime.tier_queue import QueueFigures
from circinus.deploy.runtime.traffic import Lately
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.payload import Payload


class Deployer(Protocol):
    """Runs deployments. Used within one event loop."""

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """Let exactly the desired plans serve, by query id; return when they do.

        A plan that does not start, or does not fit its pipeline or the infrastructure, is told by
        `status`, holds up no other, and is tried again by the next call.
        """

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        """Give the answer of a query's deployment to one input.

        Raises:
            InvalidInput: If the query is not deployed, or the input is none for its pipeline.
            OperatorFailed: If an operator raised.
            TooManyRequests: If too many requests wait already, or it cannot be in time any more.
            Unavailable: If it does not serve now, or not within the time.
        """

    def imitate(self, infrastructure: Infrastructure) -> None:
        """Let emulated links be as thin as those of an infrastructure with the same tiers."""

    def figures(self) -> Mapping[str, Mapping[str, QueueFigures]]:
        """Give query id -> tier -> its queue at this moment, of all that serve."""

    def serving(self, query_id: str) -> str | None:
        """Give the plan that answers requests to a query, by id; None: none does."""

    def lately(self) -> Mapping[str, Sequence[Lately]]:
        """Give query id -> what its requests got lately, of all that serve."""

    def arrivals_per_s(self) -> Mapping[str, float]:
        """Give query id -> how many requests a second come now, refused ones too."""

    def status(self, query_id: str) -> DeploymentStatus:
        """Give how a query's deployment fares; InvalidInput if there is none."""

    async def close(self) -> None:
        """Stop everything; may be called again."""


def found_status(deployer: Deployer, query_id: str) -> DeploymentStatus | None:
    """Give how a query's deployment fares; None: it has none."""
    try:
        return deployer.status(query_id)
    except InvalidInput:
        return None
