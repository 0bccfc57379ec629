"""Commands about what a service runs: the schedule, machines and links, requests, undeployment."""

from __future__ import annotations

import json
from os import fsencode
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.options import INPUT, QueryId, counted, pairs
from circinus.api.cli.queries import show_phase
from circinus.api.client import Client
from circinus.api.schemas.deployments import Late, RequestBody
from circinus.api.schemas.schedule import PreviewBody
from circinus.api.schemas.service import EmulationBody
from circinus.api.schemas.violations import checked
from circinus.api.settings import DEFAULT_URL
from circinus.api.text import formats, tables, tiers
from circinus.api.text.screen import Screen
from circinus.deploy.kubernetes.names import SERVICE_IMAGE
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.io.datasets import LARGEST_DATASET
from circinus.pipelines.io.files import read_file
from circinus.pipelines.io.strict import read_json
from circinus.scheduler.problem import Objective

_LARGEST_INPUT = 2**26  # bytes; a service takes what its operator allows
_LINK_FORM = "TIER,TIER=MBIT/S[,DELAY_S]"
_MACHINES_RULE = "must be TIER=N or TIER=stated, each tier once; TIER/TYPE where it has types"
_HELD_OUT_SEED = 1_000_003  # unlikely to be that of a query's data; it is refused if it is


def schedule(
    screen: Screen,
    client: Client,
    objective: Annotated[
        Objective | None, "Preview it for goodput, or for the cost of serving all."
    ] = None,
    most_usd_per_hour: Annotated[
        float | None,
        Option(help="Preview it with this limit of rented machines and calls.", metavar="USD"),
    ] = None,
) -> None:
    """Show which queries are admitted, with which plan, on which machines.

    With an option it is a preview of another schedule; nothing is changed.
    """
    if objective is None and most_usd_per_hour is None:
        view = client.schedule()
    else:
        body = {"objective": objective, "most_usd_per_hour": most_usd_per_hour}
        view = client.preview(checked(PreviewBody, body))
    screen.show(tables.schedule_table(view), document=view)


def capacity(
    screen: Screen,
    client: Client,
    changes: Annotated[
        list[str] | None,
        Argument(metavar="[TIER[/TYPE]=N]...", help="Machines of a tier; TIER=stated undoes it."),
    ] = None,
) -> None:
    """Show the machines of every tier, or change their numbers."""
    machines: dict[str, int | None] = {}
    for tier, number in pairs("TIER=N", changes, _MACHINES_RULE).items():
        stated = number == "stated"
        machines[tier] = None if stated else counted("TIER=N", tier, number, _MACHINES_RULE)
    infrastructure = client.set_machines(machines) if machines else client.infrastructure()
    screen.show(tiers.tiers_table(infrastructure), document=infrastructure)


def emulate(
    screen: Screen,
    client: Client,
    links: Annotated[
        list[str] | None,
        Argument(metavar=f"[{_LINK_FORM}]...", help="Emulated links, as they are from now on."),
    ] = None,
) -> None:
    """Show the emulated links, or change some; planning ignores the change."""
    if links:
        body = checked(EmulationBody, {"links": [_link(link) for link in links]})
        emulation = client.set_emulation(body)
    else:
        emulation = client.emulation()
    screen.show(tiers.links_table(emulation), document=emulation)


def request(
    screen: Screen,
    client: Client,
    query_id: QueryId,
    example: Annotated[int | None, "Send this example of the pipeline."] = None,
    seed: Annotated[int, "Seed of the examples."] = 0,
    input_text: Annotated[str | None, INPUT] = None,
    timeout: Annotated[float, "Seconds to wait for the answer."] = 30.0,
    late: Annotated[
        Late,
        Option(help="Take an answer that the latency objective calls late, or have it refused."),
    ] = Late.SERVE,
) -> None:
    """Send one request to the deployed plan of a query."""
    if input_text is None and example is None:
        raise InvalidInput([Violation("--input or --example", "must be given", "nothing")])
    if input_text is not None and example is not None:
        raise InvalidInput.of("--input", "must be given, or --example, but not both", input_text)
    body: dict[str, Any] = {"timeout_s": timeout, "late": late}
    if input_text is not None:
        body["input"] = input_of(input_text)
    if example is not None:
        body["example"] = {"index": example, "seed": seed}
    reply = client.request(query_id, checked(RequestBody, body))
    emulated = " (emulated tiers or links on the way)" if reply.emulated else ""
    lines = [
        f"output   {json.dumps(reply.output, ensure_ascii=False)}",
        f"latency  {formats.seconds(reply.latency_s)}{emulated}",
    ]
    if reply.score is not None:
        lines.append(f"score    {formats.fraction(reply.score)}")
    times = ", ".join(f"{name} {formats.seconds(s)}" for name, s in reply.operator_s.items())
    if times:
        lines.append(f"of this  {times}; transfers {formats.seconds(reply.transfer_s)}")
    screen.show(*lines, document=reply)


def undeploy(screen: Screen, client: Client, query_id: QueryId) -> None:
    """Retire a query and free its capacity."""
    show_phase(screen, client.undeploy(query_id))


def verify(
    screen: Screen,
    client: Client,
    query_id: QueryId,
    requests: Annotated[
        int | None,
        Option(
            min=2,
            max=LARGEST_DATASET,
            help="How many are sent; default: 200, or all examples of a pipeline that has fewer.",
        ),
    ] = None,
    seed: Annotated[
        int, Option(min=0, help="Of the inputs; not that of the query's data.")
    ] = _HELD_OUT_SEED,
    job: Annotated[bool, "Print a Kubernetes Job that does it in the cluster."] = False,
    namespace: Annotated[str, "Of the Job."] = "default",
    release: Annotated[str, "Of the chart, whose service and token the Job uses."] = "circinus",
    image: Annotated[str, "Of the service, for the Job."] = SERVICE_IMAGE,
    pull_policy: Annotated[str, "IfNotPresent, Always or Never."] = "IfNotPresent",
    environment: Annotated[str | None, "Folder of the nodes with the Python packages."] = None,
    token_secret: Annotated[str | None, "Secret with the token; default: RELEASE-token."] = None,
) -> None:
    """Send requests to a deployed plan; show what it promised beside what was observed.

    Ends with 1 if a request failed or an objective is surely broken. With --job nothing is sent:
    --url is then where the Job finds the service.
    """
    if job:
        from circinus.deploy.kubernetes.fitness.benchmark_job import (
            BenchmarkSettings,
            benchmark_job,
        )

        url = client.base_url
        settings = BenchmarkSettings(
            query_id=query_id,
            requests=requests,
            seed=seed,
            namespace=namespace,
            image=image,
            pull_policy=pull_policy,
            environment=environment,
            service_url=url if url != DEFAULT_URL else f"http://{release}.{namespace}.svc:8350",
            token_secret=token_secret or f"{release}-token",
        )
        screen.document(benchmark_job(settings))
        return
    from circinus.api.demo.report import comparison, verified

    def report_progress(_query_id: str, done: int, of: int) -> None:
        if done % max(1, of // 10) == 0:
            screen.note(f"{done} of {of} requests")

    report = verified(client, query_id, requests, seed, SystemClock(), report_progress)
    screen.show(*comparison(report.served), document=report.document())
    for problem in report.problems:
        screen.note(problem)
    leave(ExitCode.OK if report.worked else ExitCode.INTERNAL)


def _link(text: str) -> dict[str, object]:
    ends, _, figures = text.partition("=")
    rate, comma, delay = figures.partition(",")
    try:
        return {
            "between": ends.split(","),
            "bandwidth_mbit_per_s": float(rate),
            "delay_s": float(delay) if comma else 0.0,
        }
    except ValueError as error:
        raise InvalidInput.of(_LINK_FORM, f"must be {_LINK_FORM}", text) from error


def input_of(text: str) -> object:
    """Return what `--input` names: JSON, or what a file has; InvalidInput if it is neither."""
    try:
        named = text.startswith("@")
        data = read_file(Path(text[1:]), "it", _LARGEST_INPUT) if named else fsencode(text)
        return read_json(data, "it")
    except InvalidInput as error:
        raise InvalidInput.of("--input", f"must be JSON or @FILE ({error})", text) from error
