"""`circinus study pool`: strategies that choose pools, on tables of what every pool does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from circinus.api.cli.screen import Screen
from circinus.studies.pool import study as pool_study
from circinus.studies.pool.contestants import CONTESTANTS
from circinus.studies.pool.lookups import PRICE_FILE, PoolLookup, read_lookup
from circinus.studies.report.tables import markdown

_NAMES = ",".join(CONTESTANTS)
_LOOKUP = "Price and percent in time of every pool; types in order, unless published; repeatable."


def pool(
    screen: Screen,
    lookup: Annotated[list[str], Option(metavar="[TYPE,TYPE,...=]JSON", help=_LOOKUP)],
    out: Annotated[Path, Option(help="Folder of pool.csv and pool.html.", file_okay=False)],
    strategies: Annotated[str, f"By commas, of {', '.join(CONTESTANTS)}."] = _NAMES,
    seeds: Annotated[int, Option(help="Searches of each strategy.", min=1)] = 40,
    first_seed: Annotated[int, Option(help="The first seed.", min=0)] = 0,
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
    asked = pool_study.PoolStudy(
        lookups=tuple(_read(word, prices) for word in lookup),
        strategies=tuple(strategies.split(",")),
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

        cells = pool_study.summary(pool_study.run(asked, out, show))
    told = [pool_study.optimum_line(one) for one in asked.lookups]
    document = {"folder": out, "cells": cells, "optima": told}
    screen.show("\n".join(told), markdown(cells, pool_study.PoolCell), document=document)


def _read(word: str, prices: Path | None) -> PoolLookup:
    types, _, name = word.rpartition("=")
    return read_lookup(Path(name), types.split(",") if types else None, prices)
