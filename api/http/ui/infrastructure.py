"""What the service plans for: tiers, machines, links; and forms that change what there is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import RedirectResponse, Response

from circinus.api.control.service import Service
from circinus.api.drawing.links import figures, links_svg
from circinus.api.http.pages import page
from circinus.api.http.routes.service import ServiceOf, pipelines
from circinus.api.http.ui import capacity_forms as forms
from circinus.api.http.ui.capacity_forms import CapacityField
from circinus.api.http.ui.frame import Form, framed
from circinus.api.schemas.schedule import PreviewBody, ScheduleView
from circinus.api.schemas.service import infrastructure_view, to_links
from circinus.api.use_cases.capacity import Capacity, require_pools, with_machines
from circinus.api.use_cases.scheduling import preview
from circinus.api.use_cases.views import schedule_view
from circinus.pipelines.errors import InvalidInput, Violation

router = APIRouter(include_in_schema=False)
_PATH = "/ui/infrastructure"
_DONE = {
    "machines": "The machines were changed; the schedule follows within a moment.",
    "nothing": "Nothing was changed: no figure is another one.",
    "links": "The links are imitated so from now on; plans do not hear of it.",
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
    return page("_infrastructure.html", _shown(service))


@router.post(f"{_PATH}/machines")
def set_machines(service: ServiceOf, form: Form) -> Response:
    """Change the machines; where some are taken away, first ask and say who would make way."""
    capacity = service.parts.capacity
    fields = forms.typed(forms.machine_fields(capacity), form)
    try:
        changes = forms.machines_in(fields)
        require_pools(capacity.stated, changes)
    except InvalidInput as error:
        return _page(
            service, machines=forms.marked(fields, error.violations), violations=error.violations
        )
    if "again" in form or not changes:
        return _page(service, machines=fields, done="" if changes else _DONE["nothing"])
    away = forms.taken(changes, capacity)
    if away and form.get("sure") != "yes":
        told = {"away": away, "fields": fields, "then": _then(service, changes)}
        return framed("taking_away.html", service, told, section="Infrastructure")
    capacity.set_machines(changes)
    return RedirectResponse(f"{_PATH}?done=machines", _SEE_OTHER)


@router.post(f"{_PATH}/links")
async def set_links(service: ServiceOf, form: Form) -> Response:
    """Imitate other links."""
    emulation = service.emulation
    fields = forms.typed(forms.link_fields(emulation.now), form)
    try:
        body = forms.links_in(fields, emulation.now)
    except InvalidInput as error:
        links = forms.marked(fields, error.violations)
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
    told = {
        **_shown(service),
        "machines": machines or forms.machine_fields(service.parts.capacity),
        "links": links or forms.link_fields(service.emulation.now),
        "violations": violations,
        "wrong": [each for each in known if each.violations],
        "done": done,
        "pipelines": pipelines(service).items,
    }
    shown = framed("infrastructure.html", service, told, section="Infrastructure")
    shown.status_code = _REFUSED if violations else shown.status_code
    return shown


def _shown(service: Service) -> dict[str, object]:
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
    body = PreviewBody(machines=forms.resolved(changes, capacity))
    found, how_good = preview(service.parts, body)
    return schedule_view(found, with_machines(capacity.now(), body.machines), how_good)
