"""The infrastructure of the service: tiers, machines, links; and forms that change it.

A form changes only the edited fields. Each field carries its first value as `was.NAME`, so that
one user's change does not undo what others changed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import RedirectResponse, Response

from circinus.api.control.service import Service
from circinus.api.drawing.links import figures, links_svg
from circinus.api.http.pages import page
from circinus.api.http.routes.service import ServiceOf, pipelines
from circinus.api.http.ui.frame import Form, framed
from circinus.api.schemas.base import BYTES_PER_MBIT
from circinus.api.schemas.schedule import PreviewBody, ScheduleView
from circinus.api.schemas.service import (
    EmulationBody,
    LinkBody,
    MachinesBody,
    infrastructure_view,
    to_links,
)
from circinus.api.schemas.violations import checked
from circinus.api.use_cases.capacity import Capacity, require_pools, with_machines
from circinus.api.use_cases.scheduling import preview
from circinus.api.use_cases.views import schedule_view
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier

router = APIRouter(include_in_schema=False)
_PATH = "/ui/infrastructure"
_DONE = {
    "machines": "The machines were changed; the schedule follows within a moment.",
    "nothing": "Nothing was changed: no figure is another one.",
    "links": "The links are emulated so from now on; plans do not hear of it.",
}
_SEE_OTHER, _REFUSED = 303, 422


@router.get(_PATH)
def infrastructure(
    service: ServiceOf, done: Annotated[str, Query(max_length=20)] = ""
) -> Response:
    """Return the page; `done` is what was changed."""
    return _page(service, done=_DONE.get(done, ""))


@router.get(f"{_PATH}/now")
def part(service: ServiceOf) -> Response:
    """Return the part of the page that changes by itself."""
    return page("_infrastructure.html", _context(service))


@router.post(f"{_PATH}/machines")
def set_machines(service: ServiceOf, form: Form) -> Response:
    """Change the machines; before removing some, confirm with the queries it would displace."""
    capacity = service.parts.capacity
    fields = typed(machine_fields(capacity), form)
    try:
        changes = machines_in(fields)
        require_pools(capacity.stated, changes)
    except InvalidInput as error:
        return _page(
            service, machines=marked(fields, error.violations), violations=error.violations
        )
    if "again" in form or not changes:
        return _page(service, machines=fields, done="" if changes else _DONE["nothing"])
    away = taken(changes, capacity)
    if away and form.get("sure") != "yes":
        context = {"away": away, "fields": fields, "then": _then(service, changes)}
        return framed("taking_away.html", service, context, section="Infrastructure")
    capacity.set_machines(changes)
    return RedirectResponse(f"{_PATH}?done=machines", _SEE_OTHER)


@router.post(f"{_PATH}/links")
async def set_links(service: ServiceOf, form: Form) -> Response:
    """Emulate other links."""
    emulation = service.emulation
    fields = typed(link_fields(emulation.now), form)
    try:
        body = links_in(fields, emulation.now)
    except InvalidInput as error:
        links = marked(fields, error.violations)
        return await asyncio.to_thread(_page, service, links=links, violations=error.violations)
    if body is None:
        return RedirectResponse(f"{_PATH}?done=nothing", _SEE_OTHER)
    await emulation.set_links(to_links(body))
    return RedirectResponse(f"{_PATH}?done=links", _SEE_OTHER)


def _page(
    service: Service,
    *,
    machines: Sequence[CapacityField] | None = None,
    links: Sequence[CapacityField] | None = None,
    violations: Sequence[Violation] = (),
    done: str = "",
) -> Response:
    """Return the page; with fields as they were typed, where they were."""
    known = [*(machines or ()), *(links or ())]
    context = {
        **_context(service),
        "machines": machines or machine_fields(service.parts.capacity),
        "links": links or link_fields(service.emulation.now),
        "violations": violations,
        "wrong": [each for each in known if each.violations],
        "done": done,
        "pipelines": pipelines(service).items,
    }
    response = framed("infrastructure.html", service, context, section="Infrastructure")
    response.status_code = _REFUSED if violations else response.status_code
    return response


def _context(service: Service) -> dict[str, object]:
    capacity = service.parts.capacity
    now, stated = capacity.now(), capacity.stated
    imitated = infrastructure_view(service.emulation.now).links
    return {
        "infrastructure": infrastructure_view(now),
        "stated": {name: p.machines for t in stated.tiers for name, p in t.pools.items()},
        "imitated": {each.between: each for each in imitated},
        "links_svg": links_svg,
        "figures": figures,
    }


def _then(service: Service, changes: Mapping[str, int | None]) -> ScheduleView:
    """Return the schedule that changes would lead to."""
    capacity: Capacity = service.parts.capacity
    body = PreviewBody(machines=resolved(changes, capacity))
    schedule, how_good = preview(service.parts, body)
    return schedule_view(schedule, with_machines(capacity.now(), body.machines), how_good)


_MACHINES = "machines."


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityField:
    """Return the text of a field."""

    name: str  # also the path of what is wrong with it
    label: str
    value: str  # as it was typed, else as it is
    hint: str
    was: str  # what it showed at first
    violations: Sequence[Violation] = ()

    @property
    def touched(self) -> bool:
        """Return whether it was edited."""
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
    """Return changes with the stated number in place of None."""
    stated = _pools(capacity.stated)
    return {n: stated[n].machines if count is None else count for n, count in changes.items()}


def link_fields(imitated: Infrastructure) -> list[CapacityField]:
    """Return fields for the bandwidth and the delay of every emulated link."""
    return [field for link in _emulated(imitated) for field in _fields_of(link)]


def links_in(fields: Sequence[CapacityField], imitated: Infrastructure) -> EmulationBody | None:
    """Return the links that were touched as they are wanted; None: none was.

    InvalidInput with all violations, each at its field.
    """
    by_name = {each.name: each for each in fields}
    bodies: list[LinkBody] = []
    violations: list[Violation] = []
    for link in _emulated(imitated):
        name = "-".join(link.between)
        mine = {of: by_name[f"{name}.{of}"] for of in ("bandwidth_mbit_per_s", "delay_s")}
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
