"""Options and arguments that several commands share, and what they name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from circinus.api.bootstrap.registry import import_from_here
from circinus.api.client import Client, Retries
from circinus.api.query_file import read_document
from circinus.api.schemas.routes import RouteInput, VerifyInput
from circinus.api.schemas.violations import checked
from circinus.api.settings import DEFAULT_URL
from circinus.api.text.screen import Screen
from circinus.deploy.methods import METHODS
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import read_json_lines
from circinus.pipelines.io.files import opened
from circinus.pipelines.registry import listed, load_metric, registered

if TYPE_CHECKING:  # imports of sending probes, only for their commands
    from circinus.deploy.routes.probing import EndpointProbes

_RETRIES = Retries(total_s=1.5)  # a person waits
PIPELINE_HELP = "Registered name or module:attribute; default: all available."

FirstSeed = Annotated[int, Option(help="The first seed.", min=0)]
QueryFile = Annotated[Path, Argument(metavar="FILE", help="Query file (YAML).")]
QueryId = Annotated[str, Argument(metavar="ID", help="Id of a query.")]
Url = Annotated[str, Option(envvar="CIRCINUS_URL", help="Address of the service.")]
Token = Annotated[
    str | None, Option(envvar="CIRCINUS_TOKEN", help="Its bearer token.", show_default=False)
]
MetricName = Annotated[
    str | None,
    Option(
        metavar="MODULE:FUNCTION",
        help="score(output, expected) in [0, 1], here or installed; default: 1 if equal, else 0.",
        show_default=False,
    ),
]
RouteFile = Annotated[Path, Argument(metavar="FILE", help="YAML of a route.", dir_okay=False)]
Kubeconfig = Annotated[
    Path | None, "The way to the cluster; default: the pod's account, else KUBECONFIG."
]
PodKubeconfig = Annotated[Path | None, "The way to the cluster; default: the pod's own."]
INPUT = Option("--input", metavar="JSON", help="Send this input; @FILE reads a file.")
Cold = Annotated[bool, "Start from nothing that earlier queries measured."]
InfrastructureName = Annotated[
    str, "YAML file, or a preset: local, one-tier, three-tier, four-tier, paper-small ..."
]
_METHOD = f"How to plan, schedule and dispatch: {', '.join(METHODS)}; "
MethodName = Annotated[
    str | None, Option(help=f"{_METHOD}left out: by CIRCINUS_METHOD.", show_default=False)
]


def connect(url: Url = DEFAULT_URL, token: Token = None) -> Client:
    """Return a client of the service."""
    return Client(url, token=token, retries=_RETRIES)


def read_route(file: Path) -> RouteInput:
    """Return the route of a file; InvalidInput if it breaks a rule."""
    return checked(RouteInput, read_document(file))


def probes_here(file: Path, metric: str | None, terms: VerifyInput) -> EndpointProbes:
    """Return as many probes of a file as a route requires, and their metric.

    Raises InvalidInput if the file has none, the route requires none, or the metric is unknown.
    """
    from circinus.deploy.routes.probing import EndpointProbes, equal

    checks.at_least("verify.probes", terms.probes, 1)
    with opened(file, "--probes") as lines:
        examples = read_json_lines(lines, f"--probes {file.name}").examples
    if metric is not None:
        import_from_here()
    return EndpointProbes(
        examples=examples[: terms.probes],
        tolerance=terms.tolerance,
        score=equal if metric is None else load_metric(metric, "--metric"),
    )


def all_here(screen: Screen) -> list[str]:
    """Return the names of the registered pipelines that can run; print the others."""
    pipelines = listed(registered())
    for one in pipelines:
        if one.missing:
            missing = ", ".join(map(str, one.missing))
            screen.note(f"{one.name}: left out, not available here: {missing}")
    return [one.name for one in pipelines if not one.missing]


def pairs(option: str, texts: Iterable[str] | None, rule: str) -> dict[str, str]:
    """Return name -> value of texts `NAME=VALUE`, each once; else InvalidInput with the rule."""
    values: dict[str, str] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not (name and value) or name in values:
            raise InvalidInput.of(option, rule, text)
        values[name] = value
    return values


def counted(option: str, name: str, number: str, rule: str) -> int:
    """Return the whole number of `NAME=NUMBER`; InvalidInput with the rule if it is none."""
    fits = number.isascii() and number.isdecimal()
    checks.require(fits, option, rule, f"{name}={number}")
    return int(number[:12])


def numbers(option: str, text: str, rule: str) -> tuple[int, ...]:
    """Return whole numbers between commas; InvalidInput with the rule if one is none."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInput.of(option, rule, text) from error


def decimals(option: str, text: str) -> tuple[float, ...]:
    """Return numbers between commas; InvalidInput if one is none."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInput.of(option, "must be numbers, by commas", text) from error
