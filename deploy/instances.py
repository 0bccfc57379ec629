"""What should run, what runs, and who starts it: the seam between deciding and acting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from deploy.shares import Enforcement
from deploy.tls import TlsFiles
from pipelines.configuration import Configuration
from pipelines.infrastructure import Tier
from pipelines.operators import OperatorSpec
from pipelines.payload import Payload
from pipelines.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DesiredDeployment:
    """A query's plan that should be serving.

    Attributes:
        pipeline_reference: Names the pipeline, see `pipelines.registry`.
        plan: What to run where.
        sample: An input to run once before serving, so that what operators load on first use
            is there; None: the first request waits for it.
    """

    pipeline_reference: str
    plan: Plan
    sample: Payload | None = None


class InstanceKey(NamedTuple):
    """Which instance: equal keys run the same thing, as a plan's id says all of it."""

    query_id: str
    plan_id: str
    tier: str
    replica: int

    def __str__(self) -> str:
        """Give `query/plan/tier/replica`."""
        return "/".join(map(str, self))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """An instance that should run.

    Attributes:
        key: Which.
        pipeline_reference: Whose operators.
        operators: That it serves, in topological order.
        configuration: Of the pipeline.
        tier: That it stands for.
        share: Of one machine, in (0, 1].
    """

    key: InstanceKey
    pipeline_reference: str
    operators: tuple[OperatorSpec, ...]
    configuration: Configuration
    tier: Tier
    share: float


class RunningInstance(Protocol):
    """An instance that was started. Used within one event loop."""

    @property
    def address(self) -> str:
        """Where it listens."""

    @property
    def pid(self) -> int | None:
        """Its process; None when it is none of this computer's."""

    @property
    def tls(self) -> TlsFiles | None:
        """With what to call it; None: plaintext."""

    @property
    def enforcement(self) -> Enforcement:
        """How its share is enforced."""

    @property
    def note(self) -> str:
        """Why so, in words; may be empty."""

    def limit(self) -> None:
        """Make it keep to its share from now on: it was free of it for starting and warming up.

        Raises:
            OSError: If it can no longer be limited.
        """

    async def ended(self) -> str:
        """Wait until it ended, however that came, and say how."""

    async def stop(self) -> None:
        """End it, what it started and what was set up for it; may be called again."""


class Launcher(Protocol):
    """Starts instances."""

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        """Give a healthy instance, not limited yet. Cancelled or failed, it leaves nothing.

        Raises:
            LaunchFailed: If it did not get healthy in time.
        """
