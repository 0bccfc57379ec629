"""Commands about the queries of a service."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Annotated, Literal

import typer
import yaml

from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.options import Cold, QueryFile, QueryId
from circinus.api.cli.rendering import formats
from circinus.api.cli.rendering.tables import plans_table, progress_line, queries_table, query_text
from circinus.api.cli.screen import Follow, Screen, json_text, new_file
from circinus.api.client import Client, Refused
from circinus.api.phases import UNFINISHED, QueryPhase
from circinus.api.query_file import query_of, read_document
from circinus.api.schemas.progress import QueryView
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput

POLL_S = 0.5
_NOT_FOUND = 404
_ENDINGS = {
    QueryPhase.INFEASIBLE: ExitCode.INFEASIBLE,
    QueryPhase.EXHAUSTED: ExitCode.EXHAUSTED,
    QueryPhase.FAILED: ExitCode.INTERNAL,
}


def submit(
    screen: Screen,
    client: Client,
    file: QueryFile,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: the same key submits once.", metavar="TEXT"),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until it is served.")] = False,
    priority: Annotated[int | None, typer.Option(help="Instead of the file's, 0 to 9.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose it is, instead of the file's.")] = None,
    cold: Cold = False,
) -> None:
    """Submit a query to the service; prints its id."""
    told = {"priority": priority, "tenant": tenant, "cold": cold or None}
    given = {name: value for name, value in told.items() if value is not None}
    request = query_of({**read_document(file), **given})
    for line in formats.defaults(request):
        screen.note(line)
    query = client.submit(request, idempotency_key=key or uuid.uuid4().hex)
    if watch:
        screen.note(f"query {query.id}")
        _show_and_leave(screen, _followed(client, query.id, screen))
    else:
        screen.show(query.id, document=query)


def status(
    screen: Screen,
    client: Client,
    query_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Id of a query.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the query until nothing more happens.")
    ] = False,
    phase: Annotated[
        QueryPhase | None, typer.Option(help="List only queries in this phase.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="List only queries of this tenant.")] = None,
) -> None:
    """List the queries of the service, or show one.

    The exit code is 3 or 4 for a query that was found infeasible or ran out of budget.
    """
    if query_id is not None:
        query = _followed(client, query_id, screen) if watch else client.query(query_id)
        _show_and_leave(screen, query)
        return
    if watch:
        raise InvalidInput.of("--watch", "must come with the id of a query", None)
    found = list(client.all_queries(phase=phase, tenant=tenant))
    if phase is not None:
        screen.note(f"only queries in phase {phase.value}")
    if tenant is not None:
        screen.note(f"only queries of tenant {tenant}")
    items = [query.model_dump(mode="json") for query in found]
    screen.show(queries_table(found), document={"items": items})


def cancel(screen: Screen, client: Client, query_id: QueryId) -> None:
    """Stop planning a query, or searching on while it serves."""
    show_phase(screen, client.cancel(query_id))


def plans(screen: Screen, client: Client, query_id: QueryId) -> None:
    """Show the Pareto set of a query, cheapest plan first."""
    query = client.query(query_id)
    found = client.plans(query_id)
    heading = f"{query.request.pipeline}: {formats.objectives(query.request)}"
    shown = plans_table(found.items, title=heading, chosen=query.plan_id)
    screen.show(shown, document=found)


def export(
    screen: Screen,
    client: Client,
    identifier: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id of a query or plan.")
    ] = None,
    problem: Annotated[
        bool,
        typer.Option("--problem", help="Write the scheduling problem, for `circinus study ilp`."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write here instead of stdout; must be new.")
    ] = None,
    form: Annotated[
        Literal["yaml", "json"], typer.Option("--format", help="Of what is written.")
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
        typer.echo(text, nl=False)
    else:
        screen.show(str(out), document=new_file(out, text, option="--out"))


def show_phase(screen: Screen, query: QueryView) -> None:
    """Print how a query is after what was asked of it."""
    screen.show(f"{query.id}: {query.phase.value}", document=query)


def _followed(client: Client, query_id: str, screen: Screen) -> QueryView:
    """Give the query once nothing more will happen to it by itself, showing its progress."""
    clock = SystemClock()
    with Follow(screen.err) as lines:
        while True:
            query = client.query(query_id)
            if not screen.as_json:
                lines.update({query.id: (_progress_key(query), progress_line(query))})
            if _is_settled(client, query):
                return query
            clock.sleep(POLL_S)


def _is_settled(client: Client, query: QueryView) -> bool:
    if query.phase is QueryPhase.WAITING:  # for capacity, or only for the schedule to be made
        return any(waiting.query_id == query.id for waiting in client.schedule().waiting)
    return query.phase is QueryPhase.SERVING or query.phase not in UNFINISHED


def _progress_key(query: QueryView) -> str:
    """Give what must change for a new line in a log."""
    progress = query.progress
    if progress is None:
        return query.phase.value
    best = progress.best.id if progress.best is not None else ""
    return f"{query.phase.value} {progress.phase} {best}"


def _show_and_leave(screen: Screen, query: QueryView) -> None:
    screen.show(query_text(query), document=query)
    leave(_ENDINGS.get(query.phase, ExitCode.OK))


def _exported(client: Client, identifier: str) -> dict[str, object]:
    try:
        query = client.query(identifier)
    except Refused as refusal:
        if refusal.problem.status != _NOT_FOUND:
            raise
        return client.plan(identifier).model_dump(mode="json")
    found = client.plans(identifier)
    return {
        "id": query.id,
        "query": query.request.model_dump(mode="json", exclude_none=True),
        "phase": query.phase.value,
        "plan_id": query.plan_id,
        "plans": [plan.model_dump(mode="json") for plan in found.items],
    }
