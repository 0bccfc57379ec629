"""`circinus operator`."""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
from pathlib import Path
from typing import Annotated

import typer
import yaml

from api.cli.command import command
from api.cli.options import DEFAULT_URL, Token, Url, connect
from api.cli.screen import Screen
from api.event_log import start_event_log
from pipelines.errors import InvalidInput


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "operator")(operator)


def operator(
    screen: Screen,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", help="Whose objects to follow; default: the pod's own."),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option("--kubeconfig", help="The way to the cluster; default: the pod's own."),
    ] = None,
    lease_s: Annotated[
        float, typer.Option("--lease", help="Seconds after which a silent leader is replaced.")
    ] = 15.0,
    look_s: Annotated[
        float, typer.Option("--every", help="Seconds between two looks at an object.")
    ] = 1.0,
    definition: Annotated[
        bool, typer.Option("--definition", help="Print the custom resource definition and end.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Follow the PipelineQuery objects of a Kubernetes namespace until interrupted.

    Each becomes a query of the service, and its status tells how that fares. Several operators
    may run: one leads, the others wait for its lease to end.
    """
    from api.operator.definition import definition as document  # the rest: only when asked to

    if definition:
        if screen.as_json:
            screen.json(document())
        else:
            typer.echo(yaml.safe_dump(document(), sort_keys=False), nl=False)
        return
    _require_kopf()
    from api.operator.running import OperatorSettings, run

    start_event_log("info")
    settings = OperatorSettings(
        namespace=namespace,
        kubeconfig=kubeconfig,
        identity=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}",
        lease_s=lease_s,
        look_s=look_s,
    )
    with connect(url, token) as client:
        run(settings, client)


def _require_kopf() -> None:
    if importlib.util.find_spec("kopf") is None:
        rule = "must be installed: pip install 'circinus[kubernetes]'"
        raise InvalidInput.of("kopf", rule, None)
