"""Calls of endpoints: which operators make them, on which tiers, at which rates.

An operator that calls under its settings is on a remote tier which has all endpoints that it may
call then. Under settings with which it calls nothing it is on a machine, as any other. So one
search compares what is rented with what is called. A remote tier has no copies to add and no queue
of ours: what bounds a plan there is how much of an endpoint may be used.

| symbol | meaning |
| --- | --- |
| rate | requests per second |
| c, k | calls and tokens that one request takes of an endpoint, means over inputs |
| S | seconds that one request keeps calls to it under way |

Calls per minute are 60 rate c, tokens per minute 60 rate k, calls under way on the mean rate S
(Little's law). Of an operator that may call several endpoints under one configuration it is known
only what it used of all: each is taken to have given all of it, which is the safe side.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import TierArray, Work
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.restrictions import Restrictions, allowed_tiers

Called = tuple[frozenset[str], ...]
"""Names of the endpoints that each operator calls under one configuration, in topological
order."""

NOTHING: frozenset[str] = frozenset()


_SECONDS_PER_MINUTE = 60.0
_CALLS, _READ, _WRITTEN = (
    Usage._fields.index(name) for name in ("calls", "input_tokens", "output_tokens")
)


# deviates: endpoint-calls
@dataclass(frozen=True, kw_only=True, eq=False)
class Callers:
    """The tiers that operators may be on, by what they call."""

    operators: tuple[OperatorSpec, ...]  # in topological order
    # for each of them, by the endpoints that it may call under one of its settings: positions of
    # the tiers that it may be on then, at least one
    tiers: tuple[Mapping[frozenset[str], tuple[int, ...]], ...]

    @classmethod
    def of(
        cls, graph: PipelineGraph, infrastructure: Infrastructure, restrictions: Restrictions
    ) -> Callers:
        """Return it for a pipeline on an infrastructure, within the restrictions.

        InvalidInput if no tier has a machine where one is needed, if some settings leave an
        operator no tier, with all of these, or as `allowed_tiers` does.
        """
        allowed = allowed_tiers(graph, infrastructure, restrictions)
        violations: list[Violation] = []
        choices = []
        for operator, tiers in zip(graph.operators, allowed, strict=True):
            by_calls = {
                called: _tiers_for(called, infrastructure, tiers) for called in _patterns(operator)
            }
            violations += [
                _violation(operator, called, infrastructure, tiers)
                for called, positions in by_calls.items()
                if not positions
            ]
            choices.append(by_calls)
        some = any(tier.machines > 0 for tier in infrastructure.tiers)
        needless = not any(NOTHING in by_calls for by_calls in choices)
        checks.require(
            some or needless, "infrastructure.tiers", "must have at least one machine", 0
        )
        if violations:
            raise InvalidInput(violations)
        return cls(operators=graph.operators, tiers=tuple(choices))

    @property
    def any_calls(self) -> bool:
        """Whether any operator may call anything."""
        return any(operator.all_calls for operator in self.operators)

    def in_slices(self, tier_of: TierArray) -> Callers:
        """Return them for the slices of tiers, of whose tier the position is (T + F,)."""
        return replace(
            self,
            tiers=tuple(
                {
                    called: tuple(np.flatnonzero(np.isin(tier_of, positions)).tolist())
                    for called, positions in each.items()
                }
                for each in self.tiers
            ),
        )

    def choices(self) -> list[list[int]]:
        """Return the tiers that each operator may be on under any settings, ascending."""
        return [sorted(set().union(*by_calls.values())) for by_calls in self.tiers]

    def called(self, configuration: Configuration) -> Called:
        """Return what is called under a configuration."""
        return tuple(
            called_by(operator, configuration) if operator.all_calls else NOTHING
            for operator in self.operators
        )


def called_by(operator: OperatorSpec, configuration: Configuration) -> frozenset[str]:
    """Return the names of the endpoints that an operator calls under a configuration."""
    called = operator.called(configuration.of(operator.name))
    return frozenset(call.endpoint for call in called)


def _patterns(operator: OperatorSpec) -> dict[frozenset[str], None]:
    """Return what the operator calls under any of its settings, each once."""
    decisive = {knob for call in operator.all_calls for knob in call.when}
    knobs = [knob for knob in operator.knobs if knob.name in decisive]
    names = [knob.name for knob in knobs]
    each = itertools.product(*(knob.values for knob in knobs))
    settings = (dict(zip(names, values, strict=True)) for values in each)
    return dict.fromkeys(
        frozenset(call.endpoint for call in operator.called(chosen)) for chosen in settings
    )


def _tiers_for(
    called: frozenset[str], infrastructure: Infrastructure, allowed: tuple[int, ...]
) -> tuple[int, ...]:
    tiers = infrastructure.tiers
    if not called:
        return tuple(i for i in allowed if tiers[i].machines > 0)
    return tuple(i for i in allowed if called <= {each.name for each in tiers[i].endpoints})


def _violation(
    operator: OperatorSpec,
    called: frozenset[str],
    infrastructure: Infrastructure,
    allowed: tuple[int, ...],
) -> Violation:
    tiers = [infrastructure.tiers[i] for i in allowed]
    if not called:
        rule, names = "must leave a tier that has machines", [tier.name for tier in tiers]
        return Violation.of(f"restrictions.tiers.{operator.name}", rule, names)
    remote = [
        f"{tier.name} ({', '.join(each.name for each in tier.endpoints)})"
        for tier in tiers
        if tier.remote
    ]
    there = f", which are: {'; '.join(remote)}" if remote else ": there is none"
    rule = f"must be endpoints of one remote tier that it may be on{there}"
    needed = [name for name in operator.endpoints if name in called]
    return Violation.of(f"operator {operator.name}.calls", rule, needed)


class LimitedUse(NamedTuple):
    """What requests use of one limit of an endpoint."""

    endpoint: str
    limit: str  # as `RateLimits` names it
    allowed: float  # by the limit, in its unit, `>= 1`
    each: float  # used at one request per second, in the same unit, `>= 0`

    @property
    def most_per_s(self) -> float:
        """Requests per second that use all of it; inf: they use nothing of it."""
        return self.allowed / self.each if self.each > 0 else inf


def limited_uses(
    context: PlanningContext, called: Called | None, work: Work
) -> tuple[LimitedUse, ...]:
    """Return the use of every limit of the endpoints that are called; None: none are."""
    return tuple(_uses(context, called, work)) if called and any(called) else ()


def tightest(context: PlanningContext, called: Called | None, work: Work) -> LimitedUse | None:
    """Return the limit that lets the fewest requests through; None: there is no limit."""
    uses = limited_uses(context, called, work)
    return min(uses, key=lambda use: use.most_per_s, default=None)


def limited(
    context: PlanningContext, called: Called | None, work: Work, utilisation: float
) -> float:
    """Return the part of the tightest limit that is used, over `utilisation`, in (0, 1].

    0 where requests come one after the other: nobody knows how soon.
    """
    rate, use = context.requests_per_s, tightest(context, called, work)
    return 0.0 if rate is None or use is None else rate / (utilisation * use.most_per_s)


def _uses(context: PlanningContext, called: Called, work: Work) -> Iterator[LimitedUse]:
    endpoints = {each.name: each for each in context.infrastructure.endpoints}
    seconds = work.operator_s.mean(axis=1).tolist()
    used = None if work.used is None else work.used.mean(axis=2)
    for name in dict.fromkeys(name for names in called for name in sorted(names)):
        mine = [o for o, names in enumerate(called) if name in names]
        calls = tokens = 0.0
        if used is not None:
            calls = float(used[mine, _CALLS].sum())
            tokens = float(used[mine, _READ].sum() + used[mine, _WRITTEN].sum())
        each = {
            "requests_per_minute": _SECONDS_PER_MINUTE * calls,
            "tokens_per_minute": _SECONDS_PER_MINUTE * tokens,
            "concurrent": sum(seconds[o] for o in mine),
        }
        for limit, amount in each.items():
            allowed = getattr(endpoints[name].limits, limit)
            if allowed is not None:
                yield LimitedUse(name, limit, float(allowed), amount)
