"""What should run, what runs, and who starts it: the seam between deciding and acting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

from circinus.deploy.workers.client import WorkerClient, answers
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.options import WorkerOptions
from circinus.deploy.workers.shares import Enforcement, Pace
from circinus.deploy.workers.transport import LARGEST_MESSAGE, TlsFiles, socket_of
from circinus.pipelines import checks
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.tiers import Tier

CALLS_AT_ONCE = 32
"""Calls that a worker makes at a time of an endpoint that states no limit to them."""
_MOST_AT_ONCE = 256  # whatever the limits: each is a thread of the worker

_HEALTH_S = 5.0


class ExtraReplica(NamedTuple):
    """A copy of a plan's operators on a tier, beside those of its demand or in their place."""

    tier: str
    machine_type: str | None = None  # of its machine; None: the tier has no types
    slice: str | None = None  # further one of the tier that it is a copy of; None: the tier's own


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DesiredDeployment:
    """A query's plan that should be serving."""

    pipeline_reference: str  # names the pipeline, see `pipelines.registry`
    plan: Plan
    sample: Payload | None = None  # run once before serving; None: the first request waits
    deadline_s: float | None = None  # within which its requests are in time; None: whenever
    # of the machine of each item of the plan's demand, in its order; None: its tier has no types,
    # or a pool. Empty: it is not known where items sit, and each is as its whole tier is
    machine_types: tuple[str | None, ...] = ()
    extras: tuple[ExtraReplica, ...] = ()  # on tiers of the plan, while there is room
    pool: tuple[ExtraReplica, ...] = ()  # on tiers of the plan, in place of its demand's items

    @property
    def goal(self) -> object:
        """What equals only where the same has to be started: neither sample nor deadline count."""
        return (
            *(self.pipeline_reference, self.plan.id),
            *(self.machine_types, self.extras, self.pool),
        )


class InstanceKey(NamedTuple):
    """Which instance: equal keys run the same thing, as plan's id and type determine all of it."""

    query_id: str
    plan_id: str
    tier: str
    replica: int  # counts those of a plan on machines of the tier and type, from 0
    machine_type: str | None = None  # None: the tier has no types
    slice: str | None = None  # further one of the tier; None: the tier's own

    @property
    def queue(self) -> str:
        """The name of the slice that it is a copy of: requests wait for those of one."""
        return self.slice or self.tier

    def __str__(self) -> str:
        """Return `query/plan/tier/replica`, then its type and its further slice if any."""
        return "/".join(str(part) for part in self if part is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """An instance that should run."""

    key: InstanceKey
    pipeline_reference: str
    operators: tuple[OperatorSpec, ...]  # in topological order
    configuration: Configuration
    tier: Tier  # as the machine's type makes it, where there is one
    share: float  # of a machine of the tier, in (0, 1]
    memory_bytes: int | None = None  # that its operators need, as measured; None: they were not

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its operators."""
        return tuple(operator.name for operator in self.operators)

    @property
    def machine_type(self) -> str | None:
        """The type of its machine; None: the tier has none."""
        return self.key.machine_type

    @property
    def calls_at_once(self) -> int | None:
        """Calls that it makes at a time on a remote tier, `>= 1`; None: its tier has machines."""
        if not self.tier.remote:
            return None
        called = [call for o in self.operators for call in o.called(self.configuration.of(o.name))]
        names = {call.endpoint for call in called}
        limits = [self.tier.endpoint(name).limits.concurrent for name in names]
        at_once = sum(CALLS_AT_ONCE if limit is None else limit for limit in limits)
        return min(at_once, _MOST_AT_ONCE)

    def options(
        self, enforcement: Enforcement, bind: str, tls: TlsFiles | None = None
    ) -> WorkerOptions:
        """Return the options of its worker, which listens at `bind`."""
        return WorkerOptions(
            pipeline=self.pipeline_reference,
            bind=bind,
            tls=tls,
            operators=self.names,
            configuration=self.configuration.as_dict(),
            tier=self.tier.name,
            pace=Pace(
                enforcement=enforcement,
                share=self.share,
                speed=emulated_speed(self.tier),
                devices=self.tier.gpus is not None,
            ),
            endpoints=self.tier.endpoints,
            concurrent=self.calls_at_once,
        )


def emulated_speed(tier: Tier) -> float:
    """Return the speed v that waiting puts on, in (0, 1]; 1 puts on nothing.

    After an operator that took t seconds the worker waits t (1/v - 1). A tier that is faster than
    this computer cannot be emulated, and runs at 1.
    """
    return min(tier.speed_factor, 1.0) if tier.emulated else 1.0


def instances_of(
    query_id: str, desired: DesiredDeployment, graph: PipelineGraph, infrastructure: Infrastructure
) -> dict[InstanceKey, InstanceSpec]:
    """Return the instances of a plan; InvalidInput if it does not fit.

    There is one for each item of its demand, or of the pool on its tier, and one for each extra
    replica, all as large as the demand of their slice. An instance runs its operators one at a
    time on the item's whole share. That is never slower than running each on its part of it: w
    operators that could run at once share w times the share of one. On each remote tier of the
    plan there is one more, which has no share of a machine and calls.
    """
    plan = desired.plan
    _check_placement(plan, graph, infrastructure)
    remote = [tier for tier in plan.deployment.tiers if infrastructure.tier(tier).remote]
    groups, copy_of = plan.deployment.groups, plan.deployment.demand_of(graph)
    demand = [
        (name, item.tier)
        for name, item in copy_of.items()
        if item.tier not in remote
        for _ in range(plan.deployment.replicas[groups[name][0]])
    ]
    types = desired.machine_types or (None,) * len(demand)
    fits, rule = len(types) == len(demand), f"must be one for each of {len(demand)} items"
    checks.require(fits, "machine_types", rule, list(types))
    pooled = {each.tier for each in desired.pool}
    items = [
        (name, tier, machine_type)
        for (name, tier), machine_type in zip(demand, types, strict=True)
        if name not in pooled
    ]
    for field, more in (("pool", desired.pool), ("extras", desired.extras)):
        for each in more:
            checks.among(field, each.slice or each.tier, copy_of)
            items.append((each.slice or each.tier, each.tier, each.machine_type))
    items += [(tier, tier, None) for tier in remote]
    specs: dict[InstanceKey, InstanceSpec] = {}
    replicas = Counter[tuple[str, str | None]]()
    for name, tier, machine_type in items:
        number, slice_ = replicas[name, machine_type], None if name == tier else name
        key = InstanceKey(query_id, plan.id, tier, number, machine_type, slice_)
        replicas[name, machine_type] += 1
        specs[key] = InstanceSpec(
            key=key,
            pipeline_reference=desired.pipeline_reference,
            operators=tuple(graph.operator(o) for o in groups[name]),
            configuration=plan.configuration,
            tier=infrastructure.tier(tier).typed(machine_type),
            share=min(copy_of[name].share, 1.0) if name in copy_of else 1.0,
            memory_bytes=plan.memory_in(name),
        )
    return specs


def refuse_callers(specs: Iterable[InstanceSpec], form: str) -> None:
    """Raise InvalidInput if one of the instances calls endpoints.

    Such run as processes of the service alone: what others are in that form has no way out of its
    network, and no keys of endpoints.
    """
    for spec in specs:
        rule = f"must have machines: what calls endpoints is a process of the service, not {form}"
        names = ", ".join(each.name for each in spec.tier.endpoints)
        checks.require(not spec.tier.remote, f"tier {spec.tier.name}", rule, names)


def _check_placement(plan: Plan, graph: PipelineGraph, infrastructure: Infrastructure) -> None:
    """Raise InvalidInput unless what calls is where its endpoints are, and all else elsewhere."""
    placed = [o for o in graph.operators if o.name in plan.deployment.placement]
    for operator in placed:
        tier = infrastructure.tier(plan.deployment.placement[operator.name])
        called = operator.called(plan.configuration.of(operator.name))
        where = f"placement of {operator.name}"
        there = {each.name for each in tier.endpoints}
        missing = [call.endpoint for call in called if call.endpoint not in there]
        rule = f"must be a tier with the endpoint {', '.join(missing)}"
        checks.require(not missing, where, rule, tier.name)
        rule = "must be a tier with machines: it calls nothing"
        checks.require(bool(called) or not tier.remote, where, rule, tier.name)


@dataclass(slots=True, kw_only=True, eq=False)
class RunningInstance:
    """An instance in one event loop; by itself, one that another process started and will end."""

    address: str  # where it listens
    pid: int | None = None  # its process; None when it is none of this computer's
    tls: TlsFiles | None = None  # with what to call it; None: plaintext
    enforcement: Enforcement  # how its share is enforced
    note: str = ""  # why so, in words; may be empty
    message_bytes: int = LARGEST_MESSAGE  # of the largest call or answer

    def without_handle(self) -> RunningInstance:
        """Return the instance without the means to end it."""
        return RunningInstance(
            **{each.name: getattr(self, each.name) for each in fields(RunningInstance)}
        )

    def client(self, address: str | None = None) -> WorkerClient:
        """Return a way to call it, or one beside it that is called alike, at an address."""
        return WorkerClient(address or self.address, self.tls, self.message_bytes)

    async def beside(self, known: frozenset[str]) -> frozenset[str]:
        """Wait until the workers that serve beside it, as it does, are others than the known ones.

        Return the addresses of those there are then: their maker ends them.
        """
        await asyncio.Event().wait()
        return known

    def limit(self) -> None:
        """Make it keep to its share, once it is warmed up; OSError if it no longer can."""

    async def ended(self) -> str:
        """Wait until it ended, for any cause, and return the cause in words."""
        await asyncio.Event().wait()
        return ""

    async def stop(self) -> None:
        """End it, what it started and what was set up for it; may be called again."""


class Launcher(Protocol):
    """Starts instances."""

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        """Return a healthy instance, not limited yet; LaunchFailed if it did not get so in time.

        Cancelled or failed, it leaves nothing.
        """


@asynccontextmanager
async def opened(
    launcher: Launcher, spec: InstanceSpec
) -> AsyncIterator[tuple[RunningInstance, WorkerClient]]:
    """Return an instance that is free of its share until it is limited, and a way to call it.

    Errors as `Launcher`.
    """
    instance = await launcher.start(spec)
    client = instance.client()
    try:
        yield instance, client
    finally:
        await client.close()
        await instance.stop()


@dataclass(frozen=True, slots=True)
class AttachedLauncher:
    """A `Launcher` for tiers whose workers are known."""

    addresses: Mapping[str, str]  # tier -> that of a worker that serves the pipeline
    others: Launcher  # starts those of the other tiers
    tls: TlsFiles | None = None  # with what to call those at ports; None: there are none

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        """See `Launcher`."""
        address = self.addresses.get(spec.tier.name)
        if address is None:
            return await self.others.start(spec)
        tls = None if socket_of(address) is not None else self.tls
        if not await answers(address, tls, timeout_s=_HEALTH_S):
            raise LaunchFailed(str(spec.key), f"nobody serves at {address}", "(no log)")
        note, enforcement = "started by somebody else", Enforcement.NONE
        return RunningInstance(address=address, tls=tls, enforcement=enforcement, note=note)
