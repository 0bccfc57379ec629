"""`circinus pool`: which instances to rent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from typer import Exit, Option, Typer

from circinus.api import formats
from circinus.api.cli.command import ExitCode, command
from circinus.api.cli.rendering import tables
from circinus.api.cli.screen import Screen
from circinus.api.instance_catalogue import known_prices
from circinus.api.schemas.pools import PoolChoiceView, PoolView, PricedType
from circinus.api.use_cases.pools import PoolQuestion, choose_pool, priced
from circinus.deploy.methods import DEFAULT
from circinus.pipelines import checks
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.simulation.draws import draw
from circinus.scheduler.simulation.loads import ARRIVALS, MIXES, load_of
from circinus.scheduler.simulation.measurements import LatencyTable, parse_latencies

_MS = 1e3
_FEW = 4000  # requests of the draw that candidates are found on
_MIXES = f"{', '.join(MIXES)}, or a file with a size per line"
_ARRIVALS = f"{', '.join(ARRIVALS)}, or a file with seconds per line"


def group() -> Typer:
    """Give the commands, for `circinus pool`."""
    made = Typer(no_args_is_help=True)
    made.callback()(lambda: None)  # else the only command would stand for the group
    command(made, choose)
    return made


def choose(
    screen: Screen,
    latency: Annotated[Path, Option(metavar="CSV", help="Measured latencies.", dir_okay=False)],
    model: Annotated[str, "Its name in the file."],
    qos_ms: Annotated[float, "99 of 100 requests are due within."],
    rate: Annotated[float | None, "Requests per second: what is the cheapest pool for it?"] = None,
    budget: Annotated[float | None, "USD per hour: what serves the most for it?"] = None,
    types: Annotated[
        str | None, "Of the file, by commas, the base type first; left out: all."
    ] = None,
    catalogue: Annotated[
        list[Path] | None, Option(metavar="YAML", help="Types and prices; repeatable.")
    ] = None,
    mix: Annotated[str, Option(metavar="NAME|FILE", help=f"Batch sizes: {_MIXES}.")] = "kairos",
    arrivals: Annotated[str, Option(metavar="NAME|FILE", help=f"Gaps: {_ARRIVALS}.")] = "poisson",
    dispatch: Annotated[
        str, f"Who sends requests to instances; of {', '.join(DISPATCH_POLICIES)}."
    ] = DEFAULT.dispatch,
    most: Annotated[int, Option(help="Instances of each type, at most.", min=1)] = 30,
    requests: Annotated[int, Option(help="Of each draw.", min=100)] = 20_000,
    draws: Annotated[int, Option(help="That must all be served in time.", min=1)] = 3,
    seed: Annotated[int, Option(help="The first of their seeds.", min=0)] = 0,
) -> None:
    """Choose instances to rent: the cheapest for a rate, or the largest rate for a budget.

    Nothing is rented to find out: the dispatcher serves drawn requests on the pools that may be
    best, by the bound on what any dispatcher could. The CSV has the columns model, instance,
    batch, mean_ms and std_ms.
    """
    table = _table(latency, model, types)
    load, qos_s = load_of(mix, arrivals), qos_ms / _MS
    checks.positive("--qos-ms", qos_ms)
    drawn = [
        draw(table, qos_s, load, count, seed + n, sampled=bool(table.std_s.any()))
        for n, count in enumerate((min(_FEW, requests), *[requests] * draws))
    ]
    question = PoolQuestion(
        draws=drawn,
        prices=priced(table.kinds, known_prices(catalogue or ())),
        dispatch=dispatch,
        rate_rps=rate,
        budget_usd_per_hour=budget,
        most=most,
    )
    view = choose_pool(question)
    screen.show(*_shown(view), document=view.model_dump(mode="json"))
    if view.chosen is None:
        raise Exit(int(ExitCode.INFEASIBLE))


def _table(latency: Path, model: str, types: str | None) -> LatencyTable:
    with latency.open(encoding="utf-8") as lines:
        table = parse_latencies(lines, model)
    return table if types is None else table.only(types.split(","))


def _shown(view: PoolChoiceView) -> list[RenderableType]:
    front = tables.table(
        "More for more",
        *("USD/h", "Requests/s", "at most", "Instances"),
        right=(0, 1, 2),
        rows=([*_figures(each), _counts(each.counts)] for each in view.front),
    )
    chosen = view.chosen
    head = "no pool" if chosen is None else f"{_counts(chosen.counts)} for {_dollars(chosen)}"
    return [f"{head}: {view.why}.", front, _sources(view.prices)]


def _figures(pool: PoolView) -> tuple[str, str, str]:
    return f"{pool.usd_per_hour:.4g}", f"{pool.rate_rps:.4g}", f"{pool.bound_rps:.4g}"


def _dollars(pool: PoolView) -> str:
    return formats.dollars(pool.usd_per_hour)


def _counts(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {kind}" for kind, count in counts.items())


def _sources(prices: Mapping[str, PricedType]) -> str:
    told = {(each.source, each.date) for each in prices.values()}
    return "Prices: " + "; ".join(f"{source}, {day}" for source, day in sorted(told)) + "."
