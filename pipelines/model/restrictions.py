"""What a user does not leave to the planner: where operators may run, which knob values count.

A restriction is no objective: a plan that breaks one is never made, so it holds in every
plan. Knob values that are ruled out leave the graph before the search sees it; tiers that
are ruled out leave the placements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import KnobValue, OperatorSpec

_FIELD = "restrictions"


class Stays(StrEnum):
    """What must not leave the tier where requests come from (the user's device)."""

    NOTHING = "nothing"
    INPUT = "input"
    """Operators that take the input itself run there; what they make of it may leave."""
    EVERYTHING = "everything"  # all operators run there


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which of some named or numbered things may be taken."""

    only: tuple[KnobValue, ...] | None = None  # these alone; None: any. One of them is a pin
    never: tuple[KnobValue, ...] = ()  # none of these

    def __post_init__(self) -> None:
        restricts = self.only is not None or bool(self.never)
        checks.require(restricts, _FIELD, "must say only or never", None)
        if self.only is not None:
            checks.require(bool(self.only), "only", "must have at least one", [])
            checks.unique("only", _typed(self.only))
        checks.unique("never", _typed(self.never))

    def allows(self, value: KnobValue) -> bool:
        """Return whether a thing may be taken."""
        wanted = self.only is None or _among(value, self.only)
        return wanted and not _among(value, self.never)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restrictions:
    """What holds in every plan of a query."""

    tiers: Mapping[str, Choice] = field(default_factory=dict)  # operator -> where it may run
    knobs: Mapping[str, Mapping[str, Choice]] = field(default_factory=dict)  # by operator, knob
    stays_on_device: Stays = Stays.NOTHING  # what must not leave the origin of requests


def restricted_graph(graph: PipelineGraph, restrictions: Restrictions) -> PipelineGraph:
    """Return the graph with the allowed knob values only; its configurations are the graph's own.

    InvalidInput with every unknown operator, knob and value, and every knob left without one.
    """
    violations: list[Violation] = []
    for operator in restrictions.knobs:
        violations += _unknown(f"{_FIELD}.knobs", operator, [op.name for op in graph.operators])
    shared = _of_shared(graph, restrictions)
    operators = tuple(
        _restricted(operator, restrictions.knobs.get(operator.name, {}), shared, violations)
        for operator in graph.operators
    )
    if violations:
        raise InvalidInput(violations)
    return replace(graph, operators=operators) if operators != graph.operators else graph


def allowed_tiers(
    graph: PipelineGraph, infrastructure: Infrastructure, restrictions: Restrictions
) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the tiers that each operator may run on, machines or not.

    InvalidInput with every unknown operator and tier, and every operator left without a tier.
    """
    names = [tier.name for tier in infrastructure.tiers]
    violations: list[Violation] = []
    where = f"{_FIELD}.tiers"
    for operator, choice in restrictions.tiers.items():
        violations += _unknown(where, operator, [op.name for op in graph.operators])
        violations += _unknown_values(f"{where}.{operator}", choice, names)
    if violations:
        raise InvalidInput(violations)
    anywhere = Choice(only=tuple(names))
    at_origin = Choice(only=(infrastructure.origin or "",))
    stays = restrictions.stays_on_device
    allowed = []
    for spec in graph.operators:
        bound = stays is Stays.EVERYTHING or (stays is Stays.INPUT and not spec.after)
        both = (at_origin if bound else anywhere, restrictions.tiers.get(spec.name, anywhere))
        allowed.append(
            tuple(i for i, name in enumerate(names) if all(choice.allows(name) for choice in both))
        )
    left_out = [op.name for op, tiers in zip(graph.operators, allowed, strict=True) if not tiers]
    if left_out:
        rule = "must leave every operator a tier (stays_on_device counts too)"
        raise InvalidInput([Violation.of(f"{where}.{name}", rule, []) for name in left_out])
    return tuple(allowed)


def words(restrictions: Restrictions) -> tuple[str, ...]:
    """Return the restrictions one by one, as sentences without a full stop."""
    sentences = [
        f"{operator} runs {_choice_words(choice, 'on ')}"
        for operator, choice in restrictions.tiers.items()
    ]
    sentences += [
        f"{operator}.{knob} is {_choice_words(choice, '')}"
        for operator, knobs in restrictions.knobs.items()
        for knob, choice in knobs.items()
    ]
    if restrictions.stays_on_device is not Stays.NOTHING:
        sentences.append(f"{restrictions.stays_on_device.value} stays on the device")
    return tuple(sentences)


def _of_shared(graph: PipelineGraph, restrictions: Restrictions) -> dict[str, list[Choice]]:
    """Return what restricts knobs that several operators share, wherever it is stated."""
    choices: dict[str, list[Choice]] = {}
    for (operator, knob), _ in graph.choosing:
        choice = restrictions.knobs.get(operator, {}).get(knob.name)
        if knob.shared and choice is not None:
            choices.setdefault(knob.shared, []).append(choice)
    return choices


def _restricted(
    operator: OperatorSpec,
    choices: Mapping[str, Choice],
    shared: Mapping[str, Sequence[Choice]],  # see `_of_shared`
    violations: list[Violation],
) -> OperatorSpec:
    where = f"{_FIELD}.knobs.{operator.name}"
    for name in choices:
        violations += _unknown(where, name, [knob.name for knob in operator.knobs])
    knobs = []
    for knob in operator.knobs:
        choice = choices.get(knob.name) or Choice(only=knob.values)
        every = (choice, *shared.get(knob.shared, ()))
        values = tuple(v for v in knob.values if all(one.allows(v) for one in every))
        unknown = _unknown_values(f"{where}.{knob.name}", choice, knob.values)
        if not values and not unknown:
            unknown = [Violation.of(f"{where}.{knob.name}", "must leave a value", [])]
        violations += unknown
        # A violation is raised by the caller: until then the knob is what it was.
        knobs.append(replace(knob, values=values or knob.values))
    # What is called with a value that is ruled out is not called any more.
    left = {knob.name: knob.values for knob in knobs}
    calls = tuple(
        call
        for call in operator.all_calls
        if all(_among(value, left[knob]) for knob, value in call.when.items())
    )
    return replace(operator, knobs=tuple(knobs), calls=calls)


def _unknown(where: str, name: str, known: Sequence[str]) -> list[Violation]:
    rule = f"must be among {', '.join(known) or '(none)'}"
    return [] if name in known else [Violation.of(where, rule, name)]


def _unknown_values(where: str, choice: Choice, known: Sequence[KnobValue]) -> list[Violation]:
    rule = f"must be among {', '.join(map(str, known))}"
    return [
        Violation.of(f"{where}.{name}", rule, value)
        for name, values in (("only", choice.only or ()), ("never", choice.never))
        for value in values
        if not _among(value, known)
    ]


def _among(value: KnobValue, values: Sequence[KnobValue]) -> bool:
    return _typed([value])[0] in _typed(values)


def _typed(values: Sequence[KnobValue]) -> list[object]:
    # True == 1 in Python, but they are two knob values.
    return [(isinstance(value, bool), value) for value in values]


def _choice_words(choice: Choice, before: str) -> str:
    parts = []
    if choice.only is not None:
        parts.append(f"only {before}{' or '.join(map(str, choice.only))}")
    if choice.never:
        parts.append(f"never {before}{' or '.join(map(str, choice.never))}")
    return ", ".join(parts)
