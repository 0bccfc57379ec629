"""`circinus verify`."""

from __future__ import annotations

from typing import Annotated

import typer
import yaml

from api.cli.command import command, leave
from api.cli.exits import ExitCode
from api.cli.options import DEFAULT_URL, QueryId, Token, Url, connect
from api.cli.screen import Screen
from pipelines.clock import SystemClock
from pipelines.dataset import LARGEST_DATASET

_SEED = 1_000_003
"""Unlikely to be that of a query's data; it is refused if it is."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "verify")(verify)


def verify(
    screen: Screen,
    query_id: QueryId,
    requests: Annotated[
        int, typer.Option("--requests", min=2, max=LARGEST_DATASET, help="How many are sent.")
    ] = 200,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Of the inputs; not that of the query's data.")
    ] = _SEED,
    job: Annotated[
        bool, typer.Option("--job", help="Print a Kubernetes Job that does it in the cluster.")
    ] = False,
    namespace: Annotated[str, typer.Option("--namespace", help="Of the Job.")] = "default",
    release: Annotated[
        str, typer.Option("--release", help="Of the chart, whose service and token the Job uses.")
    ] = "circinus",
    image: Annotated[
        str, typer.Option("--image", help="Of the service, for the Job.")
    ] = "circinus/service:latest",
    pull_policy: Annotated[
        str, typer.Option("--pull-policy", help="IfNotPresent, Always or Never.")
    ] = "IfNotPresent",
    environment: Annotated[
        str | None,
        typer.Option("--environment", help="Folder of the nodes with the Python packages."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Send requests to a deployed plan; show what it promised beside what was observed.

    Ends with 1 if a request failed or an objective is surely broken. With --job nothing is sent:
    --url is then where the Job finds the service.
    """
    if job:
        from deploy.kubernetes.benchmark_job import BenchmarkSettings, benchmark_job

        settings = BenchmarkSettings(
            query_id=query_id,
            requests=requests,
            seed=seed,
            namespace=namespace,
            image=image,
            pull_policy=pull_policy,
            environment=environment,
            service_url=url if url != DEFAULT_URL else f"http://{release}.{namespace}.svc:8350",
            token_secret=f"{release}-token",
        )
        document = benchmark_job(settings)
        if screen.as_json:
            screen.json(document)
        else:
            typer.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
        return
    _verify(screen, query_id, requests, seed, (url, token))


def _verify(
    screen: Screen, query_id: str, requests: int, seed: int, service: tuple[str, str | None]
) -> None:
    from api.demo.report import comparison
    from api.demo.verification import verify as run

    tenth = max(1, requests // 10)

    def told(_query_id: str, done: int) -> None:
        if done % tenth == 0:
            screen.note(f"{done} of {requests} requests")

    with connect(*service) as client:
        report = run(client, query_id, requests, seed, SystemClock(), told)
    screen.show(*comparison(report.served), document=report.document())
    for problem in report.problems:
        screen.note(problem)
    leave(ExitCode.OK if report.worked else ExitCode.INTERNAL)
