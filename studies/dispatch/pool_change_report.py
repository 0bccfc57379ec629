"""What a pool-change study came to: a line for each scheme, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, mode

from circinus.studies.dispatch.pool_change import CHOOSING, PoolChangeRow
from circinus.studies.report.charts import COLOURS, Bar, bars
from circinus.studies.report.tables import grouped


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChangeLine:
    """What a scheme came to, over seeds: its best row each, of those that saw as many sizes."""

    scheme: str  # who chose
    seen: float  # sizes that the choice is of, mean
    tried: float  # pools, mean
    pool: str  # that was chosen most often
    rate_rps: float  # mean
    of_best: float  # mean
    least_of_best: float  # the worst seed's
    first_of_best: float  # of the first pool that was tried, mean


def lines_of(rows: Sequence[PoolChangeRow]) -> list[PoolChangeLine]:
    """Return a line for each scheme, and one more where it chose again a window later."""
    found: dict[tuple[str, int], list[list[PoolChangeRow]]] = {}
    for (scheme, _), of_seed in grouped(rows, "scheme", "seed").items():
        for place, tries in enumerate(grouped(of_seed, "seen").values()):
            found.setdefault((scheme, place), []).append(tries)
    return [_line(scheme, tries) for (scheme, _), tries in sorted(found.items(), key=_later)]


def _later(item: tuple[tuple[str, int], object]) -> int:
    return item[0][1]


def _line(scheme: str, tries: Sequence[Sequence[PoolChangeRow]]) -> PoolChangeLine:
    best = [max(of, key=lambda row: row.rate_rps) for of in tries]
    return PoolChangeLine(
        scheme=scheme,
        seen=mean(row.seen for row in best),
        tried=mean(of[-1].evaluation for of in tries),
        pool=mode(row.pool for row in best),
        rate_rps=mean(row.rate_rps for row in best),
        of_best=mean(row.of_best for row in best),
        least_of_best=min(row.of_best for row in best),
        first_of_best=mean(of[0].of_best for of in tries),
    )


def picture(rows: Sequence[PoolChangeRow]) -> str:
    """Return an SVG: the rate over the best pool's, of each line."""
    found = []
    for line in lines_of(rows):
        colour = COLOURS[0] if line.scheme in CHOOSING else COLOURS[-1]
        note = f"{line.of_best:.3f}; {line.tried:.3g} tried"
        name = f"{line.scheme}, {line.seen:.0f} sizes"
        found.append(Bar(name=name, value=line.of_best, error=0.0, note=note, colour=colour))
    first = rows[0]
    title = f"{first.model}: {first.before} to {first.after}, rate over the best pool's"
    return bars(title, found)
