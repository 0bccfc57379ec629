"""The schedule: machines filled with plans, who is served, who waits and why, who made way."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from circinus.api.drawing.machines import machines_svg, swatch_svg
from circinus.api.http.pages import page
from circinus.api.http.routes.service import RenderedSchedule, ScheduleOf, ServiceOf
from circinus.api.http.ui.frame import framed
from circinus.api.schemas.service import infrastructure_view
from circinus.api.text.renting import rent_lines

router = APIRouter(include_in_schema=False)
_MOST_ROWS = 250
_NARROW = 360  # pixels of the drawing on a phone


@router.get("/ui/schedule")
async def schedule(service: ServiceOf, rendered: ScheduleOf) -> HTMLResponse:
    """Return the page."""
    context = await _context(rendered)
    return await asyncio.to_thread(framed, "schedule.html", service, context, section="Schedule")


@router.get("/ui/schedule/now")
async def part(rendered: ScheduleOf) -> HTMLResponse:
    """Return the part of the page that changes by itself."""
    return await asyncio.to_thread(page, "_schedule.html", await _context(rendered))


async def _context(rendered: RenderedSchedule) -> dict[str, object]:
    view = await rendered.observed()
    return {
        "schedule": view,
        # As templates are rendered: in the thread that does it.
        "infrastructure": lambda: infrastructure_view(rendered.service.parts.capacity.now()),
        "machines_svg": machines_svg,
        "rent_lines": rent_lines,
        "swatch_svg": swatch_svg,
        "narrow": _NARROW,
        "most": _MOST_ROWS,
    }
