"""The command line: `circinus`. A file per group of commands; this one puts them together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from circinus.api.cli import (
    breaking,
    composing,
    datasets,
    doctor,
    machine,
    planning,
    pools,
    queries,
    routes,
    service,
    serving,
)
from circinus.api.cli.command import EPILOG, command, wrapped
from circinus.api.cli.kubernetes import credentials, deploying, route_cluster
from circinus.pipelines.execution.needs import missing, package

app = typer.Typer(
    name="circinus",
    help="Plans, deploys and serves compound AI pipelines.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("circinus"))
        raise typer.Exit


@app.callback()
def _circinus(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    pass


class _Studies(TyperGroup):
    """`circinus study`, whose commands are imported on first use.

    Studies import every planner and policy there is, with the libraries behind them: seconds that
    no other command should wait for.
    """

    @cached_property
    def _loaded(self) -> TyperGroup:
        if lacking := missing([package("matplotlib", extra="studies")]):
            typer.echo(f"Studies need {lacking[0]}.", err=True)
            raise typer.Exit(2)
        from circinus.api.cli.studies.group import group

        return get_group(group())

    # Which click a context is of depends on the version of typer.
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Return the names of the studies."""
        return self._loaded.list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a study by name."""
        return self._loaded.get_command(ctx, cmd_name)


def _group(name: str, text: str, *commands: Callable[..., None], **how: Any) -> None:  # noqa: ANN401 - typer's own
    made = typer.Typer(help=text, no_args_is_help=True, **how)
    for body in commands:
        command(made, body)
    app.add_typer(made, name=name)


for _body in (
    *(service.demo, service.serve, planning.validate, planning.plan),
    *(queries.submit, queries.status, queries.cancel, queries.plans, queries.export),
    *(queries.explain, queries.whatif, queries.replan),
    composing.render,
    *(serving.schedule, serving.capacity, serving.request, serving.undeploy, serving.emulate),
    *(service.dispatch, service.operator, credentials.credentials),
    *(machine.prepare, machine.calibrate, breaking.breakpoint_, doctor.doctor, serving.verify),
):
    command(app, _body)
_DEPLOY = (deploying.render, deploying.diff, deploying.apply, deploying.status, deploying.delete)
_group("deploy", "Plans in a Kubernetes cluster.", *_DEPLOY, epilog=EPILOG)
_pipelines = typer.Typer()
_pipelines.callback(invoke_without_command=True, epilog=EPILOG)(wrapped(machine.pipelines))
command(_pipelines, machine.show)
app.add_typer(_pipelines, name="pipelines")
_DATASETS = "Data of one's own in the service; submit hands it over by itself."
_group("datasets", _DATASETS, datasets.list_, datasets.add, datasets.delete)
_POOL = "Mixes of machine types: which to rent, and queries served by them."
_group(
    "pool",
    _POOL,
    pools.choose,
    pools.apply,
    pools.try_,
    pools.show,
    pools.drop,
    epilog=EPILOG,
)
_ROUTE = "Endpoints that unlike deployment units serve: which gets which part of the requests."
_group(
    "route",
    _ROUTE,
    routes.weights,
    routes.apply,
    routes.status,
    routes.request,
    routes.remove,
    route_cluster.follow,
    routes.verify,
    epilog=EPILOG,
)
_HISTORY = "What earlier queries measured: later ones on the same pipeline start from it."
_group("history", _HISTORY, machine.list_, machine.export, machine.import_)
_group("study", "Measure and compare offline.", epilog=EPILOG, cls=_Studies)


def main() -> None:
    """Run the command line."""
    app(prog_name="circinus")
