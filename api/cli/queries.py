"""Commands about the queries of a service."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer
import yaml
from rich.console import Group

from api.cli.command import command, leave
from api.cli.exits import ExitCode
from api.cli.options import DEFAULT_URL, QueryFile, QueryId, Token, Url, connect
from api.cli.screen import Screen
from api.client import Client, Refused
from api.phases import UNFINISHED, Phase
from api.query_file import query_of, read_document
from api.rendering import formats
from api.rendering.live import Follow
from api.rendering.tables import plans_table, progress_line, queries_table, query_text
from api.schemas import QueryView
from pipelines.clock import SystemClock
from pipelines.errors import InvalidInput

POLL_S = 0.5
_NOT_FOUND = 404
_ENDINGS = {
    Phase.INFEASIBLE: ExitCode.INFEASIBLE,
    Phase.EXHAUSTED: ExitCode.EXHAUSTED,
    Phase.FAILED: ExitCode.INTERNAL,
}


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    commands: list[tuple[str, Callable[..., None]]] = [
        ("submit", submit),
        ("status", status),
        ("cancel", cancel),
        ("plans", plans),
        ("export", export),
    ]
    for name, body in commands:
        command(app, name)(body)


def submit(
    screen: Screen,
    file: QueryFile,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Idempotency key: the same key submits once.", metavar="TEXT"),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until it is served.")] = False,
    priority: Annotated[
        int | None, typer.Option("--priority", help="Instead of the file's, 0 to 9.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Whose it is, instead of the file's.")
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start from nothing that earlier queries measured.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Submit a query to the service; prints its id."""
    told = {"priority": priority, "tenant": tenant, "cold": cold or None}
    given = {name: value for name, value in told.items() if value is not None}
    request = query_of({**read_document(file), **given})
    for line in formats.defaults(request):
        screen.note(line)
    with connect(url, token) as client:
        query = client.submit(request, idempotency_key=key or uuid.uuid4().hex)
        if watch:
            screen.note(f"query {query.id}")
            query = follow(client, query.id, screen)
            _show_and_leave(screen, query)
        else:
            screen.show(query.id, document=query)


def status(
    screen: Screen,
    query_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Id of a query.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the query until nothing more happens.")
    ] = False,
    phase: Annotated[
        Phase | None, typer.Option("--phase", help="List only queries in this phase.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="List only queries of this tenant.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """List the queries of the service, or show one.

    The exit code is 3 or 4 for a query that was found infeasible or ran out of budget.
    """
    with connect(url, token) as client:
        if query_id is not None:
            query = follow(client, query_id, screen) if watch else client.query(query_id)
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


def cancel(screen: Screen, query_id: QueryId, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Stop planning a query, or searching on while it serves."""
    with connect(url, token) as client:
        query = client.cancel(query_id)
    screen.show(f"{query.id}: {query.phase.value}", document=query)


def plans(screen: Screen, query_id: QueryId, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Show the Pareto set of a query, cheapest plan first."""
    with connect(url, token) as client:
        query = client.query(query_id)
        found = client.plans(query_id)
    heading = f"{query.request.pipeline}: {formats.objectives(query.request)}"
    shown = plans_table(found.items, title=heading, chosen=query.plan_id)
    screen.show(shown, document=found)


def export(
    screen: Screen,
    identifier: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id of a query or plan.")
    ] = None,
    problem: Annotated[
        bool,
        typer.Option("--problem", help="Write the scheduling problem, for `circinus study ilp`."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write here instead of stdout; must be new.")
    ] = None,
    form: Annotated[
        Literal["yaml", "json"], typer.Option("--format", help="Of what is written.")
    ] = "yaml",
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Write a query with its plans, or one plan, as YAML or JSON; or the problem, as JSON."""
    if problem == (identifier is not None):
        raise InvalidInput.of("ID", "must be given, or --problem instead of it", identifier)
    with connect(url, token) as client:
        document = client.problem() if identifier is None else _exported(client, identifier)
    as_json = screen.as_json or form == "json" or problem
    if out is None:
        text = _written(document, as_json=as_json)
        typer.echo(text, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(_written(document, as_json=as_json))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInput.of("--out", f"must be a new file ({reason})", str(out)) from error
    screen.show(str(out), document={"written": str(out)})


def follow(client: Client, query_id: str, screen: Screen) -> QueryView:
    """Give the query once nothing more will happen to it by itself, showing its progress."""
    clock = SystemClock()
    with Follow(screen.err) as lines:
        while True:
            query = client.query(query_id)
            if not screen.as_json:
                lines.update({query.id: (progress_key(query), progress_line(query))})
            if _settled(client, query):
                return query
            clock.sleep(POLL_S)


def _settled(client: Client, query: QueryView) -> bool:
    if query.phase is Phase.WAITING:  # for capacity, or only for the schedule to be made
        return any(waiting.query_id == query.id for waiting in client.schedule().waiting)
    return query.phase is Phase.SERVING or query.phase not in UNFINISHED


def progress_key(query: QueryView) -> str:
    """Give what must change for a new line in a log."""
    progress = query.progress
    if progress is None:
        return query.phase.value
    best = progress.best.id if progress.best is not None else ""
    return f"{query.phase.value} {progress.phase} {best}"


def _show_and_leave(screen: Screen, query: QueryView) -> None:
    screen.show(Group(query_text(query)), document=query)
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


def _written(document: dict[str, object], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text
