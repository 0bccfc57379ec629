"""`circinus study pool`: strategies that choose pools, on tables of what every pool does.

A table is published, one's own, or simulated from measured latencies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from circinus.api.cli.options import FirstSeed, numbers
from circinus.api.text.screen import Screen
from circinus.pipelines import checks
from circinus.pipelines.io.files import read_file
from circinus.scheduler.pool.ribbon_space import EarlyEnd
from circinus.scheduler.pool.search import PoolSpace
from circinus.scheduler.simulation.loads import load_of
from circinus.scheduler.simulation.measurements import parse_latencies
from circinus.scheduler.simulation.trying import TrialLoad
from circinus.studies.data import LOOKUPS
from circinus.studies.pool import study as pool_study
from circinus.studies.pool.lookups import (
    MOST_OF_A_TYPE,
    PRICE_FILE,
    PUBLISHED,
    PoolLookup,
    PoolProfile,
    SimulatedLoad,
    prices_of,
    read_lookup,
)
from circinus.studies.pool.methods import CALIBRATED, POOL_METHODS, WITHOUT_LATENCIES
from circinus.studies.pool.study import LoadChange, LoadChangeRow
from circinus.studies.report.tables import markdown, written

_COUNTS = (
    f"To simulate: most of each type; derived: on which more do not improve, to {MOST_OF_A_TYPE}."
)
_TYPES = "To simulate: by commas, in order; derived: those that serve more for a dollar (Ribbon)."
_EARLIER = "To simulate: load-change.csv has the value of Ribbon's trials at that rate here."
_QUEUE = "To simulate: a trial ends if more wait, or too many are late; none: with all requests."
_NAMES = ",".join(WITHOUT_LATENCIES)
_LATENCY = f"Measured latencies: {CALIBRATED} uses them; with --model a table is simulated."
_LOOKUP = "Price and percent in time of every pool; types in order, unless published; repeatable."


def pool(
    screen: Screen,
    out: Annotated[Path, Option(help="Folder of pool.csv and pool.html.", file_okay=False)],
    lookup: Annotated[
        list[str] | None,
        Option(metavar="[TYPE,TYPE,...=]JSON", help=_LOOKUP, show_default="Ribbon's two"),
    ] = None,
    latency: Annotated[Path | None, Option(metavar="CSV", help=_LATENCY)] = None,
    model: Annotated[str, "To simulate: its name in the file."] = "",
    qos_ms: Annotated[float, "Requests are due within, unless published, as the next two."] = 0.0,
    rate: Annotated[float, "Requests per second."] = 0.0,
    mix: Annotated[str, Option(metavar="NAME|FILE", help="Sizes of requests.")] = "ribbon",
    earlier_rate: Annotated[float | None, _EARLIER] = None,
    longest_queue: Annotated[int | None, Option(help=_QUEUE, min=0)] = None,
    types: Annotated[str, Option(help=_TYPES, show_default="derived")] = "",
    counts: Annotated[str, Option(help=_COUNTS, show_default="derived")] = "",
    strategies: Annotated[str, f"By commas, of {', '.join(POOL_METHODS)}."] = _NAMES,
    seeds: Annotated[int, Option(help="Searches of each strategy.", min=1)] = 40,
    first_seed: FirstSeed = 0,
    prices: Annotated[
        Path | None,
        Option(metavar="CSV", help=f"instance,usd_per_hour; none: {PRICE_FILE} beside each."),
    ] = None,
    most: Annotated[
        int | None, Option(help="Evaluations of a search; none: all pools.", min=1)
    ] = None,
    prunes_below: Annotated[
        float | None,
        Option(help="What misses 99 % by more prunes what it contains; none: as each strategy."),
    ] = None,
) -> None:
    """Count the pools that strategies try before the cheapest with 99 % of the requests in time.

    Besides: violating pools among them, their prices as a share of trying every pool, and runs
    that never try the optimum because it was pruned. Every search is in pool.csv.
    """
    published = () if latency is not None else map(str, LOOKUPS)
    lookups = [_read(word, prices) for word in lookup or published]
    names = tuple(strategies.split(","))
    change: LoadChange | None = None
    if latency is not None:
        rows = read_file(latency, "--latency").decode("utf-8", "replace").splitlines()
        rule = f"must be told, or {CALIBRATED} be among the strategies"
        checks.require(bool(model) or CALIBRATED in names, "--model", rule, "neither")
        if CALIBRATED in names:
            own = partial(TrialLoad, mix=load_of(mix).sizes, qos_s=qos_ms / 1e3, rate_rps=rate)
            lookups = [_profiled(each, rows, own) for each in lookups]
        if model:
            load = SimulatedLoad(
                table=parse_latencies(rows, model), qos_s=qos_ms / 1e3, load=load_of(mix)
            )
            load, space = _space(load, rate, types, counts, prices or latency.parent / PRICE_FILE)
            ends = None if longest_queue is None else EarlyEnd(longest_queue=longest_queue)
            lookups.append(load.lookup(space, rate, ends))
            if earlier_rate is not None:
                before = load.lookup(space, earlier_rate, ends)
                change = LoadChange(earlier=before, new=lookups[-1])
    study = pool_study.PoolStudy(
        lookups=tuple(lookups),
        strategies=names,
        seeds=seeds,
        first_seed=first_seed,
        most=most,
        prunes_below=prunes_below,
    )
    with screen.follow() as lines:

        def show(row: pool_study.PoolRow) -> None:
            done = row.seed - first_seed + 1
            key = f"{row.model} {row.strategy}"
            lines.update({key: (str(done * 10 // seeds), f"{done} of {seeds} searches")})

        if change is not None:
            run_seeds = range(first_seed, first_seed + seeds)
            written(change.rows(run_seeds), LoadChangeRow, out / "load-change.csv")
        cells = pool_study.summary(pool_study.run(study, out, show))
    optima = [pool_study.optimum_line(one) for one in study.lookups]
    document = {"folder": out, "cells": cells, "optima": optima}
    screen.show("\n".join(optima), markdown(cells, pool_study.PoolCell), document=document)


def _read(word: str, prices: Path | None) -> PoolLookup:
    types, _, name = word.rpartition("=")
    return read_lookup(Path(name), types.split(",") if types else None, prices)


def _profiled(lookup: PoolLookup, rows: Sequence[str], own: Callable[[], TrialLoad]) -> PoolLookup:
    model = lookup.model
    table = parse_latencies(rows, model).of_kinds(lookup.space.types)
    load = PUBLISHED[model].load if model in PUBLISHED else own()
    return replace(lookup, profile=PoolProfile(table=table, load=load))


def _space(
    load: SimulatedLoad, rate_rps: float, types: str, counts: str, prices: Path
) -> tuple[SimulatedLoad, PoolSpace]:
    """Return a load on the types that are chosen from, and their pools."""
    kinds = load.table.kinds
    if types:
        load = replace(load, table=load.table.of_kinds(types.split(",")))
    else:
        load = load.of_useful(prices_of(kinds, prices))
    kinds = load.table.kinds
    most = numbers("--counts", counts, "must be N,N,...") if counts else load.most(rate_rps)
    checks.require(len(most) == len(kinds), "--counts", f"must be {len(kinds)}", counts)
    return load, PoolSpace(types=kinds, prices=prices_of(kinds, prices), most=most)
