"""`circinus route verify`: whether units that somebody else runs give as good outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.options import MetricName, pairs, probes_here
from circinus.api.query_file import read_document
from circinus.api.schemas.routes import RouteInput, VerifiedUnitView
from circinus.api.schemas.violations import checked
from circinus.api.text import formats, tables
from circinus.api.text.screen import Screen
from circinus.pipelines import checks

_COLUMNS = ("unit", "score", "reference", "difference", "agrees", "failed")


def verify(
    screen: Screen,
    file: Annotated[Path, Argument(metavar="FILE", help="YAML of a route.", dir_okay=False)],
    probes: Annotated[
        Path,
        Option(
            metavar="PROBES",
            help='A line {"input": ..., "expected": ...} each; the input is sent by POST.',
            dir_okay=False,
        ),
    ],
    metric: MetricName = None,
    url: Annotated[
        list[str] | None, Option(metavar="UNIT=URL", help="Default: the unit's Service.")
    ] = None,
    tolerance: Annotated[
        float | None,
        Option(help="That a mean score may be below the first unit's; default: the route's."),
    ] = None,
) -> None:
    """Hold the outputs of a route's units, asked over HTTP, against those of the first one.

    Sends as many probes as the route says (verify). Ends with 3 if a unit does not agree, or one
    of its probes failed.
    """
    # what sends them, that no other command should wait for
    from circinus.api.use_cases.route_files import unit_urls, verified

    asked = checked(RouteInput, read_document(file))
    terms = asked.verify
    if tolerance is not None:
        checks.probability("--tolerance", tolerance)
        terms = terms.model_copy(update={"tolerance": tolerance})
    urls = unit_urls(asked, pairs("--url", url, "must be UNIT=URL, each unit once"))
    given = probes_here(probes, metric, terms)
    found = verified(urls, given)
    screen.show(
        tables.table(
            f"{asked.name}: {len(given.examples)} probes, tolerance {given.tolerance:g}",
            *_COLUMNS,
            right=(1, 2, 3),
            rows=map(_row, found),
        ),
        document={"name": asked.name, "probes": len(given.examples), "units": found},
    )
    leave(ExitCode.OK if all(unit.agrees for unit in found) else ExitCode.INFEASIBLE)


def _row(unit: VerifiedUnitView) -> tuple[str, ...]:
    score, difference = unit.score, unit.difference
    known = score is not None or unit.reference != unit.name
    return (
        unit.name,
        formats.UNKNOWN if score is None else f"{score:.3f}",
        f"{unit.reference} {unit.reference_score:.3f}" if known else formats.UNKNOWN,
        formats.UNKNOWN if difference is None else f"{difference:+.3f}",
        "yes" if unit.agrees else "no",
        unit.failed,
    )
