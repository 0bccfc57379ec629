"""The page of a query: its search, its front, why its plan is what it is, and what would be if."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from circinus.api.control.service import Service
from circinus.api.drawing.front import Against, front_svg
from circinus.api.drawing.search import search_svg
from circinus.api.drawing.timeline import timeline_svg
from circinus.api.http.pages import page
from circinus.api.http.rendered import RenderedQueries
from circinus.api.http.routes.paths import QUERY
from circinus.api.http.routes.service import QueriesOf, ServiceOf
from circinus.api.http.ui.deployed import deployed
from circinus.api.http.ui.events import query_event_table
from circinus.api.http.ui.frame import framed
from circinus.api.http.ui.sliders import Group, groups, moved, what_if_of
from circinus.api.phases import CANCELLABLE, LIVE, REPLANNABLE
from circinus.api.schemas.plans import PlanView, plan_view
from circinus.api.schemas.progress import QueryView, TrialView
from circinus.api.schemas.query import SloRequest
from circinus.api.store.records import NotFound
from circinus.api.text import formats
from circinus.pipelines.errors import CircinusError
from circinus.planner.search.result import TrialState

router = APIRouter(prefix="/ui", include_in_schema=False)
_MOST_CANDIDATES = 10  # candidates, unless all are requested
_Plan = Annotated[str, Query(max_length=100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What every part of the page starts from."""

    service: Service
    rendered: RenderedQueries
    view: QueryView

    @classmethod
    def of(cls, service: Service, rendered: RenderedQueries, query_id: str) -> _Subject:
        return cls(service=service, rendered=rendered, view=rendered.query(query_id).view)

    @property
    def plans(self) -> Sequence[PlanView]:
        parts = self.service.parts
        slo = parts.store.query(self.view.id).query.slo
        stored = parts.store.plans(self.view.id)
        return [plan_view(each.plan, slo, parts.infrastructure) for each in stored]


@router.get(QUERY)
async def query(
    query_id: str, service: ServiceOf, rendered: QueriesOf, plan: _Plan = ""
) -> HTMLResponse:
    """Return the page; NotFound if there is no query of that id."""

    def read() -> tuple[int, dict[str, object]]:
        since = service.parts.store.events.latest()  # before the page's data is read
        subject = _Subject.of(service, rendered, query_id)
        return since, {
            **_summary(subject),
            **_front(subject, every=False),
            **_plan(subject, plan),
            **query_event_table(service.parts.store.events, query_id),
            "groups": _groups(subject),
            "answer": None,
        }

    since, context = await asyncio.to_thread(read)
    context |= await deployed(service, rendered, query_id)
    events = f"/v1/queries/{query_id}/events?after={since}"
    return framed("query.html", service, context, section="Queries", events=events)


@router.get(f"{QUERY}/summary")
def summary(query_id: str, service: ServiceOf, rendered: QueriesOf) -> HTMLResponse:
    """Return its phase, its spending, and its failures."""
    return page("_summary.html", _summary(_Subject.of(service, rendered, query_id)))


def _summary(subject: _Subject) -> dict[str, object]:
    phase = subject.view.phase
    searching = subject.view.search is not None and subject.view.search.ended_at is None
    return {
        "query": subject.view,
        "can_cancel": phase in CANCELLABLE or searching,
        "can_undeploy": phase in LIVE,
        "can_replan": phase in REPLANNABLE,
    }


@router.get(f"{QUERY}/front")
def front(
    query_id: str, service: ServiceOf, rendered: QueriesOf, every: bool = False
) -> HTMLResponse:
    """Return the search, the front and the candidates."""
    subject = _Subject.of(service, rendered, query_id)
    return page("_front.html", _front(subject, every=every))


def _front(subject: _Subject, *, every: bool) -> dict[str, object]:
    view, slo = subject.view, subject.view.request.slo
    plans, trials = subject.plans, subject.service.parts.store.events.trials(view.id)
    rows = candidates(trials, plans, slo, view.plan_id)
    link = f"/ui/queries/{view.id}?plan={{id}}#plan"
    return {
        "query": view,
        "plans": plans,
        "search": search_svg(trials, slo),
        "fronts": [front_svg(plans, trials, slo, view.plan_id, x, link) for x in Against],
        "states": Counter(each.trial.state for each in rows).most_common(),
        "candidates": rows if every else rows[:_MOST_CANDIDATES],
        "all_candidates": len(rows),
        "every": every,
    }


@router.get(f"{QUERY}/plan")
def plan(query_id: str, service: ServiceOf, rendered: QueriesOf, plan: _Plan = "") -> HTMLResponse:
    """Return a plan's timeline and explanation; without an id, of the chosen or cheapest one."""
    return page("_plan.html", _plan(_Subject.of(service, rendered, query_id), plan))


def _plan(subject: _Subject, plan_id: str) -> dict[str, object]:
    view, parts = subject.view, subject.service.parts
    stored = {each.plan.id: each for each in parts.store.plans(view.id)}
    if plan_id and plan_id not in stored:
        raise NotFound("plan", plan_id)
    wanted = plan_id or view.plan_id or next(iter(stored), None)
    context: dict[str, object] = {"query": view, "plan": None, "explanation": None, "unknown": ""}
    if wanted is None or wanted not in stored:
        return context
    record = parts.store.query(view.id)
    context["plan"] = mine = plan_view(stored[wanted].plan, record.query.slo, parts.infrastructure)
    context["number"] = [*stored].index(wanted) + 1
    try:
        explanation = subject.service.answers.explain(stored[wanted])
    except CircinusError as error:  # its measurements or its pipeline are gone
        return context | {"unknown": str(error)}
    drawn = timeline_svg(mine, explanation, view.request.slo.latency_s)
    return context | {"explanation": explanation, "timeline": drawn}


def _groups(subject: _Subject) -> Sequence[Group]:
    parts = subject.service.parts
    return groups(parts.store.query(subject.view.id).query.slo, parts.infrastructure)


@router.get(f"{QUERY}/whatif")
def answered(
    query_id: str, request: Request, service: ServiceOf, rendered: QueriesOf
) -> HTMLResponse:
    """Return what the sliders would do: the answer to a script, else a page with both."""
    subject = _Subject.of(service, rendered, query_id)
    at = moved(_groups(subject), dict(request.query_params))
    context: Mapping[str, object] = {
        "query": subject.view,
        "can_replan": subject.view.phase in REPLANNABLE,
        "groups": at,
        "answer": service.answers.what_if(query_id, what_if_of(at)),
    }
    if "hx-request" in request.headers:
        return page("_answer.html", context)
    return framed("whatif.html", service, context, section="Queries", events="")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTrial:
    """A row of the table."""

    trial: TrialView
    number: int | None  # of its plan on the front; None: it has none there
    why: str  # it is taken, or is not


def candidates(
    trials: Sequence[TrialView], plans: Sequence[PlanView], slo: SloRequest, chosen: str | None
) -> Sequence[JudgedTrial]:
    """Return the candidates, the best first: plans of the front, other plans, then the nearest."""
    numbers: dict[str, int] = {}
    for number, plan in enumerate(plans, start=1):  # a configuration may have several
        numbers.setdefault(_key(plan.configuration), number)
    taken = {_key(plan.configuration) for plan in plans if plan.id == chosen}

    def judged(trial: TrialView) -> JudgedTrial:
        key = _key(trial.configuration)
        if key in taken:
            return JudgedTrial(trial=trial, number=numbers[key], why="the schedule chose its plan")
        if key in numbers:
            return JudgedTrial(trial=trial, number=numbers[key], why="on the front, not chosen")
        return JudgedTrial(trial=trial, number=None, why=_why_not(trial, plans, slo))

    return sorted(map(judged, trials), key=_order)


def _key(configuration: Mapping[str, Mapping[str, object]]) -> str:
    return repr(sorted((o, sorted(knobs.items())) for o, knobs in configuration.items()))


def _order(one: JudgedTrial) -> tuple[bool, int, bool, float, float]:
    trial, accuracy = one.trial, one.trial.accuracy
    feasible = trial.state is TrialState.FEASIBLE
    cost = trial.cost_usd_per_hour if feasible else None
    known = -1.0 if accuracy is None or accuracy.value is None else accuracy.value
    return one.number is None, one.number or 0, not feasible, cost or 0.0, -known


def _why_not(trial: TrialView, plans: Sequence[PlanView], slo: SloRequest) -> str:
    accuracy, latency = formats.accuracy(trial.accuracy), formats.latency(trial.latency_s)
    cost = formats.dollars(trial.cost_usd_per_hour)
    if trial.state is TrialState.FEASIBLE:
        return _beaten(trial, plans)
    if slo.latency_s is None:  # then it is for the machines that are too few for the throughput
        late = "machines do not hold the copies that the throughput needs"
    else:
        bound = formats.seconds(slo.latency_s)
        late = f"{latency} where it is fastest, at most {bound} asked"
    most = formats.dollars(slo.cost_usd_per_hour)
    return {
        TrialState.INACCURATE: f"accuracy {accuracy}, at least {slo.accuracy:g} asked",
        TrialState.LATE: late,
        TrialState.DEAR: f"{cost}, at most {most} asked",
        TrialState.UNDECIDED: f"accuracy {accuracy} so far does not tell about {slo.accuracy:g}",
        TrialState.FAILED: "an operator failed",
    }[trial.state]


def _beaten(trial: TrialView, plans: Sequence[PlanView]) -> str:
    if not plans:
        return "a plan, while the search goes on"
    accuracy = None if trial.accuracy is None else trial.accuracy.value
    for number, plan in enumerate(plans, start=1):
        better = (plan.accuracy.value or 0.0) - (accuracy or 0.0)
        less = (trial.cost_usd_per_hour or 0.0) - plan.cost_usd_per_hour
        if better >= 0 and less >= 0:
            gains = [
                *([f"{better:.3g} more accurate"] if better > 0 else []),
                *([f"{formats.dollars(less)} cheaper"] if less > 0 else []),
            ]
            return f"plan {number} is {' and '.join(gains) or 'as good'}"
    return "a plan, but none that the front needs"
