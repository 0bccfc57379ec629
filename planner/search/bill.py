"""What profiling was expected to cost, did, and did not have to.

A *run* is one operator on one input. Dollars are operator seconds at the price of the tier that
profiling is billed as, see `planner.search.budget.Budget.of`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.profile import FloatArray, Profile
from circinus.planner.models.latency_tail import lineage_cells

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsCost:
    """What the calls of one operator cost, failed attempts included."""

    operator: str
    calls: float = 0.0  # attempts, `>= 0`
    input_tokens: float = 0.0  # those read, cached ones included, `>= 0`
    cached_tokens: float = 0.0  # of these, `>= 0`
    output_tokens: float = 0.0  # written, `>= 0`
    usd: float = 0.0  # US dollars, `>= 0`
    # the most that attempts may have cost of which nobody knows what they did: those under way,
    # and those that were when planning was killed, `>= 0`
    open_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What some runs cost."""

    runs: int = 0  # of operators, warm-ups not counted, `>= 0`
    seconds: float = 0.0  # of operators on the reference machine, `>= 0`
    usd: float = 0.0  # US dollars, those of calls included, `>= 0`
    calls: tuple[CallsCost, ...] = ()  # a part of it: by operators that call endpoints
    calls_s: float = 0.0  # of `seconds`, what was waited for endpoints: no machine's, `>= 0`

    def __post_init__(self) -> None:
        checks.at_least("cost.runs", self.runs, 0)
        checks.non_negative("cost.seconds", self.seconds)
        checks.non_negative("cost.usd", self.usd)
        checks.non_negative("cost.calls_s", self.calls_s)

    @classmethod
    def of(
        cls,
        runs: float,
        seconds: float,
        price_usd_per_hour: float,
        *,
        calls_s: float = 0.0,
        calls: Sequence[CallsCost] = (),
    ) -> Cost:
        """Return the cost of runs that take `seconds` in all, `calls_s` of them for the calls."""
        machines_usd = max(seconds - calls_s, 0.0) * price_usd_per_hour / _SECONDS_PER_HOUR
        return cls(
            runs=round(runs),
            seconds=seconds,
            usd=machines_usd + sum(each.usd + each.open_usd for each in calls),
            calls=tuple(calls),
            calls_s=calls_s,
        )


@dataclass(frozen=True, slots=True)
class ExpectedWait:
    """How long a search has to wait for a limit of an endpoint, if it may go on so long."""

    limit: str  # in words
    low_s: float  # lower end of the interval, `>= 0`
    high_s: float  # upper end


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a search is expected to cost, its limits considered."""

    low: Cost  # lower end of the interval
    expected: Cost  # in the middle
    high: Cost  # upper end; no limit lets it cost more
    confidence: float  # share of searches like this one that cost between `low` and `high`
    source: str  # what it comes from, in words
    waits: tuple[ExpectedWait, ...] = ()  # for limits of endpoints; empty: none is expected

    def __post_init__(self) -> None:
        checks.probability("forecast.confidence", self.confidence)
        seconds = (self.low.seconds, self.expected.seconds, self.high.seconds)
        rule = "must have low <= expected <= high"
        checks.require(list(seconds) == sorted(seconds), "forecast.seconds", rule, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a search paid, and what it did not have to pay."""

    # For runs, warm-ups and failures included in the seconds.
    paid: Cost = field(default_factory=Cost)
    # What earlier outputs saved of the inputs that were measured.
    cache: Cost = field(default_factory=Cost)
    shared_runs: int = 0  # of the runs that this saved, those that other queries had made, `>= 0`
    # What ending early saved beside the cache: the runs that `against` would have made, each
    # lineage of operators once per input, at its mean seconds so far.
    early_stopping: Cost = field(default_factory=Cost)
    against: str = ""  # what early stopping is compared with, in words
    forecast: Forecast | None = None  # what was expected; None: nothing was


class Tally:
    """Adds up the bill of one search, at the price of the tier that profiling is billed as."""

    def __init__(self, graph: PipelineGraph, population: int, price_usd_per_hour: float) -> None:
        self._graph = graph
        self._population = population
        self._price = price_usd_per_hour
        self._counted: dict[Configuration, tuple[int, int, float]] = {}
        # Of an operator and its lineage's knobs: inputs, and mean seconds of one run.
        self._lineages: dict[tuple[int, Hashable], tuple[int, float]] = {}
        self._runs = self._saved_runs = 0
        self._saved_s = 0.0
        self._not_run, self._not_run_s = 0, 0.0

    def pay(self, profile: Profile) -> None:
        """Charge the profile of a configuration, in place of its earlier one."""
        before = self._counted.get(profile.configuration, (0, 0, 0.0))
        now = (profile.runs, profile.saved_runs, profile.saved_s)
        self._counted[profile.configuration] = now
        self._runs += now[0] - before[0]
        self._saved_runs += now[1] - before[1]
        self._saved_s += now[2] - before[2]

    def end_early(self, configuration: Configuration, operator_s: FloatArray) -> None:
        """Credit a configuration that n >= 1 inputs decided, shape (operators, n)."""
        n, means = operator_s.shape[1], operator_s.mean(axis=1).tolist()
        cells = enumerate(lineage_cells(self._graph, configuration))
        for lineage, mean_s in zip(cells, means, strict=True):
            inputs, seconds = self._lineages.get(lineage, (0, 0.0))
            if inputs >= n:
                continue
            if inputs:
                self._not_run -= max(self._population - inputs, 0)
                self._not_run_s -= max(self._population - inputs, 0) * seconds
            self._lineages[lineage] = n, mean_s
            self._not_run += max(self._population - n, 0)
            self._not_run_s += max(self._population - n, 0) * mean_s

    def bill(
        self,
        spent_s: float,
        forecast: Forecast | None,
        *,
        calls_s: float = 0.0,
        calls: Sequence[CallsCost] = (),
    ) -> Bill:
        """Return the bill of so many operator seconds paid in all, `calls_s` of them for calls."""
        not_run_s = max(self._not_run_s, 0.0) if self._not_run else 0.0  # sums are rounded
        return Bill(
            paid=Cost.of(self._runs, spent_s, self._price, calls_s=calls_s, calls=calls),
            cache=Cost.of(self._saved_runs, max(self._saved_s, 0.0), self._price),
            early_stopping=Cost.of(self._not_run, not_run_s, self._price),
            against=f"every decided configuration on all {self._population} inputs",
            forecast=forecast,
        )
