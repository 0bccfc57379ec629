"""Tables of plans, queries, schedules and deployments; `tiers` has those of infrastructures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.text import Text

from circinus.api.phases import QueryPhase
from circinus.api.schemas.deployments import DeploymentView, InstanceView
from circinus.api.schemas.explanation import ExplanationView, WhatIfView
from circinus.api.schemas.plans import PlanView
from circinus.api.schemas.progress import ProgressView, QueryView, SearchView, ShortfallView
from circinus.api.schemas.schedule import DisplacedView, ScheduleView, TierUse
from circinus.api.schemas.service import TierView
from circinus.api.text import formats
from circinus.api.text.renting import rent_lines
from circinus.api.text.stacking import Stacking

Cells = Sequence[RenderableType]

_LEAST_WAIT_S = 1.0  # seconds of waiting that are printed while a query is planned
_PHASE_STYLES = {
    QueryPhase.SERVING: "green",
    QueryPhase.INFEASIBLE: "yellow",
    QueryPhase.EXHAUSTED: "yellow",
    QueryPhase.FAILED: "red",
}


def table(
    title: str | None, *columns: str, right: Collection[int] = (), rows: Iterable[Cells]
) -> Stacking:
    """Return a table in house style; `right` are the columns of figures.

    Text in cells is no markup on the consoles of `screen`.
    """
    made = Stacking(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def plans_table(
    plans: Sequence[PlanView],
    *,
    title: str = "Plans",
    chosen: str | None = None,
    most: int | None = None,
) -> RenderableType:
    """Return the plans, cheapest first, then where each runs and how it is configured.

    The chosen one is marked. Unless `most` is None, the table has at most so many besides it, and
    only its configuration, or the first one's.
    """
    if not plans:
        return f"{title}: none"
    names = {plan.id: f"{plan.id} *" if plan.id == chosen else plan.id for plan in plans}
    names |= {plan.id: f"{plan.id} (superseded)" for plan in plans if plan.superseded}
    items = [plan for i, plan in enumerate(plans) if most is None or i < most or plan.id == chosen]
    rows = (row for plan in items for row in _plan_rows(plan, names[plan.id]))
    made = table(title, "plan", "accuracy", "latency", "cost", "SLOs", right=[3], rows=rows)
    detailed = (
        plans if most is None else [plan for plan in plans if plan.id == chosen] or plans[:1]
    )
    details = Stacking.grid(padding=(0, 2), expand=False)
    for plan in detailed:
        details.add_row("", names[plan.id], formats.where(plan))
        details.add_row("", "", Text(formats.settings(plan.configuration), style="dim"))
        for name, used in () if plan.calls is None else plan.calls.per_request.items():
            details.add_row("", "", f"{name}: {formats.usage(used)} a request")
    inputs = sorted({plan.accuracy.inputs for plan in plans})
    span = f"{inputs[0]}" if len(inputs) == 1 else f"{inputs[0]} to {inputs[-1]}"
    confidence = f"{plans[0].accuracy.confidence:.0%} confidence interval"
    notes = [f"  In brackets: {confidence}, over {span} input{'' if inputs[-1] == 1 else 's'}."]
    notes += _ahead_notes(plans[0])
    if hidden := len(plans) - len(items):
        notes.append(f"  {hidden} more plans are not shown.")
    if emulated := sorted({tier for plan in plans for tier in plan.emulated}):
        notes.append(f"  Emulated by waiting: the speed of {', '.join(emulated)}.")
    notes += [f"  {words}" for plan in items if (words := formats.repriced(plan))]
    if chosen in names:
        notes.append("  * the plan that the schedule chose.")
    return Group(made, *notes, details)


def _plan_rows(plan: PlanView, name: str) -> Iterator[Sequence[str]]:
    figures = formats.accuracy(plan.accuracy), formats.latency(plan.latency_s)
    yield name, *figures, formats.cost(plan), formats.states(plan)
    if (ahead := plan.future) is not None:
        figures = formats.accuracy(ahead.accuracy), formats.latency(ahead.latency_s)
        yield "  future inputs", *figures, "", formats.states(ahead)


def _ahead_notes(plan: PlanView) -> Iterator[str]:
    """Yield what the two lines of a plan mean, and how many examples would show the second."""
    if plan.future is None:
        return
    yield "  First line: on the examples. Second: on future inputs of the same source, corrected"
    yield "  for picking among configurations."
    if (needed := plan.future.examples_needed) is not None:
        yield f"  About {needed} examples would show it for future inputs."


def shortfall_text(shortfall: ShortfallView) -> RenderableType:
    """Return the binding objectives and the closest configuration."""
    closest, binding = shortfall.closest, ", ".join(shortfall.binding)
    named = [Text(f"Binding: {binding}", style="bold")] if binding else []
    nearest = [] if closest is None else [plans_table([closest], title="Closest measured plan")]
    return Group(*named, shortfall.sentence, *nearest)


def explanation_parts(explanation: ExplanationView) -> Iterator[RenderableType]:
    """Yield why a plan is what it is: its operators, and what was ruled out."""
    plan, ruled_out = explanation.plan, explanation.ruled_out
    yield (
        f"{plan.id}: {formats.where(plan)}, {formats.cost(plan)}, "
        f"{formats.latency(plan.latency_s)}"
    )
    yield f"planned by {formats.planned_by(explanation.planning)}"
    operators = (
        (
            part.operator,
            part.tier,
            f"{part.share:g}",
            formats.seconds(part.seconds),
            formats.seconds(part.transfer_s),
            formats.dollars(part.cost_usd_per_hour),
            " ".join(f"{knob}={value}" for knob, value in part.knobs.items()),
        )
        for part in explanation.operators
    )
    columns = ("operator", "tier", "share", "takes", "data arrives in", "costs", "knobs")
    yield table("Operators", *columns, right=[2, 3, 4, 5], rows=operators)
    if explanation.alternatives:
        rows: Iterable[Cells] = (
            (other.operator, other.tier, "yes" if other.possible else "no", other.because)
            for other in explanation.alternatives
        )
        yield table("Elsewhere", "operator", "tier", "possible", "because", rows=rows)
    if ruled_out:
        rows = (
            (each.by, str(each.configurations), each.nearest) for each in explanation.ruled_out
        )
        yield table("Ruled out", "by", "configurations", "nearest", right=[1], rows=rows)


def what_if_parts(what_if: WhatIfView) -> Iterator[RenderableType]:
    """Yield what a change of circumstances would do."""
    yield what_if.words
    if what_if.break_even is not None:
        yield what_if.break_even.words
    if what_if.after:
        yield plans_table(what_if.after, title="Plans as they would be", most=5)
    if what_if.shortfall is not None:
        yield shortfall_text(what_if.shortfall)


def queries_table(
    queries: Sequence[QueryView], ahead: Mapping[str, int] | None = None
) -> RenderableType:
    """Return queries, newest first, a line each where they are wide enough.

    `ahead`: how many are planned before those that are queued.
    """
    if not queries:
        return "No queries."
    owned = any(query.request.tenant or query.request.priority for query in queries)
    columns = ["query", "pipeline", "phase", "plan", "spent", "objectives", "submitted (UTC)"]
    columns += ["tenant", "priority"] if owned else []
    rows = (
        (
            query.id,
            query.request.pipeline,
            _phase_text(query.phase),
            _plan_so_far(query, (ahead or {}).get(query.id)),
            formats.seconds(None if query.progress is None else query.progress.spent_s),
            formats.bounds(query.request),
            query.submitted_at.strftime("%m-%d %H:%M"),
            query.request.tenant,
            str(query.request.priority),
        )[: len(columns)]
        for query in queries
    )
    made = table("Queries", *columns, right=[4, 8], rows=rows)
    made.optional = (6, 8, 7, 5) if owned else (6, 5)
    return made


def _plan_so_far(query: QueryView, ahead: int | None) -> str:
    """Return the plan that was chosen, else the best so far, else the place in the queue."""
    if query.phase is QueryPhase.QUEUED and ahead is not None:
        return formats.place(ahead)
    best = None if query.progress is None else query.progress.best
    return query.plan_id or (formats.UNKNOWN if best is None else best.id)


def _phase_text(phase: QueryPhase) -> Text:
    return Text(phase.value, style=_PHASE_STYLES.get(phase, ""))


def query_text(query: QueryView) -> RenderableType:
    """Return everything about one query."""
    request, search = query.request, query.search
    entries: list[tuple[str, RenderableType | None]] = [
        ("phase", _phase_text(query.phase)),
        ("pipeline", request.pipeline),
        ("objectives", formats.objectives(request)),
        ("planned by", formats.planned_by(query.planning)),
        ("submitted", formats.moment(query.submitted_at)),
        ("tenant", request.tenant),
        ("priority", str(request.priority or "")),
        ("outcome", query.outcome),
        ("stopped because", query.stopped_because),
        ("plan", query.plan_id),
        ("message", query.message),
        ("progress", None if query.progress is None else progress_line(query)),
        *(("replanned", f"{formats.moment(each.at)}: {each.why}") for each in query.replanned),
        ("searched on", None if search is None else _search_words(search)),
        *(("displaced", line) for line in displaced_lines(query.displaced)),
    ]
    rows = ((name, value) for name, value in entries if value)
    made = table(f"Query {query.id}", "", "", rows=rows)
    made.show_header = False
    parts: list[RenderableType] = [made]
    if query.progress is not None:
        parts += formats.failure_lines(query.progress)
    if query.shortfall is not None:
        parts.append(shortfall_text(query.shortfall))
    if query.deployment is not None:
        parts.append(deployment_table(query.deployment))
    parts += [formats.billed(bill) for bill in query.billed]
    return Group(*parts)


class BestPlan:
    """The best plan of the latest line on a search: it may not hold out."""

    def __init__(self) -> None:
        self.words = ""

    def note(self, progress: ProgressView) -> str:
        """Return the best plan in words; for one that no longer holds, what it was."""
        if (plan := progress.best) is not None:
            accuracy = f"{formats.fraction(plan.accuracy.value)}{plan.accuracy.over}"
            latency = formats.seconds(plan.latency_s.value)
            self.words = " ".join((accuracy, latency, formats.cost(plan)))
            return self.words
        if self.words:
            return f"none any more: more inputs spoke against {self.words}"
        return "none feasible yet"


def progress_line(query: QueryView, best: BestPlan | None = None) -> str:
    """Return phase, spend, time left and the best plan so far in one line."""
    if query.progress is None:
        return query.phase.value
    words = progress_words(query.progress, best)
    return words if query.phase is QueryPhase.PLANNING else f"{query.phase.value}: {words}"


def _search_words(search: SearchView) -> str:
    """Return since when and why it is searched on, and how far that is or how it ended."""
    words = f"since {formats.moment(search.since)}: {search.why}"
    if search.ended_at is not None:
        return f"{words}; no plan found by {formats.moment(search.ended_at)}: {search.ended}"
    if search.progress is None:
        return f"{words}; it has not begun"
    return f"{words}; {progress_words(search.progress)}"


def progress_words(progress: ProgressView, best: BestPlan | None = None) -> str:
    """Return how far planning is in one line; `best` of the lines before."""
    left_s = formats.left_s(progress)
    words = (best or BestPlan()).note(progress)
    left = "" if left_s is None else f", {left_s:.1f} s left"
    spent = f"{progress.measured} measured, {progress.spent_s:.1f} s spent"
    each = [
        (what, waited_s) for what, waited_s in progress.waited.items() if waited_s >= _LEAST_WAIT_S
    ]
    waited = "".join(f", {waited_s:.1f} s waited for {what}" for what, waited_s in each)
    return f"{progress.phase}, {spent}{waited}{left}, best {words}"


def machines_of(tier: TierView | TierUse) -> str:
    """Return how many machines a tier has."""
    return f"{tier.machines} each" if tier.dedicated else str(tier.machines)


def marks_of(tier: TierView | TierUse) -> str:
    """Return what is special about a tier."""
    return ", ".join(name for name in ("dedicated", "emulated") if getattr(tier, name))


def schedule_table(
    schedule: ScheduleView, names: Mapping[str, str] | None = None
) -> RenderableType:
    """Return who runs where, how full the tiers are, and who waits; `names`: of queries, by id."""
    called = names or {}
    parts: list[RenderableType] = ["Nothing scheduled."]
    if schedule.assignments:
        rows: Iterable[Cells] = (
            (
                called.get(each.query_id, each.query_id),
                each.plan_id,
                formats.slices(each),
                formats.last_minute(each.lately),
            )
            for each in schedule.assignments
        )
        columns = ("query", "plan", "tier / machine: share", "last minute")
        parts = [table("Schedule", *columns, rows=rows)]
    if schedule.waiting:
        rows = ((called.get(q.query_id, q.query_id), q.reason) for q in schedule.waiting)
        parts.append(table("Waiting", "query", "why", rows=rows))
    rows = (
        (use.tier, machines_of(use), f"{use.used:.2f}", f"{use.utilisation:.0%}", marks_of(use))
        for use in schedule.tiers
    )
    of_tiers = ("tier", "machines", "in use", "utilisation", "")
    parts.append(table("Tiers", *of_tiers, right=[1, 2, 3], rows=rows))
    if schedule.endpoints:
        rows = (
            (each.endpoint, f"{each.per_minute:,} {each.kind}/min", f"{each.used:.0%}")
            for each in schedule.endpoints
        )
        parts.append(table("Endpoints", "endpoint", "at most", "needed", right=[2], rows=rows))
    if (goodput := formats.goodput(schedule)) is not None:
        parts.append(f"  {goodput}")
    parts += [f"  {line}" for line in rent_lines(schedule)]
    return Group(*parts, *displaced_lines(schedule.displaced))


def displaced_lines(displaced: Iterable[DisplacedView]) -> list[str]:
    """Return the displacements with their queries and times."""
    return [
        entry.sentence if entry.at is None else f"{formats.moment(entry.at)}: {entry.sentence}"
        for entry in displaced
    ]


def deployment_table(deployment: DeploymentView) -> RenderableType:
    """Return the instances of a deployment and the latencies of its requests."""
    rows = (
        (
            _tier_of(instance),
            ", ".join(instance.operators),
            formats.UNKNOWN if instance.pid is None else str(instance.pid),
            formats.size_of(instance),
            instance.enforcement,
        )
        for instance in deployment.instances
    )
    columns = ("tier", "operators", "process", "share", "enforced by")
    made = table(f"Deployment ({deployment.phase})", *columns, right=[2, 3], rows=rows)
    requests = deployment.observed
    latencies = {
        "mean": requests.mean_s,
        "p50": requests.p50_s,
        "p90": requests.p90_s,
        "p99": requests.p99_s,
    }
    figures = ", ".join(
        f"{name} {formats.seconds(s)}" for name, s in latencies.items() if s is not None
    )
    counts = f"  Requests: {requests.count} answered, {requests.failed} failed"
    lines = [f"{counts}; latency {figures}." if figures else f"{counts}."]
    shorter = (
        0,
        *(each.requests for each in deployment.lately),
    )  # spans without news are left out
    lines += [
        f"  {formats.span(each)}"
        for each, known in zip(deployment.lately, shorter, strict=False)
        if each.requests > known
    ]
    lines += [
        f"  {_tier_of(each)}: started again {each.restarts} times, last as it ended: {each.ended}."
        for each in deployment.instances
        if each.restarts
    ]
    if (objectives := deployment.objectives) is not None:
        lines.append(f"  Objectives {objectives.state}: {objectives.sentence}.")
    return Group(made, *lines)


def _tier_of(instance: InstanceView) -> str:
    name = "/".join(filter(None, (instance.tier, instance.machine_type)))
    return f"{name} (emulated)" if instance.emulated else name
