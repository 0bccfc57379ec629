"""What a user submits."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines import checks
from pipelines.device import DeviceProfile
from pipelines.method import PlanningMethod
from pipelines.restrictions import Restrictions
from pipelines.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningLimits:
    """How much planning may spend. Every limit is hard.

    Attributes:
        profiling_s: Operator seconds on the reference machine, `> 0`.
        profiling_usd: Dollars, at the reference tier's price, `>= 0`; None: any.
        response_s: Wall-clock seconds from start to answer, `> 0`; None: any.
        configurations: Most configurations to measure, `>= 1`; None: any.
    """

    profiling_s: float = 30.0
    profiling_usd: float | None = None
    response_s: float | None = None
    configurations: int | None = None

    def __post_init__(self) -> None:
        checks.positive("limits.profiling_s", self.profiling_s)
        if self.profiling_usd is not None:
            checks.non_negative("limits.profiling_usd", self.profiling_usd)
        if self.response_s is not None:
            checks.positive("limits.response_s", self.response_s)
        if self.configurations is not None:
            rule = "must be >= 1"
            checks.require(
                self.configurations >= 1, "limits.configurations", rule, self.configurations
            )


HIGHEST_PRIORITY = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A pipeline on some data with objectives; the data itself is named by the caller's side.

    Attributes:
        pipeline: Name of the pipeline.
        slo: What must hold.
        request_rate_per_s: Expected requests per second, `> 0`; None: one request at a time.
        weight: Benefit of serving the query, `> 0`.
        priority: From 0 to `HIGHEST_PRIORITY`: a query is worth more than all queries of lower
            priority together, and takes their place.
        tenant: Whose query it is, a name; what quotas count by. Empty: nobody's.
        duration_s: How long to serve it, `> 0`; None: until undeployed.
        limits: What planning may spend.
        seed: Of every random choice on the query's way, `>= 0`.
        restrictions: What holds in every plan.
        device: Its own device; None: as the infrastructure says.
        planning: How it is planned.
    """

    pipeline: str
    slo: Slo
    request_rate_per_s: float | None = None
    weight: float = 1.0
    priority: int = 0
    tenant: str = ""
    duration_s: float | None = None
    limits: PlanningLimits = field(default_factory=PlanningLimits)
    seed: int = 0
    restrictions: Restrictions = field(default_factory=Restrictions)
    device: DeviceProfile | None = None
    planning: PlanningMethod = field(default_factory=PlanningMethod)

    def __post_init__(self) -> None:
        checks.name("pipeline", self.pipeline)
        checks.positive("weight", self.weight)
        fits = 0 <= self.priority <= HIGHEST_PRIORITY
        rule = f"must be from 0 to {HIGHEST_PRIORITY}"
        checks.require(fits, "priority", rule, self.priority)
        if self.tenant:
            checks.name("tenant", self.tenant)
        checks.require(self.seed >= 0, "seed", "must be >= 0", self.seed)
        if self.request_rate_per_s is not None:
            checks.positive("request_rate_per_s", self.request_rate_per_s)
            rule = "must be left out with slo.throughput_per_s"
            free = self.slo.throughput_per_s is None
            checks.require(free, "request_rate_per_s", rule, self.request_rate_per_s)
        if self.duration_s is not None:
            checks.positive("duration_s", self.duration_s)
