"""`circinus pool`: which instances to rent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import RenderableType
from typer import Option

from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.rendering import tables
from circinus.api.cli.screen import Screen
from circinus.deploy.methods import DEFAULT
from circinus.pipelines.files import read_file
from circinus.pipelines.instance_types import parse_catalogue
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES

if TYPE_CHECKING:
    from circinus.api.use_cases.pools import PoolAnswer
    from circinus.scheduler.simulation.pool_choice import PoolOffer

_MIXES = "kairos, ribbon, gaussian, or a file with a size per line"
_ARRIVALS = "poisson, bursty, or a file with seconds per line"
_METHODS = (
    "simulated; as published kairos (tries none) or kairos_plus; bound (no dispatcher exceeds it)."
)


def choose(
    screen: Screen,
    latency: Annotated[Path, Option(metavar="CSV", help="Measured latencies.", dir_okay=False)],
    model: Annotated[str, "Its name in the file."],
    qos_ms: Annotated[float, "Requests are due within."],
    budget: Annotated[float | None, "USD per hour: the largest rate for it."] = None,
    rate: Annotated[float | None, "Requests per second: the cheapest pool for it."] = None,
    types: Annotated[
        str, Option(help="By commas, the base type first.", show_default="those of the file")
    ] = "",
    prices: Annotated[
        Path | None, Option(metavar="YAML", help="Catalogue, before the built-in one.")
    ] = None,
    mix: Annotated[str, Option(metavar="NAME|FILE", help=f"Batch sizes: {_MIXES}.")] = "kairos",
    arrivals: Annotated[str, Option(metavar="NAME|FILE", help=f"Gaps: {_ARRIVALS}.")] = "poisson",
    dispatch: Annotated[str, f"In use, of {', '.join(DISPATCH_POLICIES)}."] = DEFAULT.dispatch,
    method: Annotated[str, _METHODS] = "simulated",
    sampled: Annotated[bool, "Each run takes its own luck, instead of the mean."] = False,
    requests: Annotated[int, Option(help="Of a simulated run.", min=100)] = 10_000,
    seed: Annotated[int, Option(help="Of all draws.", min=0)] = 0,
) -> None:
    """Choose instances to rent: most requests in time for a budget, or least money for a rate.

    The CSV has the columns model, instance, batch, mean_ms and std_ms. In time: 99 % within
    --qos-ms. Ends with 3 if no pool will do.
    """
    # seconds of compiled simulator, that no other command should wait for
    from circinus.api.use_cases.pools import PoolTerms, choose_pool, latencies_of
    from circinus.scheduler.simulation.loads import load_of

    terms = PoolTerms(
        qos_s=qos_ms / 1e3,
        budget_usd_per_hour=budget,
        rate_rps=rate,
        types=types.split(",") if types else (),
        prices=parse_catalogue(read_file(prices, "--prices")) if prices else {},
        load=load_of(mix, arrivals),
        dispatch=dispatch,
        method=method,
        sampled=sampled,
        requests=requests,
        seed=seed,
    )
    lines = read_file(latency, "--latency").decode("utf-8", "replace").splitlines()
    answer = choose_pool(latencies_of(lines, model), terms)
    screen.show(*_told(answer), document=answer)
    leave(ExitCode.OK if answer.choice.chosen else ExitCode.INFEASIBLE)


def _told(answer: PoolAnswer) -> list[RenderableType]:
    choice = answer.choice
    notes = [f"left out: {each}" for each in choice.left_out]
    if choice.chosen is None:
        return [f"no pool: {choice.reason}", *notes]
    counts = zip(choice.types, choice.chosen.pool, strict=True)
    pool = ", ".join(f"{count} {kind}" for kind, count in counts if count)
    named = {each.name: each for each in answer.priced}
    used = [named[kind] for kind in choice.types]
    origins = dict.fromkeys(f"{each.provider}, {each.source}, of {each.date}" for each in used)
    rows = [_row(offer, choice.chosen) for offer in choice.front]
    front = tables.table("Price and rate", *_HEAD, right=(1, 2, 3), rows=rows)
    return [
        f"pool: {pool}",
        f"price: {choice.chosen.price_usd_per_hour:.4g} USD/h ({'; '.join(origins)})",
        f"rate: {_rate(choice.chosen)}, bound {choice.chosen.bound_rps:.4g}/s",
        f"why: {choice.reason}",
        f"how sure: {choice.sure}",
        *notes,
        f"types: {', '.join(choice.types)}",
        front,
    ]


_HEAD = ("Pool", "USD/h", "Rate, 1/s", "Bound, 1/s")


def _rate(offer: PoolOffer) -> str:
    return "not tried" if offer.rate_rps is None else f"{offer.rate_rps:.4g}/s in time"


def _row(offer: PoolOffer, chosen: PoolOffer) -> tuple[str, ...]:
    mark = " *" if offer.pool == chosen.pool else ""
    rate = "-" if offer.rate_rps is None else f"{offer.rate_rps:.1f}"
    pool = ",".join(map(str, offer.pool)) + mark
    return pool, f"{offer.price_usd_per_hour:.3f}", rate, f"{offer.bound_rps:.1f}"
