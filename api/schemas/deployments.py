"""A deployment as the service shows it: its instances, and what requests to it took."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import View


class InstanceView(View):
    """One running worker process."""

    tier: str
    """Tier that it stands for."""
    operators: list[str] = Field(default_factory=list)
    """Operators that it runs."""
    pid: int | None = None
    """Process id, where it is a process of this machine."""
    address: str
    """Where it listens."""
    share: float
    """Of one machine, in (0, 1]."""
    enforcement: str
    """How the share is enforced: `cgroup` or `duty cycle`."""
    emulated: bool
    """Whether the tier's speed is put on by waiting."""


class ObservedView(View):
    """What the last requests took. Figures are none until there is a request."""

    count: int = 0
    """Requests answered since deployment."""
    failed: int = 0
    """Requests that failed since deployment."""
    mean_s: float | None = None
    """Mean latency in seconds."""
    p50_s: float | None = None
    """Median latency in seconds."""
    p90_s: float | None = None
    """90th percentile in seconds."""
    p99_s: float | None = None
    """99th percentile in seconds."""
    window: int | None = None
    """Number of latest requests that the figures are over; none: all."""


class DeploymentView(View):
    """The deployment of a query."""

    query_id: str
    """Whose deployment."""
    plan_id: str | None = None
    """Plan that runs."""
    phase: str
    """`starting`, `ready`, `failed`, `stopped` ..."""
    message: str | None = None
    """More about the phase, in words."""
    instances: list[InstanceView] = Field(default_factory=list)
    """The worker processes."""
    observed: ObservedView = Field(default_factory=ObservedView)
    """What requests took."""
