"""How long a request takes, composed from the seconds of its operators.

| symbol | meaning | shape |
| --- | --- | --- |
| P, O, n | plans, operators (topological order), inputs | |
| t | operator seconds on the reference machine, alone | (O, n) |
| q | of these, in which an operator waits: for a timer, a disk, a network | (O, n) |
| b | bytes that an operator hands on; of the input | (O, n), (n,) |
| v | speed factor of an operator's tier for its class | (P, O) |
| r | share of a machine that the slice has in which an operator runs | (P, O) |
| h | seconds that calling an instance of a tier costs it, on the reference machine | per tier |
| g | the same for each byte that a call hands over | per tier |
| w | seconds that a call waits on its way, whatever the share, keeping nothing busy | per tier |

A request takes the longest path through the DAG: every operator starts when the
outputs of all its parents have arrived, and those before it are done that do not wait for each
other but share its slice, which runs one at a time. It takes `q + (t - q) / v` at share 1. A
transfer between unlike tiers takes the route's delay plus `b` times its seconds per byte;
within a tier it is free (Circinus 4.1 and A.2: what is left inside a cluster
contributes little), but for what calling an instance takes: `(h + g b) / (v r) + w` where
a request enters its tier. The input starts at the infrastructure's origin; the way of
the result back is not counted. A share stretches what a proportional operator computes, `t - q`,
by `1/r` and a batched one by its batch-latency curve at `1/r` requests (linear between the
curve's points; beyond the last it goes on proportionally, so a machine is never
split for free). A batched operator, and any on a tier with GPUs, may wait for a device, whose work
that is: there q counts as 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from circinus.pipelines import checks
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, divided
from circinus.pipelines.model.operators import OperatorSpec, Scaling
from circinus.pipelines.model.plan import Deployment
from circinus.pipelines.model.profile import FloatArray, Profile
from circinus.pipelines.model.tiers import Tier

TierArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """What one configuration does to each input, wherever it runs."""

    operator_s: FloatArray  # t, shape (O, n)
    output_bytes: FloatArray  # b of operators, shape (O, n)
    input_bytes: FloatArray  # b of the inputs, shape (n,)
    # of endpoints by each operator, see `Profile.used`, shape (O, len(Usage), n); None: nothing
    used: FloatArray | None = None
    waited_s: FloatArray | None = None  # q, shape (O, n); None: 0

    @classmethod
    def of(cls, profile: Profile) -> Work:
        """Return the work of the inputs that succeeded."""
        good = profile.succeeded
        waited_s = None if profile.waited_s is None else profile.waited_s[:, good]
        return cls(
            waited_s=waited_s if waited_s is not None and waited_s.any() else None,
            operator_s=profile.operator_s[:, good],
            output_bytes=profile.output_bytes[:, good],
            input_bytes=profile.input_bytes[good],
            used=None if profile.used is None else profile.used[:, :, good],
        )

    @property
    def waiting(self) -> FloatArray:  # (O,)
        """Which part of each operator's seconds it waits, in [0, 1]."""
        if self.waited_s is None:
            return np.zeros(len(self.operator_s))
        whole = self.operator_s.sum(axis=1)
        part = self.waited_s.sum(axis=1) / np.where(whole > 0, whole, 1.0)
        return np.asarray(np.clip(part, 0.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Composition:
    """What of a work's seconds under P placements no share changes: worked out once for many."""

    graph: PipelineGraph
    work: Work
    speed: FloatArray  # v, (P, O)
    spared: FloatArray  # 1 where no share stretches what an operator waits, else 0, (P, O)
    own_speed: FloatArray  # of tiers, whatever the class of operators, (P, O)
    # seconds of calls at speed and share 1, (P, O, n); None: they cost nothing
    called: FloatArray | None
    waits: FloatArray | None  # w where requests enter a tier, (P, O); None: 0 everywhere
    # seconds on the way from each parent, or from the origin, (P, n) each
    moved: tuple[FloatArray, ...]
    # by operator: those that run before it though it does not wait for them, and where, (P,) each
    turns: tuple[tuple[tuple[int, npt.NDArray[np.bool_]], ...], ...]

    @classmethod
    def of(
        cls,
        graph: PipelineGraph,
        infrastructure: Infrastructure,
        work: Work,
        placement: TierArray,  # (P, O)
    ) -> Composition:
        """Return that of placements: positions of tiers."""
        tiers, rows = infrastructure.tiers, np.arange(len(graph.operators))
        # deviates: no-transfer-within-a-tier
        delay, s_per_byte = infrastructure.route_seconds
        origin = infrastructure.position(infrastructure.origin or "")

        def moved(before: int | TierArray, to: TierArray, sizes: FloatArray) -> FloatArray:
            seconds = delay[before, to][:, None] + s_per_byte[before, to][:, None] * sizes
            return np.asarray(seconds)

        waits = np.array([tier.call_delay_s for tier in tiers])[placement]
        calls = any(tier.call_s or tier.call_s_per_byte for tier in tiers)
        enters = _enters(graph, infrastructure, placement) if calls or waits.any() else None
        return cls(
            graph=graph,
            work=work,
            speed=speeds_at(graph, infrastructure, placement),
            spared=waits_apart(graph, infrastructure)[rows, placement].astype(np.float64),
            own_speed=np.array([tier.speed_factor for tier in tiers])[placement],
            called=(
                _call_seconds(graph, infrastructure, work, placement, enters)
                if calls and enters is not None
                else None
            ),
            waits=waits * enters if enters is not None and waits.any() else None,
            moved=tuple(
                moved(placement[:, p], placement[:, o], work.output_bytes[p])
                if p is not None
                else moved(origin, placement[:, o], work.input_bytes)
                for o, parents in enumerate(graph.parents)
                for p in parents or (None,)
            ),
            turns=tuple(
                tuple(_neighbours(graph, infrastructure, placement, o)) for o in rows.tolist()
            ),
        )

    def take(self, rows: TierArray) -> Composition:
        """Return that of some placements, in that order."""
        return replace(
            self,
            speed=self.speed[rows],
            spared=self.spared[rows],
            own_speed=self.own_speed[rows],
            called=None if self.called is None else self.called[rows],
            waits=None if self.waits is None else self.waits[rows],
            moved=tuple(each[rows] for each in self.moved),
            turns=tuple(tuple((e, same[rows]) for e, same in each) for each in self.turns),
        )

    def busy(self, shares: FloatArray) -> FloatArray:  # (P, O) -> (P, O, n)
        """Return the seconds that each operator keeps its slice busy, calls included."""
        stretch = 1.0 / shares
        for o, operator in enumerate(self.graph.operators):
            if operator.scaling is not Scaling.PROPORTIONAL:
                stretch[:, o] = stretch_of(operator, shares[:, o])
        stretch /= self.speed
        busy = stretch[:, :, None] * self.work.operator_s
        if self.work.waited_s is not None:
            busy += (self.spared * (1 - stretch))[:, :, None] * self.work.waited_s
        if self.called is not None:
            busy += self.called / (self.own_speed * shares)[:, :, None]
        return np.asarray(busy)

    def seconds(self, shares: FloatArray) -> FloatArray:  # (P, O) -> (P, n)
        """Return the seconds of every input at shares in (0, 1]."""
        busy, moved = self.busy(shares), iter(self.moved)
        finish = np.empty_like(busy)
        for o, parents in enumerate(self.graph.parents):
            ready = finish[:, parents[0]] + next(moved) if parents else next(moved)
            for p in parents[1:]:
                ready = np.maximum(ready, finish[:, p] + next(moved))
            for e, same in self.turns[o]:
                ready = np.maximum(ready, np.where(same[:, None], finish[:, e], 0.0))
            finish[:, o] = ready + busy[:, o]
            if self.waits is not None:
                finish[:, o] += self.waits[:, [o]]
        sinks = [self.graph.position(sink) for sink in self.graph.sinks]
        return np.asarray(finish[:, sinks].max(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TierSums:
    """Seconds of a chain as `fixed + sum_t stretched_t / share_t`: no operator waits for another.

    Equal to those of its `Composition` up to rounding, in fewer steps.
    """

    fixed: FloatArray  # whatever the shares, (P, n)
    stretched: FloatArray  # at a share of 1, (P, T, n)

    @classmethod
    def of(cls, composed: Composition, placement: TierArray, tiers: int) -> TierSums | None:
        """Return those of placements (P, O) on so many tiers; None: there is no such sum."""
        graph, work = composed.graph, composed.work
        if not graph.is_chain or any(
            o.scaling is not Scaling.PROPORTIONAL for o in graph.operators
        ):
            return None
        stretched = work.operator_s / composed.speed[:, :, None]  # (P, O, n)
        fixed = np.sum(composed.moved, axis=0)
        if work.waited_s is not None:
            waited = composed.spared[:, :, None] * work.waited_s
            stretched -= waited / composed.speed[:, :, None]
            fixed = fixed + waited.sum(axis=1)
        if composed.called is not None:
            stretched += composed.called / composed.own_speed[:, :, None]
        if composed.waits is not None:
            fixed = fixed + composed.waits.sum(axis=1)[:, None]
        on = (placement[:, :, None] == np.arange(tiers)).astype(np.float64)  # (P, O, T)
        return cls(fixed=fixed, stretched=np.einsum("pot,pon->ptn", on, stretched))

    def seconds(self, rows: TierArray, shares: FloatArray) -> FloatArray:  # (A,), (A, T) -> (A, n)
        """Return the seconds of every input of placements by number, at shares in (0, 1]."""
        stretched = np.einsum("atn,at->an", self.stretched[rows], 1.0 / shares)
        return np.asarray(self.fixed[rows] + stretched)


def compose(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    work: Work,
    placement: TierArray,  # (P, O)
    shares: FloatArray,  # (P, O)
) -> FloatArray:  # (P, n)
    """Return the seconds of every input under every plan: positions of tiers, shares in (0, 1]."""
    return Composition.of(graph, infrastructure, work, placement).seconds(shares)


# deviates: slices-take-turns
def _neighbours(
    graph: PipelineGraph, infrastructure: Infrastructure, placement: TierArray, o: int
) -> list[tuple[int, npt.NDArray[np.bool_]]]:  # (P,) each
    """Return the operators that run before one though it does not wait for them, and where.

    That is in the same slice of a machine: tiers without machines have none.
    """
    if not graph.beside[o]:
        return []
    sliced = np.array([not tier.remote for tier in infrastructure.tiers])[placement[:, o]]
    return [(e, (placement[:, e] == placement[:, o]) & sliced) for e in graph.beside[o]]


def busy_seconds(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    work: Work,
    placement: TierArray,  # (P, O)
    shares: FloatArray,  # (P, O)
) -> FloatArray:  # (P, O, n)
    """Return the seconds that each operator keeps its slice busy, calls included."""
    return Composition.of(graph, infrastructure, work, placement).busy(shares)


# deviates: reference-seconds
def speeds_at(
    graph: PipelineGraph, infrastructure: Infrastructure, placement: TierArray
) -> FloatArray:  # (P, O) -> (P, O)
    """Return the speed factor of every operator's tier for its class."""
    speeds = np.array(
        [[tier.speed_of(name) for tier in infrastructure.tiers] for name in graph.classes]
    )  # (O, T)
    return np.asarray(speeds[np.arange(len(speeds)), placement])


def waits_apart(
    graph: PipelineGraph, infrastructure: Infrastructure
) -> npt.NDArray[np.bool_]:  # (O, T)
    """Return on which tiers share and speed leave the seconds alone in which an operator waits."""
    return np.array(
        [[waits_apart_on(op, tier) for tier in infrastructure.tiers] for op in graph.operators]
    )


# deviates: waits-not-stretched
def waits_apart_on(operator: OperatorSpec, tier: Tier) -> bool:
    """Return whether no share and no speed of a tier stretches what an operator waits there."""
    return operator.scaling is Scaling.PROPORTIONAL and tier.share_steps is None


def _call_seconds(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    work: Work,
    placement: TierArray,  # (P, O)
    entered: npt.NDArray[np.bool_],  # see `_enters`, (P, O)
) -> FloatArray:  # (P, O, n)
    """Return what calls take where a request enters a tier, at speed and share 1."""
    call_s = np.array([tier.call_s for tier in infrastructure.tiers])[placement]
    s_per_byte = np.array([tier.call_s_per_byte for tier in infrastructure.tiers])[placement]
    seconds = np.repeat((entered * call_s)[:, :, None], len(work.input_bytes), 2)
    for o, parents in enumerate(graph.parents):
        if not entered[:, o].any():
            continue
        away = placement[:, list(parents)] != placement[:, [o]]  # (P, parents)
        handed = away @ work.output_bytes[list(parents)] if parents else work.input_bytes
        seconds[:, o] += (s_per_byte * entered)[:, [o]] * handed
    return seconds


def _enters(
    graph: PipelineGraph, infrastructure: Infrastructure, placement: TierArray
) -> npt.NDArray[np.bool_]:  # (P, O) each
    """Return at which operators a request enters a tier: the instance there is called.

    One call does for neighbours that take the same.
    """
    enters = np.ones(placement.shape, dtype=np.bool_)
    for o, parents in enumerate(graph.parents):
        if parents:
            enters[:, o] = (placement[:, list(parents)] != placement[:, [o]]).any(axis=1)
        for e, same in _neighbours(graph, infrastructure, placement, o):
            if graph.parents[e] == parents:
                enters[:, o] &= ~same
    return enters


def stretch_of(operator: OperatorSpec, shares: FloatArray) -> FloatArray:
    """Return how many times as long an operator takes on shares of a machine, same shape."""
    if operator.scaling is Scaling.PROPORTIONAL:
        return np.asarray(1.0 / shares)
    batches = np.array(sorted(operator.batch_latency), dtype=float)
    factors = np.array([operator.batch_latency[int(b)] for b in batches])
    together = 1.0 / shares
    # deviates: batches-beyond-the-curve
    beyond = np.maximum(together / batches[-1], 1.0)
    return np.asarray(np.interp(together, batches, factors) * beyond)


def request_seconds(
    graph: PipelineGraph, infrastructure: Infrastructure, work: Work, deployment: Deployment
) -> FloatArray:  # (n,)
    """Return the seconds of every input under one deployment."""
    own = divided(infrastructure, deployment.further)
    placement, shares = deployment_arrays(graph, own, deployment)
    return np.asarray(compose(graph, own, work, placement, shares)[0])


def deployment_arrays(
    graph: PipelineGraph, infrastructure: Infrastructure, deployment: Deployment
) -> tuple[TierArray, FloatArray]:  # (1, O), (1, O)
    """Return it as arrays for `compose`; InvalidInput if an operator is not on a known tier.

    Its further slices are tiers of the infrastructure, see `divided`.
    """
    for operator in graph.operators:
        placed = operator.name in deployment.placement
        checks.require(placed, "placement", "must place every operator, missing is", operator.name)
    names = [deployment.slice_of(operator.name) for operator in graph.operators]
    tiers = [infrastructure.position(name) for name in names]
    demand = deployment.demand_of(graph)
    shares = [demand[name].share if name in demand else 1.0 for name in names]
    return np.array([tiers], dtype=np.int64), np.array([shares], dtype=np.float64)
