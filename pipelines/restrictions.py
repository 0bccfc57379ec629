"""What a user does not leave to the planner: where operators may run, which knob values count.

A restriction is no objective: a plan that breaks one is never made, so it holds in every
plan. Knob values that are ruled out leave the graph before the search sees it; tiers that
are ruled out leave the placements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pipelines import checks
from pipelines.errors import Fault, InvalidInput
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure
from pipelines.operators import Knob, KnobValue, OperatorSpec

_FIELD = "restrictions"


class Stays(StrEnum):
    """What must not leave the tier where requests come from (the user's device)."""

    NOTHING = "nothing"
    INPUT = "input"
    """Operators that take the input itself run there; what they make of it may leave."""
    EVERYTHING = "everything"
    """All operators run there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which of some named or numbered things may be taken.

    Attributes:
        only: These alone; None: any. One of them is a pin.
        never: None of these.
    """

    only: tuple[KnobValue, ...] | None = None
    never: tuple[KnobValue, ...] = ()

    def __post_init__(self) -> None:
        told = self.only is not None or bool(self.never)
        checks.require(told, _FIELD, "must say only or never", None)
        if self.only is not None:
            checks.require(bool(self.only), "only", "must have at least one", [])
            checks.unique("only", _typed(self.only))
        checks.unique("never", _typed(self.never))

    def allows(self, value: KnobValue) -> bool:
        """Give whether a thing may be taken."""
        wanted = self.only is None or _among(value, self.only)
        return wanted and not _among(value, self.never)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restrictions:
    """What holds in every plan of a query.

    Attributes:
        tiers: Operator -> the tiers that it may run on.
        knobs: Operator -> knob -> the values that it may have.
        stays_on_device: What must not leave the origin of requests.
    """

    tiers: Mapping[str, Choice] = field(default_factory=dict)
    knobs: Mapping[str, Mapping[str, Choice]] = field(default_factory=dict)
    stays_on_device: Stays = Stays.NOTHING


def restricted_graph(graph: PipelineGraph, restrictions: Restrictions) -> PipelineGraph:
    """Give the graph with the allowed knob values only; its configurations are the graph's own.

    Raises:
        InvalidInput: With a fault for every unknown operator, knob and value, and for every knob
            that is left without a value.
    """
    faults: list[Fault] = []
    for operator in restrictions.knobs:
        _check_known(f"{_FIELD}.knobs", operator, [op.name for op in graph.operators], faults)
    operators = tuple(
        _restricted(operator, restrictions.knobs.get(operator.name, {}), faults)
        for operator in graph.operators
    )
    if faults:
        raise InvalidInput(faults)
    return replace(graph, operators=operators) if operators != graph.operators else graph


def allowed_tiers(
    graph: PipelineGraph, infrastructure: Infrastructure, restrictions: Restrictions
) -> tuple[tuple[int, ...], ...]:
    """Give the positions of the tiers that each operator may run on, machines or not.

    Raises:
        InvalidInput: With a fault for every unknown operator and tier, and for every operator
            that is left without a tier.
    """
    names = [tier.name for tier in infrastructure.tiers]
    faults: list[Fault] = []
    for operator, choice in restrictions.tiers.items():
        where = f"{_FIELD}.tiers"
        _check_known(where, operator, [op.name for op in graph.operators], faults)
        _check_values(f"{where}.{operator}", choice, names, faults)
    if faults:
        raise InvalidInput(faults)
    allowed = tuple(
        tuple(
            i
            for i, name in enumerate(names)
            if _may_run(graph, o, name, restrictions, infrastructure.origin)
        )
        for o in range(len(graph.operators))
    )
    left_out = [op.name for op, tiers in zip(graph.operators, allowed, strict=True) if not tiers]
    if left_out:
        rule = "must leave every operator a tier (stays_on_device counts too)"
        raise InvalidInput([Fault.of(f"{_FIELD}.tiers.{name}", rule, []) for name in left_out])
    return allowed


def words(restrictions: Restrictions) -> tuple[str, ...]:
    """Give the restrictions one by one, as sentences without a full stop."""
    told = [
        f"{operator} runs {_choice_words(choice, 'on')}"
        for operator, choice in restrictions.tiers.items()
    ]
    told += [
        f"{operator}.{knob} is {_choice_words(choice, '')}"
        for operator, knobs in restrictions.knobs.items()
        for knob, choice in knobs.items()
    ]
    if restrictions.stays_on_device is not Stays.NOTHING:
        told.append(f"{restrictions.stays_on_device.value} stays on the device")
    return tuple(told)


def _may_run(
    graph: PipelineGraph, o: int, tier: str, restrictions: Restrictions, origin: str | None
) -> bool:
    stays = restrictions.stays_on_device
    takes_input = not graph.parents[o]
    bound = stays is Stays.EVERYTHING or (stays is Stays.INPUT and takes_input)
    choice = restrictions.tiers.get(graph.operators[o].name)
    return (choice is None or choice.allows(tier)) and (not bound or tier == origin)


def _restricted(
    operator: OperatorSpec, choices: Mapping[str, Choice], faults: list[Fault]
) -> OperatorSpec:
    where = f"{_FIELD}.knobs.{operator.name}"
    for knob in choices:
        _check_known(where, knob, [known.name for known in operator.knobs], faults)
    knobs = tuple(
        _narrowed(f"{where}.{knob.name}", knob, choices.get(knob.name), faults)
        for knob in operator.knobs
    )
    return replace(operator, knobs=knobs)


def _narrowed(where: str, knob: Knob, choice: Choice | None, faults: list[Fault]) -> Knob:
    if choice is None:
        return knob
    before = len(faults)
    _check_values(where, choice, knob.values, faults)
    values = tuple(value for value in knob.values if choice.allows(value))
    if not values and len(faults) == before:
        faults.append(Fault.of(where, "must leave a value", []))
    # A fault is raised by the caller: until then the knob is what it was.
    return replace(knob, values=values) if values else knob


def _check_known(where: str, name: str, known: Sequence[str], faults: list[Fault]) -> None:
    if name not in known:
        faults.append(Fault.of(where, f"must be among {', '.join(known) or '(none)'}", name))


def _check_values(
    where: str, choice: Choice, known: Sequence[KnobValue], faults: list[Fault]
) -> None:
    rule = f"must be among {', '.join(map(str, known))}"
    for name, values in (("only", choice.only or ()), ("never", choice.never)):
        faults += [
            Fault.of(f"{where}.{name}", rule, value)
            for value in values
            if not _among(value, known)
        ]


def _among(value: KnobValue, values: Sequence[KnobValue]) -> bool:
    # True == 1 in Python, but they are two knob values.
    return any(v == value and isinstance(v, bool) == isinstance(value, bool) for v in values)


def _typed(values: Sequence[KnobValue]) -> list[object]:
    return [(isinstance(value, bool), value) for value in values]


def _choice_words(choice: Choice, preposition: str) -> str:
    before = f"{preposition} " if preposition else ""
    told = []
    if choice.only is not None:
        told.append(f"only {before}{' or '.join(map(str, choice.only))}")
    if choice.never:
        told.append(f"never {before}{' or '.join(map(str, choice.never))}")
    return ", ".join(told)
