"""Which stopping rule and which order of inputs decide cheapest, and how often they are wrong.

Every cell is a rule, an order and a distance of the accuracy SLO from the true mean; a profile
is wrong when its verdict is above for a mean below the bound, or below for one above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, nan
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circinus.deploy.methods import method_where
from circinus.pipelines import checks
from circinus.pipelines.io.trace import load_trace
from circinus.pipelines.model.query import SAMPLING
from circinus.studies.profiling import simulated_profiles as simulated
from circinus.studies.report.charts import COLOURS, panels, svg
from circinus.studies.report.pages import grid, heading, page, paragraph
from circinus.studies.report.tables import grouped, written

PROFILES_PER_SEED = 2_000

DISTANCES = tuple(
    sign * size for size in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4) for sign in (-1.0, 1.0)
)
"""SLO minus true mean: negative ones should end above."""

_ESTIMATE_INPUTS = 50  # the variance of the estimate is compared after: the paper's fewest
_CAPTION = (
    "Inputs used (mean over profiles) by the distance of the accuracy SLO from the true mean. "
    "Solid: random order; dashed: stratified."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingRow:
    """A line of `profiling.csv`. Figures are NaN in a cell without profiles."""

    trace: str  # name of the population
    rule: str  # see `RULES`
    sampling: str  # order of the inputs
    strata: str  # what strata of the inputs are made of, or why there are none
    method: str | None  # which stops by this rule in this order (`default` does not); empty: none
    slo_distance: float  # SLO minus true mean
    profiles: int  # simulated; 0 when no configuration has its bound in [0, 1]
    inputs_mean: float  # inputs used
    seconds_mean: float  # operator seconds used, nothing reused
    wrong_rate: float  # part of the profiles with the wrong verdict
    undecided_rate: float  # part of the profiles without a verdict
    # variance of the mean of the first 50 inputs (or a third, if there are fewer than 150), in
    # this order over that in a random order
    variance_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow:
    """A line of `prefix_cache.csv`."""

    trace: str  # its name
    seconds_ratio: float  # of operators, full grid: with a prefix cache over without


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The results of the study."""

    rows: tuple[ProfilingRow, ...]  # every cell
    cache_ratios: Mapping[str, float]  # trace -> ratio of its `CacheRow`


def run(
    traces: Sequence[Path],
    seeds: int,
    out: Path,
    *,
    observer: Callable[[ProfilingRow], None] = lambda row: None,
) -> Comparison:
    """Simulate profiles; write `profiling.csv`, `profiling.svg` and `profiling.html` into `out`.

    And `prefix_cache.csv`, what the prefix cache leaves of the seconds of the full grid. Each seed
    adds 2,000 profiles to every cell. InvalidInput if there is none, or a trace cannot be read.
    """
    checks.at_least("seeds", seeds, 1)
    loaded = {name: load_trace(folder) for name, folder in _named(traces).items()}
    ratios = {name: simulated.prefix_cache_ratio(trace) for name, trace in loaded.items()}
    rng = np.random.default_rng
    populations = [simulated.of_trace(name, trace, rng(0)) for name, trace in loaded.items()]
    populations += simulated.synthetic(rng(1))
    count = seeds * PROFILES_PER_SEED
    all_rows = (row for population in populations for row in study(population, count))
    path = out / "profiling.csv"
    rows = written(all_rows, ProfilingRow, path, digits=None, observer=observer)
    caches = [CacheRow(trace=name, seconds_ratio=ratio) for name, ratio in ratios.items()]
    written(caches, CacheRow, out / "prefix_cache.csv", digits=None)
    drawn = svg(picture(rows))
    (out / "profiling.svg").write_text(drawn, encoding="utf-8")
    (out / "profiling.html").write_text(_page(rows, drawn), encoding="utf-8")
    return Comparison(rows=tuple(rows), cache_ratios=ratios)


def study(
    population: simulated.Population, profiles: int, distances: Sequence[float] = DISTANCES
) -> Iterable[ProfilingRow]:
    """Yield the rows of one population."""
    ratios = {sampling: variance_ratio(population, sampling) for sampling in SAMPLING}
    for sampling in SAMPLING:
        order = simulated.orders(population, sampling, profiles, np.random.default_rng(2))
        for distance in distances:
            # The same seed for every order: differences are those of the order alone.
            drawn = simulated.draw(population, order, distance, np.random.default_rng(3))
            for name, rule in simulated.RULES.items():
                ended = None if drawn is None else simulated.end(rule, drawn)
                yield ProfilingRow(
                    trace=population.name,
                    rule=name,
                    sampling=sampling,
                    strata=population.strata,
                    method=_method(rule, sampling),
                    slo_distance=distance,
                    profiles=profiles if ended else 0,
                    inputs_mean=float(ended.inputs.mean()) if ended else nan,
                    seconds_mean=float(ended.seconds.mean()) if ended else nan,
                    wrong_rate=float((ended.signs == np.sign(distance)).mean()) if ended else nan,
                    undecided_rate=float((ended.signs == 0).mean()) if ended else nan,
                    variance_ratio=ratios[sampling],
                )


def _method(rule: simulated.Rule, sampling: str) -> str | None:
    if rule.stopping is None:  # also what the strategy that decides by itself has
        return None
    parts = (rule.stopping, sampling)
    return method_where(lambda m: (m.planning.stopping, m.planning.sampling) == parts)


def variance_ratio(population: simulated.Population, sampling: str, count: int = 2_000) -> float:
    """Return the variance of a short profile's mean in an order, over that in a random order.

    Averaged over at most 200 configurations; both from `count` orders.
    """
    scores = population.scores[:: max(1, len(population.scores) // 200)]
    inputs = min(_ESTIMATE_INPUTS, max(1, scores.shape[1] // 3))
    total = []
    for kind in (sampling, "random"):
        order = simulated.orders(population, kind, count, np.random.default_rng(4))[:, :inputs]
        taken = np.zeros((count, scores.shape[1]))
        np.put_along_axis(taken, order, 1.0 / inputs, axis=1)
        total.append(float((scores @ taken.T).var(axis=1, ddof=1).mean()))
    return total[0] / total[1] if total[1] > 0 else 1.0


def _named(folders: Sequence[Path]) -> Mapping[str, Path]:
    """Return every folder under its name, and as much of its path as sets it apart."""
    whole = list(dict.fromkeys(folder.resolve() for folder in folders))
    parts = 1
    while len(named := {"/".join(each.parts[-parts:]): each for each in whole}) < len(whole):
        parts += 1
    return named


def summary(rows: Sequence[ProfilingRow]) -> list[tuple[str, str, str, float, float, float]]:
    """Return (trace, rule, sampling, inputs, seconds, worst wrong rate) over the distances."""
    known = [row for row in rows if row.profiles]
    return [
        (
            *cell,
            sum(row.inputs_mean for row in cells) / len(cells),
            sum(row.seconds_mean for row in cells) / len(cells),
            max(row.wrong_rate for row in cells),
        )
        for cell, cells in grouped(known, "trace", "rule", "sampling").items()
    ]


def picture(rows: Sequence[ProfilingRow]) -> Figure:
    """Draw a panel per trace: inputs used over the distance."""
    traces = grouped(rows, "trace")
    figure, grid_ = panels(ceil(len(traces) / 2), 2, width=6, height=3.2)
    places = [axes for row in grid_ for axes in row]
    for axes, ((trace,), of) in zip(places, traces.items(), strict=False):
        axes.set(title=trace, xlabel="accuracy SLO less the true mean", ylabel="inputs")
        _draw(axes, [row for row in of if row.profiles])
        axes.set_ylim(bottom=0)
    for axes in places[len(traces) :]:
        axes.remove()
    return figure


def _draw(axes: Axes, rows: Sequence[ProfilingRow]) -> None:
    for (rule, sampling), of in grouped(rows, "rule", "sampling").items():
        order = sorted(of, key=lambda row: row.slo_distance)
        axes.plot(
            [row.slo_distance for row in order],
            [row.inputs_mean for row in order],
            color=COLOURS[[*simulated.RULES].index(rule)],
            linestyle="-" if sampling == "random" else "--",
            label=rule if sampling == "random" else f"{rule}, {sampling}",
        )
    distances = sorted({row.slo_distance for row in rows})
    axes.set_xscale("symlog", linthresh=DISTANCES[1], linscale=0.3)  # near distances are many
    axes.set_xticks(distances, [f"{distance:+g}" for distance in distances])
    axes.minorticks_off()


def _page(rows: Sequence[ProfilingRow], drawn: str) -> str:
    head = ("trace", "rule", "sampling", "SLO distance", "profiles", "inputs", "seconds", "wrong")
    lines = [
        (
            *(row.trace, row.rule, row.sampling, f"{row.slo_distance:+g}", str(row.profiles)),
            *(f"{row.inputs_mean:.1f}", f"{row.seconds_mean:.4g}", f"{row.wrong_rate:.3%}"),
        )
        for row in rows
    ]
    over_head = ("trace", "rule", "sampling", "inputs", "seconds", "worst wrong rate")
    over = [
        (trace, rule, sampling, f"{inputs:.1f}", f"{seconds:.4g}", f"{worst:.3%}")
        for trace, rule, sampling, inputs, seconds, worst in summary(rows)
    ]
    ratios = dict.fromkeys(
        (row.trace, row.sampling, row.strata, f"{row.variance_ratio:.3f}") for row in rows
    )
    return page(
        "Profiling study",
        paragraph(_CAPTION) + drawn,
        heading("Mean over the distances") + grid(over_head, over),
        heading("Variance of the estimate over that of a random order"),
        grid(("trace", "sampling", "strata", "ratio"), ratios),
        heading("Cells") + grid(head, lines),
    )
