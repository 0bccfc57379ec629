"""Who calls what, and which tiers that leaves an operator.

An operator that calls under its settings is on a remote tier which has all endpoints that it may
call then: it needs no machine. Under settings with which it calls nothing it is on a machine, as
any other. So one search compares what is rented with what is called.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.restrictions import Restrictions, allowed_tiers

Called = tuple[frozenset[str], ...]
"""Names of the endpoints that each operator calls under one configuration, in topological
order."""

NOTHING: frozenset[str] = frozenset()


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
                for called, found in by_calls.items()
                if not found
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
