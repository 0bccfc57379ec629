"""A plan: which configuration runs where, on how much, and what that is expected to yield."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import inf, isclose
from typing import NamedTuple

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.slo import SURE, Estimate, HoldsFor, LatencyStatistic, Slo, SloState

_SECONDS_PER_HOUR = 3600.0
_THOUSAND = 1000.0

_ROUNDING = 1e-9
"""Copies are counted in whole ones: a rate that they meet exactly is met up to rounding."""


class DemandItem(NamedTuple):
    """A share of one machine of a tier; never split over machines."""

    tier: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Where the operators of a pipeline run and on how much.

    The operators that a plan has on one tier sit together in one slice of one machine and
    share it over time, so they have the same share of it and the same number of replicas. Some
    may have a further slice there, perhaps on another machine, with a share and replicas of its
    own. On a tier without machines nothing is shared: there both are 1.
    """

    placement: Mapping[str, str]  # operator -> tier, in topological order
    allocation: Mapping[str, float]  # operator -> share of one machine of its tier, in (0, 1]
    replicas: Mapping[str, int]  # operator -> number of copies, `>= 1`
    remote: frozenset[str] = frozenset()  # tiers in use that have endpoints and no machines
    # operator -> name of the further slice it is in; others are in that of their tier's name
    slices: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tier in self.remote:
            checks.among("deployment.remote", tier, self.tiers)
        for operator in self.slices:
            checks.among("deployment.slices", operator, self.placement)
        groups = self.groups
        for operator, tier in self.placement.items():
            checks.share(f"allocation of {operator}", self.allocation[operator])
            checks.at_least(f"replicas of {operator}", self.replicas[operator], 1)
            first = groups[self.slice_of(operator)][0]
            rule = f"must be on {self.placement[first]}, as {first} of its slice is"
            together = self.placement[first] == tier
            checks.require(together, f"placement of {operator}", rule, tier)
            own = (self.allocation[operator], self.replicas[operator])
            alike = own == (self.allocation[first], self.replicas[first])
            rule = f"must equal those of {first}, its neighbour on {tier}"
            checks.require(alike, f"allocation and replicas of {operator}", rule, own)
            rule = f"must be 1 and 1 on {tier}, which has no machines"
            whole = tier not in self.remote or own == (1.0, 1)
            checks.require(whole, f"allocation and replicas of {operator}", rule, own)

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers in use, in the order in which the pipeline first reaches them."""
        return tuple(dict.fromkeys(self.placement.values()))

    def slice_of(self, operator: str) -> str:
        """Return the name of the slice that an operator is in."""
        return self.slices.get(operator, self.placement[operator])

    @property
    def further(self) -> dict[str, str]:
        """The tier of each further slice."""
        return {name: self.placement[operator] for operator, name in self.slices.items()}

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The operators of each slice, both in topological order; a remote tier counts as one."""
        groups: dict[str, tuple[str, ...]] = {}
        for operator in self.placement:
            name = self.slice_of(operator)
            groups[name] = (*groups.get(name, ()), operator)
        return groups

    def demand_of(self, graph: PipelineGraph) -> dict[str, DemandItem]:
        """Return what each copy of a slice asks of a machine, by the slice's name.

        Its share is that of an operator times the largest number of the operators there that can
        run at once, so a chain asks for one operator's share. Tiers without machines have none.
        """
        items = {}
        for name, operators in self.groups.items():
            tier = self.placement[operators[0]]
            if tier not in self.remote:
                width = graph.width([graph.position(operator) for operator in operators])
                share = round(self.allocation[operators[0]] * width, 9)
                items[name] = DemandItem(tier, share)
        return items

    def demand(self, graph: PipelineGraph) -> tuple[DemandItem, ...]:
        """Return what the deployment asks of machines: one item per slice and replica."""
        groups = self.groups
        return tuple(
            item
            for name, item in self.demand_of(graph).items()
            for _ in range(self.replicas[groups[name][0]])
        )


def cost_usd_per_hour(demand: tuple[DemandItem, ...], infrastructure: Infrastructure) -> float:
    """Return the dollars per hour of a demand: each share at its tier's price."""
    return sum(infrastructure.tier(tier).price_usd_per_hour * share for tier, share in demand)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is expected of a plan on future inputs of the source that its examples are from."""

    accuracy: Estimate
    latency_s: Estimate  # in the statistic that the query's SLO bounds
    usd_per_request: Estimate | None = None  # of calls; None: nothing is called


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCalls:
    """What a plan's operators use of endpoints."""

    usd_per_request: Estimate  # US dollars, mean over the inputs
    per_request: Mapping[str, Usage]  # endpoint -> mean usage of one request
    # requests per second that the endpoints' limits let through, of the tightest, `> 0`; inf: any
    most_per_s: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A configuration with its deployment and what is expected of it."""

    pipeline: str  # name of the pipeline
    configuration: Configuration  # one value for every knob
    deployment: Deployment  # placement, allocation, replicas
    demand: tuple[DemandItem, ...]  # what the deployment asks of machines
    accuracy: Estimate  # estimated mean score
    latency_s: Estimate  # estimated latency, in the statistic that the query's SLO bounds
    cost_usd_per_hour: (
        float  # price of the demand, and of calls at the rate of `calls_usd_per_hour`
    )
    tier_service_s: Mapping[str, float]  # slice -> mean seconds that a request keeps it busy
    future: Outlook | None = None  # accuracy and latency ahead; None: not worked out
    p99_over_mean: float = 1.0  # of the latencies of the inputs measured, `>= 1`
    calls: PlanCalls | None = None  # what is called; None: nothing
    # of `cost_usd_per_hour`, that of calls at `requests_per_s`, or of requests one after the other
    calls_usd_per_hour: float = 0.0
    # of machines and calls, for 1,000 requests at that rate; 0 also where it was not worked out
    cost_usd_per_1000_requests: float = 0.0
    requests_per_s: float | None = None  # that it is made for; None: one after the other
    # operator -> most memory resident in a process that ran it so; those not measured are left out
    memory_bytes: Mapping[str, int] = field(default_factory=dict)

    def memory_in(self, name: str) -> int | None:
        """Return the bytes that a worker of a slice needs; None: not all were measured.

        They are run one at a time by a process that has loaded the whole pipeline, as those were.
        """
        needed = [self.memory_bytes.get(each) for each in self.deployment.groups[name]]
        known = [each for each in needed if each is not None]
        return max(known) if known and len(known) == len(needed) else None

    @property
    def demand_of(self) -> dict[str, DemandItem]:
        """What each copy of a slice asks of a machine, by the slice's name."""
        where = self.deployment
        copies = (
            name
            for name, operators in where.groups.items()
            if where.placement[operators[0]] not in where.remote
            for _ in range(where.replicas[operators[0]])
        )
        return dict(zip(copies, self.demand, strict=True))

    @property
    def id(self) -> str:
        """A name for what would be deployed: equal plans have equal ids, in every process."""
        where = self.deployment
        placed = [
            (o, t, where.allocation[o], where.replicas[o]) for o, t in where.placement.items()
        ]
        further = [tuple(sorted(where.slices.items()))] if where.slices else []
        parts = (self.pipeline, self.configuration.values, placed, *further)
        return "p-" + blake2b(repr(parts).encode(), digest_size=6).hexdigest()

    @property
    def throughput_per_s(self) -> Estimate:
        """Requests per second when there are always some to do: of the slowest slice's copies.

        Its interval is as wide, relative to the value, as that of the latency: both come from the
        same seconds. Limits of endpoints bound it, too.
        """
        value = min(self._finished_per_s(name) for name in self.deployment.groups)
        value = value if self.calls is None else min(value, self.calls.most_per_s)
        latency = self.latency_s
        return Estimate(
            value=value,
            low=min(value * latency.value / latency.high, value) if latency.high > 0 else value,
            high=max(value * latency.value / latency.low, value) if latency.low > 0 else inf,
            confidence=latency.confidence,
            inputs=latency.inputs,
        )

    def deadline_s(self, slo: Slo) -> float | None:
        """Return the seconds from its arrival within which a request is in time; None: any.

        A bound on a percentile is one on requests. One on the mean leaves each as much more as the
        slowest in a hundred had while the plan was measured. Batch work has no deadline.
        """
        if slo.throughput_per_s is not None:
            return None
        is_mean = slo.latency_statistic is LatencyStatistic.MEAN
        return slo.latency_s * (self.p99_over_mean if is_mean else 1.0)

    @property
    def machines_usd_per_hour(self) -> float:
        """US dollars per hour of the machines that it asks for."""
        return self.cost_usd_per_hour - self.calls_usd_per_hour

    def repriced(self, infrastructure: Infrastructure) -> float | None:
        """Return `cost_usd_per_hour` at an infrastructure's prices of machines.

        None: they are those of the plan, or one of its tiers is gone.
        """
        if len(infrastructure.present(self.deployment.tiers)) < len(self.deployment.tiers):
            return None
        machines = cost_usd_per_hour(self.demand, infrastructure)
        if isclose(machines, self.machines_usd_per_hour, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            return None
        return machines + self.calls_usd_per_hour

    def cost_of_an_hour(self, *, ahead: bool = False) -> Estimate:
        """Return `cost_usd_per_hour` with its interval, at the rate; `ahead`: on future inputs.

        Machines cost what they do; calls as much as `cost_per_1000` states.
        """
        usd, value = self._usd_per_request(ahead=ahead), self.cost_usd_per_hour
        each = self.calls_usd_per_hour / usd.value if usd.value > 0 else 0.0
        return Estimate(
            value=value,
            low=min(value - each * (usd.value - usd.low), value),
            high=max(value + each * (usd.high - usd.value), value),
            confidence=usd.confidence,
            inputs=usd.inputs,
        )

    def cost_per_1000(self, *, ahead: bool = False) -> Estimate:
        """Return `cost_usd_per_1000_requests` with its interval; `ahead`: on future inputs.

        Calls cost what they did on the inputs measured, on the mean. Machines that requests use
        one after the other cost the more the longer these take: as uncertain as the latency.
        """
        latency, value = self.latency_s, self.cost_usd_per_1000_requests
        if ahead and self.future is not None:
            latency = self.future.latency_s
        per_request = self._usd_per_request(ahead=ahead)
        machines = max(value - _THOUSAND * per_request.value, 0.0)
        least = most = 1.0
        if self.requests_per_s is None and latency.value > 0:
            least, most = latency.low / latency.value, latency.high / latency.value
        certain = machines == 0 or self.requests_per_s is not None
        sure = min([per_request.confidence, *([] if certain else [latency.confidence])])
        return Estimate(
            value=value,
            low=min(machines * least + _THOUSAND * per_request.low, value),
            high=max(machines * most + _THOUSAND * per_request.high, value),
            confidence=sure,
            inputs=per_request.inputs,
        )

    def _usd_per_request(self, *, ahead: bool) -> Estimate:
        """Return the US dollars of one request's calls: none where nothing is called."""
        usd = None if self.calls is None else self.calls.usd_per_request
        if ahead and self.future is not None:
            usd = self.future.usd_per_request or usd
        inputs = self.latency_s.inputs
        nothing = Estimate(value=0, low=0, high=0, confidence=SURE, inputs=inputs)
        return nothing if usd is None else usd

    def _finished_per_s(self, name: str) -> float:
        copies = self.deployment.replicas[self.deployment.groups[name][0]]
        busy = self.tier_service_s.get(name, 0.0)
        return copies / busy if busy > 0 else inf

    def states(self, slo: Slo) -> dict[str, SloState]:
        """Return the status of each SLO: `accuracy`, `latency`, those of the others bounded.

        Accuracy, latency and the cost of requests are those that `slo.holds_for` names.
        """
        ahead = self.future if slo.holds_for is HoldsFor.FUTURE else None
        expected = ahead or self
        accurate = expected.accuracy.at_least(slo.accuracy)
        if ahead and ahead.accuracy.left_out and accurate is SloState.MET:
            accurate = SloState.LIKELY  # requests with inputs such as those left out fail
        states = {
            "accuracy": accurate,
            "latency": expected.latency_s.at_most(slo.latency_s),
        }
        if slo.cost_usd_per_hour is not None:
            an_hour = self.cost_of_an_hour(ahead=ahead is not None)
            states["cost"] = an_hour.at_most(slo.cost_usd_per_hour)
        if slo.cost_usd_per_1000_requests is not None:
            known = self.cost_per_1000(ahead=ahead is not None)
            states["cost_per_1000"] = known.at_most(slo.cost_usd_per_1000_requests)
        if slo.throughput_per_s is not None:
            eased = slo.throughput_per_s * (1 - _ROUNDING)
            states["throughput"] = self.throughput_per_s.at_least(eased)
        return states


def with_known_memory(plans: Iterable[Plan], earlier: Iterable[Plan]) -> tuple[Plan, ...]:
    """Return plans that also know what earlier ones do of the memory of the same operators.

    So plans from earlier measurements, without running anything, are not forgotten.
    """
    known: dict[tuple[str, str], int] = {}
    for plan in earlier:
        for name, size in plan.memory_bytes.items():
            key = (name, str(plan.configuration.of(name)))
            known[key] = max(size, known.get(key, 0))
    completed = []
    for plan in plans:
        placed = plan.deployment.placement
        keys = {name: (name, str(plan.configuration.of(name))) for name in placed}
        of_others = {name: known[key] for name, key in keys.items() if key in known}
        completed.append(replace(plan, memory_bytes=of_others | dict(plan.memory_bytes)))
    return tuple(completed)
