"""Protocols of the runner of deployments, and of the server of their requests.

Both are one process's orchestrator; the service meets it in a process of its own, see
`api.serving`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from circinus.api.schemas.routes import RouteInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload

if TYPE_CHECKING:  # what serves takes long to import: planning workers spare it
    from circinus.deploy.routes.routed import RouteStatus
    from circinus.deploy.runtime.deployment import DeploymentStatus
    from circinus.deploy.runtime.instances import DesiredDeployment
    from circinus.deploy.runtime.learning import ObservedWorkload
    from circinus.deploy.runtime.report import DeploymentReport
    from circinus.deploy.runtime.walk import RequestResult, RequestTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRoute:
    """A route that should be served."""

    pipeline_reference: str  # names what its units run, see `pipelines.registry`
    terms: RouteInput


class Deployer(Protocol):
    """Runs deployments, perhaps in another process. Used within one event loop.

    Every call raises Unavailable while that process is away.
    """

    @property
    def generation(self) -> int:
        """Another number whenever all that ran is gone, and has to be applied again."""

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """Let exactly the desired plans serve, by query id; return when they do.

        A plan that does not start, or does not fit its pipeline or the infrastructure, appears in
        `status`, blocks no other, and is tried again by the next call.
        """

    async def withhold(self, query_id: str) -> None:
        """Answer no more requests to a query that is about to end."""

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        """Return the answer of a query's deployment to one input.

        Raises:
            InvalidInput: If the query is not deployed, or the input is none for its pipeline.
            OperatorFailed: If an operator raised.
            TooManyRequests: If too many requests wait already, or it cannot be in time any more.
            Unavailable: If it does not serve now, or not within the time.
        """

    async def emulate(self, infrastructure: Infrastructure) -> None:
        """Emulate links as thin as those of an infrastructure with the same tiers."""

    async def serving(self) -> Mapping[str, str]:
        """Return query id -> plan that answers its requests, by id, of all that serve."""

    async def reports(self) -> Mapping[str, DeploymentReport]:
        """Return query id -> what its requests got, of all that serve; at most a second old."""

    async def workload(self, query_id: str) -> ObservedWorkload | None:
        """Return what the requests to a query are like; None: no plan serves it."""

    async def status(self, query_id: str) -> DeploymentStatus | None:
        """Return how a query's deployment fares; None: it has none."""

    async def apply_routes(self, desired: Mapping[str, DesiredRoute]) -> None:
        """Let exactly these routes be served, by name; return at once. Another is tried again."""

    async def routes(self) -> Mapping[str, RouteStatus | str]:
        """Return route -> how it fares, or why it is not served, of all that should be."""

    async def close(self) -> None:
        """Stop everything; may be called again."""


class RequestServer(Protocol):
    """Answers requests to deployments of this process. Used within one event loop."""

    def plan_serving(self, query_id: str) -> str | None:
        """Return the plan that answers requests to a query, by id; None: none does."""

    def shed_infeasible(
        self, query_id: str, arrived: float, *, unless: Callable[[], bool]
    ) -> None:
        """Raise TooManyRequests if a request would be turned away on arrival.

        `unless` is called only then: whether its body, not parsed yet, may accept a late answer.
        """

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        """See `Deployer`."""
