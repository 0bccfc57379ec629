"""`circinus operator`."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Annotated

import typer

from circinus.api.cli.options import DEFAULT_URL, Token, Url, connect
from circinus.api.cli.screen import Screen
from circinus.api.event_log import start_event_log
from circinus.pipelines.needs import package, require


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
    from circinus.api.operator.definition import (
        definition as document,  # the rest: only when asked to
    )

    if definition:
        screen.document(document())
        return
    require("operator", "kopf", [package("kopf", extra="kubernetes")])
    from circinus.api.operator.controller import OperatorSettings, run

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
