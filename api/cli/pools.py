"""`circinus pool`: which instances to rent, and queries that a mix of machine types serves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from typer import Argument, Option

from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.options import QueryId, Token, Url, counted, pairs
from circinus.api.client import AsyncClient, Client
from circinus.api.schemas.pools import (
    PoolChoiceView,
    PoolOfferView,
    PoolView,
    QueryPoolView,
)
from circinus.api.settings import DEFAULT_URL
from circinus.api.text import formats, tables
from circinus.api.text.screen import Screen
from circinus.deploy.methods import DEFAULT
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.io.files import read_file
from circinus.pipelines.io.instance_types import parse_catalogue
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.pool.search import PoolTrial

_MIXES = "kairos, ribbon, gaussian, or a file with a size per line"
_ARRIVALS = "poisson, bursty, or a file with seconds per line"
_METHODS = (
    "simulated; as published kairos (tries none), kairos_plus or ribbon; bound (no dispatcher "
    "exceeds it); oracle (a reference: who knows all requests)."
)
_REQUESTS = 10_000


def choose(
    screen: Screen,
    client: Client,
    latency: Annotated[
        Path | None, Option(metavar="CSV", help="Measured latencies.", dir_okay=False)
    ] = None,
    query: Annotated[
        str | None, Option(metavar="ID", help="For a query, by its latest requests.")
    ] = None,
    model: Annotated[str | None, Option(help="Its name in the file.", show_default=False)] = None,
    tier: Annotated[str | None, Option(help="With --query: of several with types.")] = None,
    qos_ms: Annotated[
        float | None, Option(help="Requests are due within.", show_default="the query's")
    ] = None,
    budget: Annotated[
        float | None, "USD per hour: the largest rate for it; with a rate, the most it may cost."
    ] = None,
    rate: Annotated[
        float | None,
        Option(help="Requests per second: the cheapest pool.", show_default="that of the query"),
    ] = None,
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
    requests: Annotated[int, Option(help="Of a simulated run.", min=100)] = _REQUESTS,
    seed: Annotated[int, Option(help="Of all draws.", min=0)] = 0,
) -> None:
    """Choose instances to rent: most requests in time for a budget, or least money for a rate.

    The CSV has the columns model, instance, batch, mean_ms and std_ms. For a query the service
    has them, and the sizes of its requests. In time: 99 % within --qos-ms. Ends with 3 if no pool
    suffices.
    """
    one_source = (latency is None) != (query is None)
    checks.require(one_source, "--latency", "must be given, or --query", latency)
    if latency is None or query is not None:
        of_file: dict[str, object] = {
            "--model": model,
            "--types": types or None,
            "--prices": prices,
        }
        of_file |= {"--mix": mix if mix != "kairos" else None, "--sampled": sampled or None}
        of_file |= {"--arrivals": arrivals if arrivals != "poisson" else None}
        of_file |= {"--dispatch": dispatch if dispatch != DEFAULT.dispatch else None}
        for name, value in of_file.items():
            checks.require(value is None, name, "must be left out with --query", value)
        bounds = {"qos_ms": qos_ms, "rate_per_s": rate, "budget_usd_per_hour": budget}
        values = {"method": method, "seed": seed, "tier": tier, **bounds}
        values |= {"requests": requests} if requests != _REQUESTS else {}
        body = {name: value for name, value in values.items() if value is not None}
        pool = client.choose_query_pool(query or "", body)
        screen.show(*_of_query(pool), document=pool)
        leave(ExitCode.OK if pool.slices else ExitCode.INFEASIBLE)
        return
    # seconds of compiled simulator, that no other command should wait for
    from circinus.api.use_cases.pools import PoolTerms, choose_pool
    from circinus.scheduler.simulation.loads import load_of
    from circinus.scheduler.simulation.measurements import parse_latencies

    for name, wanted in {"--model": model, "--qos-ms": qos_ms}.items():
        checks.require(wanted is not None, name, "must be given with --latency", wanted)
    terms = PoolTerms(
        qos_s=(qos_ms or 0.0) / 1e3,
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
    answer = choose_pool(parse_latencies(lines, model or ""), terms)
    screen.show(*_choice_lines(answer), document=answer)
    leave(ExitCode.OK if answer.chosen else ExitCode.INFEASIBLE)


def _of_query(pool: QueryPoolView) -> list[RenderableType]:
    rate = "" if pool.rate_per_s is None else f", for {pool.rate_per_s:.4g}/s"
    rows = [
        (each.type, f"{each.mean_ms:.1f}", f"{each.slowest_ms:.1f}", each.known, str(each.room))
        for each in pool.types
    ]
    lines: list[RenderableType] = [
        *_choice_lines(pool.choice),
        f"of {pool.seen} requests{rate}, each {pool.qos_ms:.4g} ms on {pool.tier}",
        tables.table("Types", *_TYPES, right=(1, 2, 4), rows=rows),
    ]
    if pool.slices:
        counts = [f"{t}/{k}={n}" for t, kinds in pool.slices.items() for k, n in kinds.items()]
        lines.append(f"circinus pool apply {pool.query_id} {' '.join(counts)}")
    return lines


def _choice_lines(choice: PoolChoiceView) -> list[RenderableType]:
    notes = [f"left out: {each}" for each in choice.left_out]
    if choice.chosen is None:
        return [f"no pool: {choice.reason}", *notes]
    counts = zip(choice.types, choice.chosen.pool, strict=True)
    pool = ", ".join(f"{count} {kind}" for kind, count in counts if count)
    named = {each.name: each for each in choice.prices}
    used = [named[kind] for kind in choice.types]
    origins = dict.fromkeys(f"{each.provider}, {each.source}, of {each.date}" for each in used)
    rows = [_row(offer, choice.chosen) for offer in choice.front]
    front = tables.table("Price and rate", *_HEAD, right=(1, 2, 3), rows=rows)
    per_s = choice.chosen.rate_rps
    rate = "not tried" if per_s is None else f"{per_s:.4g}/s in time"
    return [
        f"pool: {pool}",
        f"price: {choice.chosen.price_usd_per_hour:.4g} USD/h ({'; '.join(origins)})",
        f"rate: {rate}, bound {choice.chosen.bound_rps:.4g}/s",
        f"why: {choice.reason}",
        f"how sure: {choice.sure}",
        *notes,
        f"types: {', '.join(choice.types)}",
        front,
    ]


_TYPES = ("Type", "Mean, ms", "Slowest, ms", "Known", "Room")
_HEAD = ("Pool", "USD/h", "Rate, 1/s", "Bound, 1/s")


def _row(offer: PoolOfferView, chosen: PoolOfferView) -> tuple[str, ...]:
    mark = " *" if offer.pool == chosen.pool else ""
    rate = "-" if offer.rate_rps is None else f"{offer.rate_rps:.1f}"
    pool = ",".join(map(str, offer.pool)) + mark
    return pool, f"{offer.price_usd_per_hour:.3f}", rate, f"{offer.bound_rps:.1f}"


_FORM = "TIER/TYPE=N"
_RULE = f"must be {_FORM}, each type once"


def apply(
    screen: Screen,
    client: Client,
    query_id: QueryId,
    slices: Annotated[
        list[str],
        Argument(metavar=f"{_FORM}...", help="Slices of a machine type, of the plan's share."),
    ],
    follow: Annotated[bool, "Choose it anew, and change it, when requests change."] = False,
) -> None:
    """Let a query be served by so many slices of machine types; refused if they do not fit.

    A tier that is not named is left to the plan. New instances serve before old ones end.
    """
    wanted: dict[str, dict[str, int]] = {}
    for name, number in pairs(_FORM, slices, _RULE).items():
        tier, _, kind = name.partition("/")
        checks.require(bool(tier and kind), _FORM, _RULE, f"{name}={number}")
        wanted.setdefault(tier, {})[kind] = counted(_FORM, name, number, _RULE)
    _show_pool(screen, client.set_pool(query_id, wanted, follow=follow))


def try_(
    screen: Screen,
    query_id: QueryId,
    rate: Annotated[float, Option(help="Requests per second that are sent.")],
    tier: Annotated[str | None, Option(help="Of several with types.")] = None,
    qos_ms: Annotated[
        float | None, Option(help="Requests are due within.", show_default="the query's")
    ] = None,
    trials: Annotated[int, Option(help="Most pools that are tried.", min=1)] = 20,
    lasts: Annotated[float, Option(help="Seconds of a trial.")] = 20.0,
    seed: Annotated[int, Option(help="Of proposals and arrivals.", min=0)] = 0,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Try pools of a deployed query live, as Ribbon proposes; the cheapest in time then serves.

    Each serves examples of the pipeline at the rate for a while; in time: 99 %. Requests of others
    meet the pools that are tried. Ends with 3, and the plan's own replicas, if none is in time.
    """
    # seconds of torch, that no other command should wait for
    from circinus.api.bootstrap.pool_trials import TrialTerms, TriedPools, tried_live

    terms = TrialTerms(rate_per_s=rate, lasts_s=lasts, most=trials, seed=seed)
    values = {"method": "bound", "rate_per_s": rate, "tier": tier, "qos_ms": qos_ms}
    body = {name: value for name, value in values.items() if value is not None}

    async def made() -> TriedPools:
        async with AsyncClient(url, token=token) as client:
            view = await client.choose_query_pool(query_id, body)
            with screen.follow() as lines:

                def tell(trial: PoolTrial) -> None:
                    lines.update({str(trial.pool): ("tried", f"{trial.value:.1%} in time")})

                return await tried_live(client, view, terms, SystemClock(), tell)

    done = asyncio.run(made())
    space, chosen = done.space, done.chosen
    rows = [
        (",".join(map(str, t.pool)), f"{space.cost(t.pool):.3f}", f"{t.value:.1%}")
        for t in done.trials
    ]
    head = f"types: {', '.join(space.types)}"
    last = "no pool is in time" if chosen is None else f"serves now: {chosen.pool}"
    table = tables.table("Tried", "Pool", "USD/h", "In time", right=(1, 2), rows=rows)
    document = {
        "types": space.types,
        "trials": [{"pool": t.pool, "in_time": t.value} for t in done.trials],
        "chosen": None if chosen is None else chosen.pool,
    }
    screen.show(head, table, last, document=document)
    leave(ExitCode.INFEASIBLE if chosen is None else ExitCode.OK)


def show(screen: Screen, client: Client, query_id: QueryId) -> None:
    """Show the mix of machine types of a query, and what is missing of it."""
    _show_pool(screen, client.pool(query_id))


def drop(screen: Screen, client: Client, query_id: QueryId) -> None:
    """Let a query be served by its plan's own replicas again."""
    view = client.drop_pool(query_id)
    screen.show(f"{query_id}: served by its plan's own replicas", document=view)


def _show_pool(screen: Screen, view: PoolView) -> None:
    counts = [f"{t}/{k}={n}" for t, kinds in view.slices.items() for k, n in kinds.items() if n]
    follows = ", follows the requests" if view.follow else ""
    lines = [f"{view.query_id}: {' '.join(counts)}, {view.state}{follows}"]
    if view.missing is not None:
        lines.append(f"missing: {view.missing}")
    if view.cost_usd_per_hour is not None:
        cost = formats.dollars(view.cost_usd_per_hour)
        lines.append(f"now on {', '.join(map(formats.machine, view.machines))}, {cost}")
    screen.show("\n".join(lines), document=view)
