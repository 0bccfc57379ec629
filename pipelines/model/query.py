"""What a user submits, how that is planned, and whether pipeline and infrastructure fit it.

The names of the parts of a planning method are what query files, settings, studies and pages call
them. What they stand for is made in `deploy.planning`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from circinus.pipelines import checks, ranges
from circinus.pipelines.model.draws import drawing_as
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import DeviceProfile, Infrastructure, with_device
from circinus.pipelines.model.restrictions import Restrictions, allowed_tiers, restricted_graph
from circinus.pipelines.model.slo import LatencyStatistic, Slo

STRATEGIES = ("multi_fidelity", "cmbo", "random", "exhaustive")
STOPPING = ("betting", "t_test")
SAMPLING = ("random", "stratified")

DECIDES_ITSELF = "multi_fidelity"  # the strategy that knows by itself what is accurate enough


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningMethod:
    """The parts that plan a query."""

    strategy: str = DECIDES_ITSELF  # proposes what to measure, of `STRATEGIES`
    # decides when a configuration has met enough inputs, and so whether it is accurate enough, of
    # `STOPPING`; None: the strategy does
    stopping: str | None = None
    sampling: str = "random"  # the order of inputs, of `SAMPLING`: by chance, or strata in turn

    def __post_init__(self) -> None:
        checks.among("planning.strategy", self.strategy, STRATEGIES)
        checks.among("planning.sampling", self.sampling, SAMPLING)
        if self.strategy == DECIDES_ITSELF:
            rule = f"must be left out with the strategy {self.strategy}, which decides by itself"
            checks.require(self.stopping is None, "planning.stopping", rule, self.stopping)
            return
        checks.among("planning.stopping", self.stopping, STOPPING)
        proven = self.stopping != "betting" or self.sampling == "random"
        rule = "must be random with the stopping rule betting, which is proven for no other order"
        checks.require(proven, "planning.sampling", rule, self.sampling)

    @property
    def own_slices(self) -> bool:
        """Whether branches may have slices of their own: published allocation is per operator."""
        return self.strategy == "cmbo"

    def changed(
        self,
        *,
        strategy: str | None = None,
        stopping: str | None = None,
        sampling: str | None = None,
    ) -> PlanningMethod:
        """Return the same with other parts; None: as it is.

        Another strategy brings the stopping rule that it needs where none is named: none for the
        one that decides itself, `betting` for others, `t_test` where inputs are stratified.
        InvalidInput if a name is unknown or the parts do not go together.
        """
        chosen = strategy or self.strategy
        order = sampling or self.sampling
        rule = stopping
        if stopping is None and chosen != DECIDES_ITSELF:
            rule = self.stopping or ("betting" if order == "random" else "t_test")
        return PlanningMethod(strategy=chosen, stopping=rule, sampling=order)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningLimits:
    """How much planning may spend. Every limit is hard."""

    # operator seconds on the reference machine
    profiling_s: Annotated[float, ranges.LIMIT_S] = 30.0
    # dollars, at the reference tier's price; None: any
    profiling_usd: Annotated[float, ranges.LIMIT_USD] | None = None
    # Wall-clock seconds from when operators can run to the answer; None: any
    response_s: Annotated[float, ranges.LIMIT_S] | None = 120.0
    # Of these, seconds in which no operator runs; None: any
    own_s: Annotated[float, ranges.LIMIT_S] | None = None
    # most configurations to measure; None: any
    configurations: Annotated[int, ranges.CONFIGURATIONS] | None = None

    def __post_init__(self) -> None:
        ranges.check_fields("limits.", self)


# deviates: failed-inputs
class OnFailure(StrEnum):
    """What an input on which an operator fails means for a configuration's accuracy."""

    SCORE_ZERO = "score_zero"  # scores zero
    # scores zero; leaves the population once it failed in all of three configurations, or of all
    # where there are fewer
    DROP = "drop"
    STOP = "stop"  # ends the search


HIGHEST_PRIORITY = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A pipeline on some data with objectives; the data itself is named by the caller's side."""

    pipeline: str  # name of the pipeline
    slo: Slo  # what must hold
    # expected; None: one request at a time
    request_rate_per_s: Annotated[float, ranges.RATE_PER_S] | None = None
    weight: Annotated[float, ranges.WEIGHT] = 1.0  # benefit of serving the query
    # from 0 to `HIGHEST_PRIORITY`: a query is worth more than all queries of lower priority
    # together, and takes their place
    priority: int = 0
    tenant: str = ""  # whose query it is, a name; what quotas count by. Empty: no one's
    # how long to serve it; None: until undeployed
    duration_s: Annotated[float, ranges.DURATION_S] | None = None
    limits: PlanningLimits = field(default_factory=PlanningLimits)  # what planning may spend
    seed: int = 0  # of every random choice on the query's way, `>= 0`
    restrictions: Restrictions = field(default_factory=Restrictions)  # what holds in every plan
    device: DeviceProfile | None = None  # its own device; None: as the infrastructure states
    planning: PlanningMethod = field(default_factory=PlanningMethod)  # how it is planned
    on_failure: OnFailure = OnFailure.SCORE_ZERO  # what a failed input means
    draws: tuple[str, ...] = ()  # operators that draw, beside those that declare it

    def __post_init__(self) -> None:
        checks.name("pipeline", self.pipeline)
        ranges.check_fields("", self)
        fits = 0 <= self.priority <= HIGHEST_PRIORITY
        rule = f"must be from 0 to {HIGHEST_PRIORITY}"
        checks.require(fits, "priority", rule, self.priority)
        if self.tenant:
            checks.name("tenant", self.tenant)
        checks.at_least("seed", self.seed, 0)
        free = self.request_rate_per_s is None or self.slo.throughput_per_s is None
        rule = "must be left out with slo.throughput_per_s"
        checks.require(free, "request_rate_per_s", rule, self.request_rate_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """A query with pipeline and infrastructure as it may use them: fixed while it is planned."""

    graph: PipelineGraph
    infrastructure: Infrastructure
    query: Query
    # Of each of the infrastructure's last tiers, which tier it is a further slice of, by position.
    further: tuple[int, ...] = ()

    @property
    def slo(self) -> Slo:
        """The query's objectives."""
        return self.query.slo

    @property
    def statistic(self) -> LatencyStatistic:
        """Which figure of the latencies the SLO bounds."""
        return self.query.slo.latency_statistic

    @property
    def requests_per_s(self) -> float | None:
        """Requests per second that plans are made for; None: one after the other."""
        return self.query.request_rate_per_s or self.slo.throughput_per_s

    @property
    def by_request(self) -> bool:
        """Whether the cost of 1,000 requests, not of an hour, decides which plan is the cheapest.

        Where requests come one after the other and some are paid by the call, an hour of a slower
        plan costs less because less is done in it.
        """
        calls = any(operator.all_calls for operator in self.graph.operators)
        return self.requests_per_s is None and calls


def fitted(query: Query, graph: PipelineGraph, infrastructure: Infrastructure) -> PlanningContext:
    """Return the graph without knob values that are ruled out, and the query's own device.

    InvalidInput with violations of one kind: draws of an operator that is not there; restrictions
    that name what is not there or leave nothing; a device where requests start on a shared tier.
    """
    for name in query.draws:
        checks.among("draws", name, [operator.name for operator in graph.operators])
    own = with_device(infrastructure, query.device)
    allowed_tiers(graph, own, query.restrictions)
    restricted = drawing_as(restricted_graph(graph, query.restrictions), query.draws)
    return PlanningContext(graph=restricted, infrastructure=own, query=query)
