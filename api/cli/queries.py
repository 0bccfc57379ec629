"""Commands about the queries of a service, and questions that measurements answer: what if?"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import yaml
from rich.console import Group, RenderableType
from typer import Argument, Option, echo

from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.options import Cold, QueryFile, QueryId, pairs
from circinus.api.client import Client, Refused
from circinus.api.phases import QueryPhase
from circinus.api.query_file import query_of, read_document
from circinus.api.schemas.explanation import ReplanBody, ReplanData, WhatIfBody
from circinus.api.schemas.progress import QueryView
from circinus.api.schemas.query import DataSource
from circinus.api.text import formats, tables
from circinus.api.text.renting import rent_lines
from circinus.api.text.screen import Screen, json_text
from circinus.pipelines.errors import InvalidInput

_FORM = "0.8x, +2, -2 or 5"
_CHANGES_RULE = f"must be NAME=CHANGE once per name ({_FORM})"
Pairs = list[str] | None

_NOT_FOUND = 404
_ENDINGS = {
    QueryPhase.INFEASIBLE: ExitCode.INFEASIBLE,
    QueryPhase.EXHAUSTED: ExitCode.EXHAUSTED,
    QueryPhase.FAILED: ExitCode.INTERNAL,
}


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """Options of the commands that change objectives."""

    accuracy: Annotated[str, f"Other accuracy SLO: {_FORM}."] = ""
    latency: Annotated[str, f"Other latency SLO in seconds: {_FORM}."] = ""
    cost: Annotated[str, f"Other cost SLO in USD per hour: {_FORM}."] = ""
    cost_per_1000: Annotated[str, f"Other SLO in USD per 1,000 requests: {_FORM}."] = ""


def submit(
    screen: Screen,
    client: Client,
    file: QueryFile,
    key: Annotated[
        str | None, Option(help="Idempotency key: the same key submits once.", metavar="TEXT")
    ] = None,
    watch: Annotated[bool, "Follow it until it is served."] = False,
    priority: Annotated[int | None, "Instead of the file's, 0 to 9."] = None,
    tenant: Annotated[str | None, "Whose it is, instead of the file's."] = None,
    cold: Cold = False,
) -> None:
    """Submit a query to the service; prints its id."""
    choices = {"priority": priority, "tenant": tenant, "cold": cold or None}
    overrides = {name: value for name, value in choices.items() if value is not None}
    request = query_of({**read_document(file), **overrides})
    data = request.data
    if (named := data.folder or data.jsonl) is not None:
        view, sent = client.hand_over(file.parent / named)
        screen.note(f"{named}: {view.inputs} inputs, {'sent' if sent else 'known'} as {view.id}")
        data = DataSource(dataset=view.id, on_failure=data.on_failure)
        request = request.model_copy(update={"data": data})
    for line in formats.defaults(request):
        screen.note(line)
    query = client.submit(request, idempotency_key=key or uuid.uuid4().hex)
    if watch:
        screen.note(f"query {query.id}")
        _show_and_leave(screen, client, _followed(client, query.id, screen))
    else:
        screen.show(query.id, document=query)


def status(
    screen: Screen,
    client: Client,
    query_id: Annotated[str | None, Argument(metavar="[ID]", help="Id of a query.")] = None,
    watch: Annotated[bool, "Follow the query until nothing more happens."] = False,
    phase: Annotated[QueryPhase | None, "List only queries in this phase."] = None,
    tenant: Annotated[str | None, "List only queries of this tenant."] = None,
) -> None:
    """List the queries of the service with plan, spend and place in the queue, or show one.

    The exit code is 3 or 4 for a query that is infeasible or ran out of budget.
    """
    if query_id is not None:
        query = _followed(client, query_id, screen) if watch else client.query(query_id)
        _show_and_leave(screen, client, query)
        return
    if watch:
        raise InvalidInput.of("--watch", "must come with the id of a query", None)
    queries = list(client.all_queries(phase=phase, tenant=tenant))
    if phase is not None:
        screen.note(f"only queries in phase {phase.value}")
    if tenant is not None:
        screen.note(f"only queries of tenant {tenant}")
    ahead = _ahead(client) if any(query.phase is QueryPhase.QUEUED for query in queries) else {}
    # A document has queries alone: the schedule is read where its rent is shown.
    rent = [] if screen.as_json else [*rent_lines(client.schedule(observed=False))]
    screen.show(Group(tables.queries_table(queries, ahead), *rent), document={"items": queries})


def cancel(screen: Screen, client: Client, query_id: QueryId) -> None:
    """Stop planning a query, or searching on while it serves."""
    show_phase(screen, client.cancel(query_id))


def plans(screen: Screen, client: Client, query_id: QueryId) -> None:
    """Show the Pareto set of a query, cheapest plan first."""
    query = client.query(query_id)
    plan_list = client.plans(query_id)
    heading = f"{query.request.pipeline}: {formats.objectives(query.request)}"
    parts: list[RenderableType] = [f"{heading}: no plan, as it is {query.phase.value}"]
    if plan_list.items:
        parts = [tables.plans_table(plan_list.items, title=heading, chosen=query.plan_id)]
    elif query.stopped_because is not None:
        parts.append(f"It was ended by this: {query.stopped_because}")
    if query.progress is not None:
        parts += formats.failure_lines(query.progress)
    if not plan_list.items and query.shortfall is not None:
        parts.append(tables.shortfall_text(query.shortfall))
    screen.show(*parts, document=plan_list)


def export(
    screen: Screen,
    client: Client,
    identifier: Annotated[
        str | None, Argument(metavar="[ID]", help="Id of a query or plan.")
    ] = None,
    problem: Annotated[bool, "Write the scheduling problem, for `circinus study ilp`."] = False,
    out: Annotated[Path | None, "Write here instead of stdout; must be new."] = None,
    form: Annotated[
        Literal["yaml", "json"], Option("--format", help="Of what is written.")
    ] = "yaml",
) -> None:
    """Write a query with its plans, or one plan, as YAML or JSON; or the problem, as JSON."""
    if problem == (identifier is not None):
        raise InvalidInput.of("ID", "must be given, or --problem instead of it", identifier)
    document = client.problem() if identifier is None else _exported(client, identifier)
    if screen.as_json or form == "json" or problem:
        text = json_text(document)
    else:
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    if out is None:
        echo(text, nl=False)
    else:
        screen.new_file(out, text, option="--out")


def explain(
    screen: Screen,
    client: Client,
    plan_id: Annotated[str, Argument(metavar="PLAN", help="Id of a plan.")],
) -> None:
    """Explain a plan: the latency and cost of its operators, and the alternatives ruled out."""
    explanation = client.explanation(plan_id)
    screen.show(*tables.explanation_parts(explanation), document=explanation)


def whatif(
    screen: Screen,
    client: Client,
    query_id: QueryId,
    changes: ChangeOptions,
    price: Annotated[Pairs, "Other price of a tier, such as cloud=2x."] = None,
    machines: Annotated[Pairs, "Other number of machines, such as edge=-2."] = None,
    speed: Annotated[Pairs, "Other speed of a tier, such as device=0.5x."] = None,
    bandwidth: Annotated[Pairs, "Other Mbit/s of a link, such as device-edge=0.1x."] = None,
    rate: Annotated[
        str,
        Option(metavar="LOW:HIGH", help="At which requests/s machines become cheaper than calls."),
    ] = "",
) -> None:
    """Print the effect of other circumstances on a query, from its measurements."""
    options = {"price": price, "machines": machines, "speed": speed, "bandwidth": bandwidth}
    others = {name: pairs(f"--{name}", texts, _CHANGES_RULE) for name, texts in options.items()}
    body = WhatIfBody.model_validate(asdict(changes) | others | {"rate": rate})
    answer = client.what_if(query_id, body)
    screen.show(*tables.what_if_parts(answer), document=answer)


def replan(
    screen: Screen,
    client: Client,
    query_id: QueryId,
    changes: ChangeOptions,
    examples: Annotated[int | None, "Number of examples to profile on instead."] = None,
    examples_seed: Annotated[int, "Of those examples."] = 0,
) -> None:
    """Plan a query again for other objectives or data, from its measurements."""
    data = None if examples is None else ReplanData(examples=examples, seed=examples_seed)
    show_phase(screen, client.replan(query_id, ReplanBody(**asdict(changes), data=data)))


def show_phase(screen: Screen, query: QueryView) -> None:
    """Print the state of a query after a change."""
    screen.show(f"{query.id}: {query.phase.value}", document=query)


def _followed(client: Client, query_id: str, screen: Screen) -> QueryView:
    """Return the query once nothing more will happen to it by itself, showing its progress."""
    best = tables.BestPlan()
    with screen.follow() as lines:

        def show(query: QueryView) -> None:
            lines.update({query.id: (_progress_key(query), tables.progress_line(query, best))})

        return client.wait(query_id, told=show)


def _progress_key(query: QueryView) -> str:
    """Return what must change for a new line in a log."""
    progress = query.progress
    if progress is None:
        return query.phase.value
    best = progress.best.id if progress.best is not None else ""
    return f"{query.phase.value} {progress.phase} {best}"


def _show_and_leave(screen: Screen, client: Client, query: QueryView) -> None:
    parts: list[RenderableType] = [tables.query_text(query)]
    if query.phase is QueryPhase.QUEUED and (ahead := _ahead(client).get(query.id)) is not None:
        parts.append(f"planned {formats.place(ahead)}")
    if query.plan_id is not None:
        parts.append(tables.plans_table([client.plan(query.plan_id)], title="Plan"))
    screen.show(*parts, document=query)
    operators_failed = query.outcome == "failed"  # else planning itself broke off
    leave(ExitCode.FAILED if operators_failed else _ENDINGS.get(query.phase, ExitCode.OK))


def _ahead(client: Client) -> dict[str, int]:
    """Return how many are planned before each queued query, with those planned now."""
    busy = sum(1 for _ in client.all_queries(phase=QueryPhase.PLANNING))
    queued = [query.id for query in client.all_queries(phase=QueryPhase.QUEUED)]  # newest first
    return {query: busy + place for place, query in enumerate(reversed(queued))}


def _exported(client: Client, identifier: str) -> dict[str, object]:
    try:
        query = client.query(identifier)
    except Refused as refusal:
        if refusal.problem.status != _NOT_FOUND:
            raise
        return client.plan(identifier).model_dump(mode="json")
    return {
        "id": query.id,
        "query": query.request.document,
        "phase": query.phase.value,
        "plan_id": query.plan_id,
        "plans": client.plans(identifier).model_dump(mode="json")["items"],
    }
