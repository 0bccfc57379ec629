"""`circinus breakpoint`: how many requests a second one of each deployment unit takes."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from circinus.api.bootstrap.registry import pipeline_here, reference_here
from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.options import read_route
from circinus.api.schemas.routes import DeploymentUnitInput, RouteInput
from circinus.api.settings import Settings
from circinus.api.text import formats, tables
from circinus.api.text.screen import Follow, Screen
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.files import read_file

if TYPE_CHECKING:  # imports of sending and judging, only for this command
    from circinus.api.bootstrap.ramping import Ramping
    from circinus.api.schemas.routes import BreakingPointView
    from circinus.deploy.routes.ramping import Ramped, SentLate
    from circinus.scheduler.routing.breaking_point import NextRate, RampStep

_COLUMNS = ("unit", "requests/s", "95 % interval", "p50", "p95", "stopped by", "USD per 1,000")
_OF_STEP = ("per_s", "requests", "failed", "served_per_s", "mean_s", "p50_s", "p95_s", "busy")
_BODY_BYTES = 2**26


def breakpoint_(
    screen: Screen,
    file: Annotated[
        Path | None, Argument(metavar="[ROUTE]", help="YAML of a route.", dir_okay=False)
    ] = None,
    unit: Annotated[list[str] | None, Option(help="Of the route; default: all.")] = None,
    url: Annotated[str | None, "An endpoint in place of workers that are started here."] = None,
    body: Annotated[
        Path | None, Option(metavar="FILE", help="Sent to it as JSON by POST.", dir_okay=False)
    ] = None,
    latency: Annotated[
        float | None,
        Option(metavar="SECONDS", help="95 % may take; default: the route's, or any."),
    ] = None,
    busy: Annotated[float, Option(help="Part of the time that a unit may work at most.")] = 0.8,
    step_s: Annotated[float, Option(help="Seconds that a rate is held for, or twice.")] = 5.0,
    most: Annotated[float, Option(help="Requests per second that are never exceeded.")] = 1000.0,
    seed: Annotated[int, Option(min=0, help="Of when requests are sent.")] = 0,
    out: Annotated[
        Path | None, Option(help="Folder of breakpoint.csv and pictures.", file_okay=False)
    ] = None,
    write: Annotated[bool, "Write the breaking points into the route file."] = False,
) -> None:
    """Raise the load of one of each unit until it breaks: too slow, too busy, or falling behind.

    Units of a route with a pipeline are started here, one after the other. Ends with 3 if a unit
    holds no rate that was tried.
    """
    from circinus.api.bootstrap.ramping import Ramping
    from circinus.api.use_cases.route_files import breaking_view
    from circinus.deploy.routes.ramping import RampSettings
    from circinus.scheduler.routing.breaking_point import BreakingLimits

    route = None if file is None else read_route(file)
    checks.require(route is not None or url is not None, "ROUTE", "must be given, or --url", None)
    checks.require(route is not None or not write, "--write", "must be with ROUTE", write)
    checks.require(url is not None or body is None, "--body", "must be with --url", body)
    checks.share("--busy", busy)
    for name, value in {"--step-s": step_s, "--most": most, "--latency": latency}.items():
        checks.positive(name, value)
    allowed_s = route.latency_s if latency is None and route is not None else latency
    content = None if body is None else read_file(body, "--body", _BODY_BYTES)
    units = _chosen(route, unit or (), one=url is not None)
    limits = BreakingLimits(latency_s=allowed_s, busy=busy)
    settings = RampSettings(limits=limits, step_s=step_s, most_per_s=most)
    views = []
    with screen.follow() as lines:
        for each in units:
            name = "endpoint" if each is None else each.name
            ramping = Ramping(settings=settings, seed=seed, observer=_Progress(lines, name))
            if url is not None:
                ramped = ramping.endpoint(url, content)
            else:
                ramped = _of_unit(route, each, ramping)
            machine = None if each is None else each.unit
            views.append(breaking_view(name, ramped, unit=machine, latency_s=allowed_s))
            if out is not None:
                _keep(views, out)
    if file is not None and write:
        _write(screen, file, views)
    table = tables.table("", *_COLUMNS, right=(1, 2, 3, 4, 6), rows=map(_row, views))
    screen.show(table, *_notes(views), document={"units": views})
    leave(ExitCode.OK if all(each.per_s > 0 for each in views) else ExitCode.INFEASIBLE)


def _chosen(
    route: RouteInput | None, names: Sequence[str], *, one: bool
) -> Sequence[DeploymentUnitInput | None]:
    """Return the units to measure; None stands for an endpoint that no route names."""
    if route is None:
        checks.require(not names, "--unit", "must be with ROUTE", list(names))
        return [None]
    _ = route.route  # no two of a name
    known = {each.name: each for each in route.units}
    for name in names:
        checks.among("--unit", name, known)
    chosen = [each for each in route.units if not names or each.name in names]
    rule = "must name the one that --url is, of a route with several"
    checks.require(not one or len(chosen) == 1, "--unit", rule, list(names))
    rule = "must be given, or --url: there is nothing that could be started"
    checks.require(one or route.pipeline is not None, "pipeline", rule, route.pipeline)
    return chosen


def _of_unit(
    route: RouteInput | None, unit: DeploymentUnitInput | None, ramping: Ramping
) -> Ramped:
    from circinus.api.use_cases.routes import workloads_of

    if unit is None or route is None or route.pipeline is None:  # see `_chosen`
        raise InvalidInput.of("pipeline", "must be given", None)
    each = workloads_of(route, reference_here(route.pipeline))
    workload = next(work for work in each if work.unit.name == unit.name)
    return ramping.unit(workload, pipeline_here(route.pipeline), Settings().worker_logs)


@dataclass(slots=True)
class _Progress:
    """Prints the progress of a ramp."""

    lines: Follow
    unit: str
    _made: int = 0

    def begins(self, rate: NextRate) -> None:
        text = f"{rate.per_s:.4g} requests/s for {rate.lasts_s:.0f} s ({rate.phase.value})"
        self.lines.update({self.unit: (f"{self._made} begins", text)})

    def ended(self, step: RampStep | SentLate) -> None:
        from circinus.deploy.routes.ramping import SentLate

        self._made += 1
        if isinstance(step, SentLate):
            figures = f"sent {formats.seconds(step.late_s)} late: not counted"
        else:
            why = ", ".join(step.broken_by) or "holds"
            figures = f"{step.served_per_s:.4g}/s served, p95 {_latency(step.p95_s)}: {why}"
        self.lines.update({self.unit: (f"{self._made} ended", f"{step.per_s:.4g}/s: {figures}")})


def _latency(value: float | None) -> str:
    return formats.seconds(value) if value is not None and isfinite(value) else "failed"


def _row(each: BreakingPointView) -> tuple[str, ...]:
    high = "more" if each.high_per_s is None else f"{each.high_per_s:.4g}"
    usd, at = each.usd_per_1000, each.at
    return (
        each.unit,
        f"{each.per_s:.4g}",
        f"{each.low_per_s:.4g} to {high}",
        formats.UNKNOWN if at is None else _latency(at.p50_s),
        formats.UNKNOWN if at is None else _latency(at.p95_s),
        ", ".join(each.reasons),
        formats.UNKNOWN if usd is None else formats.amount(usd),
    )


def _notes(views: Sequence[BreakingPointView]) -> Iterator[str]:
    for each in views:
        if each.late:
            rates = ", ".join(f"{step.per_s:.4g}" for step in each.late)
            yield f"{each.unit}: not counted, since they were sent late: {rates} requests/s"
        if each.failure:
            yield f"{each.unit}: requests failed, the last one with: {each.failure}"
        if each.high_per_s is None:
            yield f"{each.unit}: no rate that was tried is surely too much"
        if not each.per_s:
            yield f"{each.unit}: no rate that was tried holds"


def _keep(views: Sequence[BreakingPointView], folder: Path) -> None:
    """Write what there is after each unit: a later one may fail."""
    from circinus.api.drawing.ramp import ramp_chart

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "breakpoint.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["unit", *_OF_STEP, "broken_by", "sure"])
        for each in views:
            for step in each.steps:
                figures = (getattr(step, name) for name in _OF_STEP)
                ends = [" ".join(step.broken_by), str(step.sure).lower()]
                writer.writerow(
                    [each.unit, *("" if v is None else f"{v:.6g}" for v in figures), *ends]
                )
    (folder / f"{views[-1].unit}.svg").write_text(ramp_chart(views[-1]), encoding="utf-8")


def _write(screen: Screen, file: Path, views: Sequence[BreakingPointView]) -> None:
    """Put figures into a route file, and leave all else as it is; of what holds nothing, none."""
    from circinus.api.use_cases.route_files import with_breaking_points

    figures = {
        each.unit: {"most_per_s": each.per_s, "latency_s": each.at.mean_s}
        for each in views
        if each.per_s > 0 and each.at is not None and each.at.mean_s is not None
    }
    text = with_breaking_points(file.read_bytes().decode("utf-8"), figures)
    beside = file.with_name(f".{file.name}.new")
    beside.write_bytes(text.encode("utf-8"))
    beside.replace(file)
    screen.note(
        f"written to {file}: most_per_s and latency_s of {', '.join(figures) or 'no unit'}"
    )
