"""Tables of plans, queries, schedules and deployments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.phases import Phase
from api.rendering import formats
from api.schemas import (
    DeploymentView,
    DisplacedView,
    InfrastructureView,
    PlanView,
    ProgressView,
    QueryView,
    ScheduleView,
    SearchView,
    ShortfallView,
)
from pipelines.infrastructure import Infrastructure

_PHASE_STYLES = {
    Phase.SERVING: "green",
    Phase.INFEASIBLE: "yellow",
    Phase.EXHAUSTED: "yellow",
    Phase.FAILED: "red",
}


def table(title: str, *columns: str, right: Iterable[int] = ()) -> Table:
    """Give an empty table in house style; `right` are the columns of figures."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    figures = set(right)
    for position, column in enumerate(columns):
        made.add_column(
            column, justify="right" if position in figures else "left", overflow="fold"
        )
    return made


def plans_table(
    plans: Sequence[PlanView],
    *,
    title: str = "Plans",
    chosen: str | None = None,
    most: int | None = None,
) -> RenderableType:
    """Give the plans, cheapest first, then where each runs and how it is configured.

    Args:
        plans: To show.
        title: Above them.
        chosen: The plan to mark.
        most: Show no more than this many besides the marked one, and only the marked (or first)
            one's configuration; None: all.
    """
    if not plans:
        return Text(f"{title}: none")
    made = table(title, "plan", "accuracy", "latency", "cost", "SLOs", right=[3])
    shown = [plan for i, plan in enumerate(plans) if most is None or i < most or plan.id == chosen]
    for plan in shown:
        made.add_row(
            Text(_name(plan, chosen)),
            formats.accuracy(plan.accuracy),
            formats.latency(plan.latency_s),
            formats.dollars(plan.cost_usd_per_hour),
            formats.states(plan),
        )
    told = plans if most is None else [plan for plan in plans if plan.id == chosen] or plans[:1]
    details = Table.grid(padding=(0, 2), expand=False)
    for plan in told:
        details.add_row("", Text(_name(plan, chosen)), Text(formats.where(plan)))
        details.add_row("", "", Text(formats.configuration(plan), style="dim"))
    hidden = len(plans) - len(shown)
    return Group(made, *_notes(plans, hidden=hidden, chosen=chosen), details)


def _name(plan: PlanView, chosen: str | None) -> str:
    return f"{plan.id} *" if plan.id == chosen else plan.id


def _notes(plans: Sequence[PlanView], *, hidden: int, chosen: str | None) -> list[Text]:
    confidence = plans[0].accuracy.confidence
    inputs = sorted({plan.accuracy.inputs for plan in plans})
    span = f"{inputs[0]}" if len(inputs) == 1 else f"{inputs[0]} to {inputs[-1]}"
    notes = [f"In brackets: {confidence:.0%} confidence interval, over {span} inputs."]
    if hidden:
        notes.append(f"{hidden} more plans are not shown.")
    emulated = sorted({tier for plan in plans for tier in plan.emulated})
    if emulated:
        notes.append(f"Emulated by waiting: the speed of {', '.join(emulated)}.")
    if any(plan.id == chosen for plan in plans):
        notes.append("* the plan that the schedule chose.")
    return [Text(f"  {note}") for note in notes]


def shortfall_text(shortfall: ShortfallView) -> RenderableType:
    """Give what binds and what comes closest."""
    binding = Text(f"Binding: {', '.join(shortfall.binding) or formats.UNKNOWN}", style="bold")
    lines = [binding, Text(shortfall.sentence)]
    if shortfall.closest is None:
        return Group(*lines)
    return Group(*lines, plans_table([shortfall.closest], title="Closest measured plan"))


def queries_table(queries: Iterable[QueryView]) -> RenderableType:
    """Give queries, newest first."""
    queries = list(queries)
    owned = any(query.request.tenant or query.request.priority for query in queries)
    more = ("tenant", "priority") if owned else ()
    columns = ("query", "pipeline", "phase", "objectives", "submitted (UTC)", *more)
    made = table("Queries", *columns, right=[6])
    for query in queries:
        whose = (Text(query.request.tenant), str(query.request.priority)) if owned else ()
        made.add_row(
            Text(query.id),
            Text(query.request.pipeline),
            phase_text(query.phase),
            formats.objectives(query.request),
            query.submitted_at.strftime("%Y-%m-%d %H:%M:%S"),
            *whose,
        )
    return made if made.row_count else Text("No queries.")


def phase_text(phase: Phase) -> Text:
    """Give a phase in its colour."""
    return Text(phase.value, style=_PHASE_STYLES.get(phase, ""))


def query_text(query: QueryView) -> RenderableType:
    """Give everything about one query."""
    rows = table(f"Query {query.id}", "", "")
    rows.show_header = False
    rows.add_row("phase", phase_text(query.phase))
    rows.add_row("pipeline", Text(query.request.pipeline))
    rows.add_row("objectives", formats.objectives(query.request))
    rows.add_row("planned by", formats.planned_by(query.planning))
    rows.add_row("submitted", formats.moment(query.submitted_at))
    told = [
        ("tenant", query.request.tenant),
        ("priority", str(query.request.priority or "")),
        ("outcome", query.outcome),
        ("stopped because", query.stopped_because),
        ("plan", query.plan_id),
        ("message", query.message),
    ]
    for name, value in told:
        if value:
            rows.add_row(name, Text(value))
    if query.progress is not None:
        rows.add_row("progress", Text(progress_line(query)))
    for replanned in query.replanned:
        rows.add_row("replanned", Text(f"{formats.moment(replanned.at)}: {replanned.why}"))
    if query.search is not None:
        rows.add_row("searched on", Text(_search_words(query.search)))
    for line in displaced_lines(query.displaced):
        rows.add_row("displaced", Text(line))
    parts: list[RenderableType] = [rows]
    if query.shortfall is not None:
        parts.append(shortfall_text(query.shortfall))
    if query.deployment is not None:
        parts.append(deployment_table(query.deployment))
    return Group(*parts)


def progress_line(query: QueryView) -> str:
    """Give phase, spend, time left and the best plan so far in one line."""
    if query.progress is None:
        return query.phase.value
    if query.phase is Phase.PLANNING:
        return progress_words(query.progress)
    return f"{query.phase.value}: {progress_words(query.progress)}"


def _search_words(search: SearchView) -> str:
    """Give since when and why it is searched on, and how far that is or how it ended."""
    words = f"since {formats.moment(search.since)}: {search.why}"
    if search.ended_at is not None:
        return f"{words}; no plan found by {formats.moment(search.ended_at)}: {search.ended}"
    if search.progress is None:
        return f"{words}; it has not begun"
    return f"{words}; {progress_words(search.progress)}"


def progress_words(progress: ProgressView) -> str:
    """Give how far planning is in one line."""
    left_s = [
        left for left in (progress.profiling_left_s, progress.time_left_s) if left is not None
    ]
    parts = [
        progress.phase,
        f"{progress.measured} measured",
        f"{seconds_spent(progress.spent_s)} spent",
        *([f"{seconds_spent(min(left_s))} left"] if left_s else []),
        f"best {best_so_far(progress.best)}",
    ]
    return ", ".join(parts)


def seconds_spent(value: float) -> str:
    """Give operator seconds."""
    return f"{value:.1f} s"


def best_so_far(plan: PlanView | None) -> str:
    """Give the figures of the cheapest feasible plan so far."""
    if plan is None:
        return "none feasible yet"
    figures = (
        formats.fraction(plan.accuracy.value),
        formats.seconds(plan.latency_s.value),
        formats.dollars(plan.cost_usd_per_hour),
    )
    return " ".join(figures)


def tiers_table(infrastructure: InfrastructureView) -> RenderableType:
    """Give the tiers of an infrastructure, with their speed and price."""
    made = table(
        f"Infrastructure {infrastructure.name}, requests arrive at {infrastructure.origin}",
        "tier",
        "machines",
        "speed",
        "price",
        "",
        right=[1, 2, 3],
    )
    for tier in infrastructure.tiers:
        marks = [name for name in ("dedicated", "emulated") if getattr(tier, name)]
        machines = f"{tier.machines} each" if tier.dedicated else str(tier.machines)
        price = formats.dollars(tier.price_usd_per_hour)
        made.add_row(
            Text(tier.name), machines, f"{tier.speed_factor:.3g}x", price, ", ".join(marks)
        )
    return made


def links_table(infrastructure: InfrastructureView) -> RenderableType:
    """Give the links of an infrastructure as they are imitated."""
    made = table("Links", "between", "bandwidth", "delay", "", right=[1, 2])
    for link in infrastructure.links:
        rate = f"{link.bandwidth_bytes_per_s * 8 / 1e6:g} Mbit/s"
        mark = "emulated" if link.emulated else "the network's own"
        made.add_row(Text(", ".join(link.between)), rate, formats.seconds(link.delay_s), mark)
    return made


def calibration_table(infrastructure: Infrastructure) -> RenderableType:
    """Give the measured speed factors of every tier, with their spread."""
    made = table("Speed factors", "tier", "class", "factor", "spread", "share", "date", right=[2])
    for tier in infrastructure.tiers:
        if tier.calibration is None:
            made.add_row(Text(tier.name), "", f"{tier.speed_factor:.3g}x", "not measured")
            continue
        found = tier.calibration
        made.add_row(Text(tier.name), "(tier)", f"{tier.speed_factor:.3g}x")
        for name, speed in found.speeds.items():
            made.add_row(
                "",
                Text(name),
                f"{speed.factor:.3g}x",
                f"{speed.low:.3g}-{speed.high:.3g} in {speed.repetitions}",
                f"{found.share:g}",
                found.date,
            )
    return made


def schedule_table(
    schedule: ScheduleView, names: Mapping[str, str] | None = None
) -> RenderableType:
    """Give who runs where, how full the tiers are, and who waits.

    Args:
        schedule: To show.
        names: Query id -> what to call it; None: by its id.
    """
    called = {} if names is None else names
    admitted = table("Schedule", "query", "plan", "tier / machine: share")
    for assignment in schedule.assignments:
        machines = ", ".join(f"{m.tier} / {m.machine}: {m.share:g}" for m in assignment.machines)
        admitted.add_row(
            Text(called.get(assignment.query_id, assignment.query_id)),
            Text(assignment.plan_id),
            Text(machines),
        )
    waiting = table("Waiting", "query", "why")
    for query in schedule.waiting:
        waiting.add_row(Text(called.get(query.query_id, query.query_id)), Text(query.reason))
    tiers = table("Tiers", "tier", "machines", "in use", "utilisation", "", right=[1, 2, 3])
    for tier in schedule.tiers:
        marks = [name for name in ("dedicated", "emulated") if getattr(tier, name)]
        machines = f"{tier.machines} each" if tier.dedicated else str(tier.machines)
        used = f"{tier.used:.2f}"
        tiers.add_row(Text(tier.tier), machines, used, f"{tier.utilisation:.0%}", ", ".join(marks))
    parts: list[RenderableType] = [admitted if admitted.row_count else Text("Nothing scheduled.")]
    if waiting.row_count:
        parts.append(waiting)
    notes = [Text(f"  {line}") for line in _quality(schedule)]
    return Group(*parts, tiers, *notes, *map(Text, displaced_lines(schedule.displaced)))


def _quality(schedule: ScheduleView) -> list[str]:
    if schedule.goodput is None or schedule.bound is None or schedule.gap is None:
        return []
    return [
        f"Goodput {schedule.goodput:g}; no schedule reaches more than {schedule.bound:.6g}, "
        f"so at most {schedule.gap:.1%} is missing."
    ]


def displaced_lines(displaced: Iterable[DisplacedView]) -> list[str]:
    """Give who had to make way for whom, and when."""
    return [
        entry.sentence if entry.at is None else f"{formats.moment(entry.at)}: {entry.sentence}"
        for entry in displaced
    ]


def deployment_table(deployment: DeploymentView) -> RenderableType:
    """Give the instances of a deployment and what its requests took."""
    made = table(
        f"Deployment ({deployment.phase})",
        "tier",
        "operators",
        "process",
        "share",
        "enforced by",
        right=[2, 3],
    )
    for instance in deployment.instances:
        made.add_row(
            Text(f"{instance.tier} (emulated)" if instance.emulated else instance.tier),
            Text(", ".join(instance.operators)),
            formats.UNKNOWN if instance.pid is None else str(instance.pid),
            f"{instance.share:g}",
            Text(instance.enforcement),
        )
    observed = deployment.observed
    figures = ", ".join(
        f"{name} {formats.seconds(value)}"
        for name, value in (
            ("mean", observed.mean_s),
            ("p50", observed.p50_s),
            ("p90", observed.p90_s),
            ("p99", observed.p99_s),
        )
        if value is not None
    )
    counts = f"  Requests: {observed.count} answered, {observed.failed} failed"
    return Group(made, Text(f"{counts}; latency {figures}." if figures else f"{counts}."))
