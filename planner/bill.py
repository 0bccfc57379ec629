"""What profiling costs: what was expected, what was paid, what did not have to be paid.

A *run* is one operator on one input. Dollars are operator seconds at the price of the tier that
profiling is billed as, see `planner.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines import checks
from pipelines.configuration import Configuration
from pipelines.graph import PipelineGraph
from pipelines.profile import FloatArray, Profile

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What some runs cost.

    Attributes:
        runs: Of operators, warm-ups not counted, `>= 0`.
        seconds: Of operators on the reference machine, `>= 0`.
        usd: US dollars, `>= 0`.
    """

    runs: int = 0
    seconds: float = 0.0
    usd: float = 0.0

    def __post_init__(self) -> None:
        checks.require(self.runs >= 0, "cost.runs", "must be >= 0", self.runs)
        checks.non_negative("cost.seconds", self.seconds)
        checks.non_negative("cost.usd", self.usd)

    @classmethod
    def of(cls, runs: float, seconds: float, price_usd_per_hour: float) -> Cost:
        """Give the cost of runs that take `seconds` in all."""
        usd = seconds * price_usd_per_hour / _SECONDS_PER_HOUR
        return cls(runs=round(runs), seconds=seconds, usd=usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a search is expected to cost, its limits considered.

    Attributes:
        low: Lower end of the interval.
        expected: In the middle.
        high: Upper end; no limit lets it cost more.
        confidence: Share of searches like this one that cost between `low` and `high`.
        source: What it comes from, in words.
    """

    low: Cost
    expected: Cost
    high: Cost
    confidence: float
    source: str

    def __post_init__(self) -> None:
        checks.probability("forecast.confidence", self.confidence)
        seconds = (self.low.seconds, self.expected.seconds, self.high.seconds)
        rule = "must have low <= expected <= high"
        checks.require(list(seconds) == sorted(seconds), "forecast.seconds", rule, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a search paid, and what it did not have to pay.

    Attributes:
        paid: For runs, warm-ups and failures included in the seconds.
        cache: What earlier outputs saved of the inputs that were measured.
        early_stopping: What ending early saved beside the cache: the runs that `against` would
            have made, each lineage of operators once per input, at its mean seconds so far.
        against: What early stopping is compared with, in words.
        forecast: What was expected; None: nothing was.
    """

    paid: Cost = field(default_factory=Cost)
    cache: Cost = field(default_factory=Cost)
    early_stopping: Cost = field(default_factory=Cost)
    against: str = ""
    forecast: Forecast | None = None


@dataclass(slots=True)
class _Lineage:
    inputs: int
    seconds: float  # mean of one run


class Tally:
    """Adds up the bill of one search.

    Args:
        graph: The pipeline.
        population: N, number of inputs.
        price_usd_per_hour: Of the tier that profiling is billed as.
    """

    def __init__(self, graph: PipelineGraph, population: int, price_usd_per_hour: float) -> None:
        self._graph = graph
        self._population = population
        self._price = price_usd_per_hour
        self._counted: dict[Configuration, tuple[int, int, float]] = {}
        self._lineages: dict[tuple[int, tuple[object, ...]], _Lineage] = {}
        self._runs = self._saved_runs = 0
        self._saved_s = 0.0
        self._not_run, self._not_run_s = 0, 0.0

    def pay(self, profile: Profile) -> None:
        """Take in all that is known of a configuration; the newest replaces what was."""
        before = self._counted.get(profile.configuration, (0, 0, 0.0))
        now = (profile.runs, profile.saved_runs, profile.saved_s)
        self._counted[profile.configuration] = now
        self._runs += now[0] - before[0]
        self._saved_runs += now[1] - before[1]
        self._saved_s += now[2] - before[2]

    def end_early(self, configuration: Configuration, operator_s: FloatArray) -> None:
        """Take in that a configuration was decided by so few inputs.

        Args:
            configuration: Which.
            operator_s: Of the inputs measured, shape (operators, n), n >= 1.
        """
        n = operator_s.shape[1]
        means = operator_s.mean(axis=1).tolist()
        for position, mean_s in enumerate(means):
            key = (position, self._knobs(configuration, position))
            known = self._lineages.get(key)
            if known is not None and known.inputs >= n:
                continue
            if known is not None:
                self._not_run -= self._population - known.inputs
                self._not_run_s -= (self._population - known.inputs) * known.seconds
            self._lineages[key] = _Lineage(n, mean_s)
            self._not_run += self._population - n
            self._not_run_s += (self._population - n) * mean_s

    def bill(self, spent_s: float, forecast: Forecast | None) -> Bill:
        """Give the bill.

        Args:
            spent_s: Operator seconds paid in all.
            forecast: What was expected.
        """
        return Bill(
            paid=Cost.of(self._runs, spent_s, self._price),
            cache=Cost.of(self._saved_runs, max(self._saved_s, 0.0), self._price),
            early_stopping=Cost.of(self._not_run, max(self._not_run_s, 0.0), self._price),
            against=f"every decided configuration on all {self._population} inputs",
            forecast=forecast,
        )

    def _knobs(self, configuration: Configuration, position: int) -> tuple[object, ...]:
        names = {self._graph.operators[i].name for i in self._graph.lineages[position]}
        return tuple(value for value in configuration.values if value[0] in names)
