"""The forms that change machines and imitated links: their fields, and what they ask for.

Only what somebody touched is changed. A field says what it showed at first, as `was.NAME`: who
changes one thing does not undo what others changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from circinus.api.schemas.base import BYTES_PER_MBIT
from circinus.api.schemas.service import EmulationBody, LinkBody, MachinesBody
from circinus.api.schemas.violations import checked
from circinus.api.use_cases.capacity import Capacity
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier

_MACHINES = "machines."


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityField:
    """What is shown of a field."""

    name: str  # also the path of what is wrong with it
    label: str
    value: str  # as it was typed, else as it is
    hint: str
    was: str  # what it showed at first
    violations: Sequence[Violation] = ()

    @property
    def touched(self) -> bool:
        """Whether somebody typed something else into it."""
        return self.value != self.was


def typed(fields: Iterable[CapacityField], form: Mapping[str, str]) -> list[CapacityField]:
    """Return fields with what a form has of them."""
    return [
        replace(
            each,
            value=form.get(each.name, each.value),
            was=form.get(f"was.{each.name}", each.was),
        )
        for each in fields
    ]


def marked(
    fields: Iterable[CapacityField], violations: Sequence[Violation]
) -> list[CapacityField]:
    """Return fields with what is wrong with each."""
    return [
        replace(each, violations=[f for f in violations if f.field == each.name])
        for each in fields
    ]


def machine_fields(capacity: Capacity) -> list[CapacityField]:
    """Return a field for each shared tier, or for each type of its machines."""
    now, stated = _pools(capacity.now()), _pools(capacity.stated)
    return [
        CapacityField(
            name=_MACHINES + name,
            label=f"Machines of {name}",
            value=str(pool.machines),
            hint=f"{stated[name].machines} are stated; empty: as stated",
            was=str(pool.machines),
        )
        for name, pool in now.items()
    ]


def machines_in(fields: Sequence[CapacityField]) -> dict[str, int | None]:
    """Return the typed changes, see `Capacity.set_machines`; InvalidInput where wrong."""
    changes = {
        each.name.removeprefix(_MACHINES): _number(each.value) if each.value else None
        for each in fields
        if each.touched
    }
    return dict(checked(MachinesBody, {"machines": changes}).machines) if changes else {}


def taken(changes: Mapping[str, int | None], capacity: Capacity) -> dict[str, tuple[int, int]]:
    """Return where machines are taken away: name -> how many there are, and would be."""
    now, stated = _pools(capacity.now()), _pools(capacity.stated)
    then = {
        name: stated[name].machines if count is None else count
        for name, count in changes.items()
        if name in now
    }
    return {
        name: (now[name].machines, count)
        for name, count in then.items()
        if count < now[name].machines
    }


def resolved(changes: Mapping[str, int | None], capacity: Capacity) -> dict[str, int]:
    """Return changes with the number that is stated where they say so."""
    stated = _pools(capacity.stated)
    return {n: stated[n].machines if count is None else count for n, count in changes.items()}


def link_fields(imitated: Infrastructure) -> list[CapacityField]:
    """Return fields for the bandwidth and the delay of every emulated link."""
    return [field for link in _emulated(imitated) for field in _fields_of(link)]


def links_in(fields: Sequence[CapacityField], imitated: Infrastructure) -> EmulationBody | None:
    """Return the links that were touched as they are wanted; None: none was.

    InvalidInput with all violations, each at its field.
    """
    told = {each.name: each for each in fields}
    bodies: list[LinkBody] = []
    violations: list[Violation] = []
    for link in _emulated(imitated):
        name = "-".join(link.between)
        mine = {of: told[f"{name}.{of}"] for of in ("bandwidth_mbit_per_s", "delay_s")}
        if not any(each.touched for each in mine.values()):
            continue
        figures = {of: _number(each.value) for of, each in mine.items()}
        try:
            bodies.append(checked(LinkBody, {"between": list(link.between), **figures}))
        except InvalidInput as error:
            violations += [
                Violation(f"{name}.{f.field}", f.rule, f.value) for f in error.violations
            ]
    if violations:
        raise InvalidInput(violations)
    return EmulationBody(links=bodies) if bodies else None


def _fields_of(link: Link) -> Iterator[CapacityField]:
    name, ends = "-".join(link.between), " - ".join(link.between)
    figures = {
        "bandwidth_mbit_per_s": (link.bandwidth_bytes_per_s / BYTES_PER_MBIT, "Mbit/s"),
        "delay_s": (link.delay_s, "seconds"),
    }
    for of, (value, unit) in figures.items():
        what = of.partition("_")[0]
        yield CapacityField(
            name=f"{name}.{of}",
            label=f"{ends}, {what}",
            value=f"{value:.10g}",
            hint=unit,
            was=f"{value:.10g}",
        )


def _emulated(infrastructure: Infrastructure) -> list[Link]:
    return [link for link in infrastructure.links if link.emulated]


def _pools(infrastructure: Infrastructure) -> dict[str, Tier]:
    shared = (tier for tier in infrastructure.tiers if not tier.dedicated)
    return {name: pool for tier in shared for name, pool in tier.pools.items()}


def _number(text: str) -> object:
    """Return a number that was typed; text that is none stays text, for a schema to refuse."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
