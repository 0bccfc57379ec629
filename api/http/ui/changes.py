"""Changes of a query by pages, each with a confirmation: cancel, undeploy, replan."""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from circinus.api.http.routes.paths import QUERY
from circinus.api.http.routes.service import ServiceOf
from circinus.api.http.ui.frame import Form, framed
from circinus.api.http.ui.sliders import groups, moved, objectives_of
from circinus.api.schemas.explanation import ObjectiveChange, ReplanBody
from circinus.api.schemas.violations import checked
from circinus.api.use_cases.changes import changed_query
from circinus.api.use_cases.queries import undeploy as undeployed
from circinus.api.use_cases.replanning import replan_for_change
from circinus.pipelines.errors import Unavailable

router = APIRouter(prefix="/ui", include_in_schema=False)
_SEE_OTHER = 303


def _back(query_id: str) -> RedirectResponse:
    return RedirectResponse(f"/ui/queries/{query_id}", _SEE_OTHER)


@router.get(f"{QUERY}/cancel")
def may_cancel(query_id: str, service: ServiceOf) -> HTMLResponse:
    """Show the confirmation of cancelling."""
    return _confirmation(service, query_id, "cancel")


@router.post(f"{QUERY}/cancel")
def cancel(query_id: str, service: ServiceOf) -> RedirectResponse:
    """Cancel planning, as `POST /v1/queries/ID:cancel` does."""
    parts = service.parts
    parts.store.request_cancel(query_id, at=parts.clock.timestamp())
    return _back(query_id)


@router.get(f"{QUERY}/undeploy")
def may_undeploy(query_id: str, service: ServiceOf) -> HTMLResponse:
    """Show the confirmation of undeploying."""
    return _confirmation(service, query_id, "undeploy")


@router.post(f"{QUERY}/undeploy")
async def undeploy(query_id: str, service: ServiceOf) -> RedirectResponse:
    """Retire it, as `DELETE /v1/queries/ID/deployment` does."""
    parts = service.parts
    await asyncio.to_thread(undeployed, parts.store, query_id, clock=parts.clock)
    with contextlib.suppress(Unavailable):  # nothing runs then
        await service.deployer.withhold(query_id)
    return _back(query_id)


@router.get(f"{QUERY}/replan")
def may_replan(query_id: str, request: Request, service: ServiceOf) -> HTMLResponse:
    """Show the confirmation of replanning for the objectives set by the sliders."""
    record = service.parts.store.query(query_id)
    there = groups(record.query.slo, service.parts.infrastructure)
    change = objectives_of(moved(there, dict(request.query_params)))
    context = {
        "query_id": query_id,
        "change": change,
        "before": record.query.slo,
        "after": changed_query(record.query, change).slo,
    }
    return framed("replan.html", service, context, section="Queries", events="")


@router.post(f"{QUERY}/replan")
def replan(query_id: str, form: Form, service: ServiceOf) -> RedirectResponse:
    """Plan it for other objectives, as `POST /v1/queries/ID:replan` does."""
    record = service.parts.store.query(query_id)
    wanted = {name: form[name] for name in ObjectiveChange.model_fields if name in form}
    replan_for_change(service.parts, record, checked(ReplanBody, wanted))
    return _back(query_id)


def _confirmation(service: ServiceOf, query_id: str, what: str) -> HTMLResponse:
    record = service.parts.store.query(query_id)
    context = {"query_id": query_id, "phase": record.phase, "what": what}
    return framed("confirm.html", service, context, section="Queries", events="")
