"""What a search will cost, before it starts: from a few probes, or from earlier bills.

| symbol | meaning |
| --- | --- |
| M, n | configurations that a search measures; inputs of each, on average |
| L_o | settings that the lineage of operator o has in all |
| s_o | mean seconds of operator o |

With the prefix cache an operator runs once per input and setting of its lineage. M
configurations drawn at random meet `D_o = L_o (1 - (1 - 1 / L_o)^M)` settings of it, so a search
makes `n sum_o D_o` runs that take `n sum_o D_o s_o`. The seconds come from the probes; M and n
are those of the searches that `SPAN` was measured on, and the interval goes from the low ends of
all three to the high ends. n grows with the root of the number of inputs there are, as the
width of a confidence sequence asks for.

What operators use of endpoints goes as their seconds do: `n D_o` times the mean of operator o.
Seconds waited for endpoints are no machine's, so they cost what the calls do. What a judge calls
is in it only as far as it was paid by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, inf, log1p, prod, sqrt

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.profile import USAGE_FIELDS, Evaluator, FloatArray, Profile
from circinus.planner.search.bill import CallsCost, Cost, ExpectedWait, Forecast
from circinus.planner.search.budget import Budget

_LEAST_EARLIER = 4
"""Fewer earlier bills predict less than probes: their range holds the next in 3 of 5 cases."""


_USD = Usage._fields.index("usd")
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSpan:
    """How far searches go."""

    # Low, middle and high number of configurations measured.
    configurations: tuple[float, float, float]
    # Low, middle and high mean number of inputs of each, over the root of how many there are.
    inputs: tuple[float, float, float]
    confidence: float  # share of searches whose cost these gave an interval for that held it


SPAN = CostSpan(configurations=(36, 57, 85), inputs=(1.5, 1.9, 2.4), confidence=0.8)
"""Of `multi_fidelity` with a patience of 25, the front finished. On the reference trace 8 queries
took 36 to 80 configurations (median 57), each on 1.2 to 2.7 times the root of 160 inputs (1.9);
on 40 inputs of `digits`, run, 9 took 32 to 107 (55), on 1.8 to 2.9 times (2.3). All 17 numbers of
runs were within these, since more configurations meet fewer inputs each."""
TO_THE_LIMIT = CostSpan(configurations=(1, inf, inf), inputs=(0, inf, inf), confidence=1)
"""Of a search that only limits end: it is expected to measure everything on all inputs, as far as
they let it. It cannot cost more; what a stopping rule spares makes it cost less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """A few measurements to forecast from. The search reuses them, and pays for none twice."""

    configurations: int = 4  # how many, drawn at random, `>= 1`. 4: on digits 2 % of a search.
    inputs: int = 2  # of each, `>= 1`. 2: the first one may be unlike the others.
    span: CostSpan = SPAN  # how far searches go

    def __post_init__(self) -> None:
        for name in ("configurations", "inputs"):
            checks.at_least(f"probes.{name}", getattr(self, name), 1)

    def numbers(self, space: ConfigurationSpace, rng: np.random.Generator) -> list[int]:
        """Return the configurations to probe, all different."""
        if space.size <= self.configurations:
            return list(range(space.size))
        drawn: set[int] = set()
        while len(drawn) < self.configurations:
            values = rng.integers(0, space.radices)
            drawn.add(int(space.numbers(values[None, :])[0]))
        return sorted(drawn)


def probed(
    probes: Probes,
    space: ConfigurationSpace,
    evaluator: Evaluator,
    rng: np.random.Generator,
    is_over: Callable[[], bool],
) -> list[Profile]:
    """Return the profiles of the probes, fewer when a limit comes first.

    `is_over` is called before every input: whether a limit or a cancellation ends it.
    """
    inputs = min(probes.inputs, evaluator.population)
    profiles = []
    for number in probes.numbers(space, rng):
        configuration = space.configuration(number)
        profile = None
        for count in range(1, inputs + 1):
            if is_over():
                break
            profile = evaluator.measure(configuration, count)
        if profile is not None:
            profiles.append(profile)
    return profiles


def from_probes(
    profiles: Sequence[Profile],
    space: ConfigurationSpace,
    evaluator: Evaluator,
    budget: Budget,
    span: CostSpan = SPAN,
    called: Sequence[CallsCost] = (),  # what calls cost until now
) -> Forecast | None:
    """Return what a search will cost, from profiles of probes; None if no probe succeeded."""
    useful = [profile for profile in profiles if profile.succeeded.any()]
    if not useful:
        return None
    each = _each_run(np.array([_means(profile, space) for profile in useful]))
    limit = budget.limits.configurations or inf
    names = tuple(operator.name for operator in space.graph.operators)
    budget = _in_time(budget, evaluator.width)
    spent = Amounts.of(
        runs=sum(profile.runs for profile in profiles),
        seconds=evaluator.spent_s,
        calls_s=evaluator.calls_s,
        calls=called,
        operators=tuple(dict.fromkeys((*names, *(cost.operator for cost in called)))),
    )
    wholes = []
    for m, n, of_run in zip(span.configurations, span.inputs, each, strict=True):
        inputs = min(n * sqrt(evaluator.population), evaluator.population)
        most = min(m, limit)  # inf: every setting is met
        runs = inputs * _settings_met(space, most if most == inf else min(most, space.size))
        used = np.zeros_like(spent.used)
        used[: len(names)] = runs[:, None] * of_run[:, 2:]  # the first are the pipeline's
        seconds, machine_s = (float(runs @ of_run[:, i]) for i in (0, 1))
        wholes.append(
            replace(spent, runs=float(runs.sum()), seconds=seconds, machine_s=machine_s, used=used)
        )
    inputs_probed, on = sum(len(profile.inputs) for profile in profiles), len(profiles)
    source = f"{inputs_probed} probes on {on} configurations, and how far searches go"
    low, expected, high = within(wholes, spent, budget)
    return Forecast(
        low=low, expected=expected, high=high, confidence=span.confidence, source=source
    )


def from_earlier(bills: Sequence[Cost], budget: Budget) -> Forecast | None:
    """Return what a search will cost, from what earlier ones of the pipeline paid; None: too few.

    The next of n + 1 alike costs lies within the range of the n earlier ones with probability
    (n - 1) / (n + 1), whatever their distribution. Each figure has a range of its own, so the
    dollars, as the sum of machines and calls at the ends of theirs, have a range no narrower.
    """
    n = len(bills)
    if n < _LEAST_EARLIER:
        return None
    names = tuple(dict.fromkeys(cost.operator for bill in bills for cost in bill.calls))
    paid = [
        Amounts.of(
            runs=bill.runs,
            seconds=bill.seconds,
            calls_s=bill.calls_s,
            calls=bill.calls,
            operators=names,
        )
        for bill in bills
    ]
    of_rank = np.sort([amounts.figures for amounts in paid], axis=0)
    wholes = [paid[0].having(of_rank[i]) for i in (0, n // 2, n - 1)]
    low, expected, high = within(wholes, paid[0].having(np.zeros_like(of_rank[0])), budget)
    source = f"the bills of {n} earlier queries of this pipeline"
    return Forecast(
        low=low, expected=expected, high=high, confidence=(n - 1) / (n + 1), source=source
    )


def _in_time(budget: Budget, width: int) -> Budget:
    """Return a budget of no more operator seconds than fit into the response time."""
    limits = budget.limits
    most_s = width * (limits.response_s or inf)
    within_s = min(limits.profiling_s, most_s)
    return replace(budget, limits=replace(limits, profiling_s=within_s))


def with_waits(
    forecast: Forecast,
    space: ConfigurationSpace,
    population: int,
    infrastructure: Infrastructure,
    response_s: float = inf,
) -> Forecast:
    """Return a forecast with what limits of endpoints make a search wait.

    Of n calls that a limit of m a minute lets through, the last leaves in minute `ceil(n / m)`. It
    makes as many as are forecast at least, and at most one for each input and setting, as far as
    there is time. What an operator calls under some settings only is taken to be spread evenly.
    """
    waits = []
    settings = [
        prod(space.radices[each] for each in knobs) for knobs in space.graph.upstream_knobs
    ]
    every = population * np.array(settings, dtype=np.float64)
    for endpoint in infrastructure.endpoints:
        calls, tokens, most = _used_of(endpoint.name, space.graph, forecast, every)
        limits, each = endpoint.limits, tokens / calls if calls else 0.0
        of_tokens = ("tokens", limits.tokens_per_minute, tokens, most * each)
        for what, limit, *used in (
            ("requests", limits.requests_per_minute, calls, most),
            of_tokens,
        ):
            if limit is not None and max(used) > limit:
                ends = (60.0 * max(ceil(one / limit) - 1, 0) for one in used)
                name = f"{limit} {what} per minute of endpoint {endpoint.name}"
                waits.append(ExpectedWait(name, *(min(end, response_s) for end in ends)))
    return replace(forecast, waits=tuple(waits))


def _used_of(
    endpoint: str, graph: PipelineGraph, forecast: Forecast, every: FloatArray
) -> tuple[float, float, float]:
    """Return calls and tokens of an endpoint that are forecast, and the most calls."""
    calls = tokens = most = 0.0
    costs = {cost.operator: cost for cost in forecast.low.calls}
    for operator, runs in zip(graph.operators, every.tolist(), strict=True):
        if endpoint in operator.endpoints:
            part = 1 / len(operator.endpoints)
            cost = costs.get(operator.name, CallsCost(operator=operator.name))
            calls += cost.calls * part
            tokens += (cost.input_tokens + cost.output_tokens) * part
            most += runs * part
    return calls, tokens, most


def _means(profile: Profile, space: ConfigurationSpace) -> FloatArray:  # (operators, 2 + Usage)
    """Return seconds, those on machines and usage of one run of each operator, on the mean."""
    seconds = profile.operator_s[:, profile.succeeded].mean(axis=1)
    settings = profile.configuration
    calls = [bool(one.called(settings.of(one.name))) for one in space.graph.operators]
    used = np.zeros((len(seconds), USAGE_FIELDS))
    if profile.used is not None:
        used = profile.used[:, :, profile.succeeded].mean(axis=2)
        used[~np.isfinite(used)] = 0.0  # nobody knows how much of it there was
    return np.column_stack((seconds, np.where(calls, 0.0, seconds), used))


def _each_run(means: FloatArray) -> FloatArray:  # (probes, ...) -> (3, ...)
    # A probe more or less shifts the mean by a standard error; the least and the most would go
    # with searches that meet one kind of configuration only.
    each: FloatArray = np.quantile(means, (0.25, 0.5, 0.75), axis=0)
    each[1] = means.mean(axis=0)
    each.sort(axis=0)
    return each


def _settings_met(space: ConfigurationSpace, configurations: float) -> FloatArray:  # (O,)
    met = []
    for upstream in space.graph.upstream_knobs:
        settings = prod(space.radices[knob] for knob in upstream)
        missed = exp(configurations * log1p(-1 / settings)) if settings > 1 else 0.0
        met.append(min(settings * (1 - missed), configurations))
    return np.array(met)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Amounts:
    """What some runs take, before its price."""

    runs: float  # of operators, `>= 0`
    seconds: float  # of operators, `>= 0`
    machine_s: float  # of these, those on machines, `>= 0`
    operators: tuple[str, ...]  # that may have called
    used: FloatArray  # of endpoints, by operator, shape (operators, len(Usage))

    @classmethod
    def of(
        cls,
        *,
        runs: float,
        seconds: float,
        calls_s: float,
        calls: Sequence[CallsCost],
        operators: tuple[str, ...],
    ) -> Amounts:
        """Return what runs took; calls that were cut off count as the most that they may cost."""
        used = np.zeros((len(operators), USAGE_FIELDS))
        for cost in calls:
            bounded = Usage(*(getattr(cost, name) for name in Usage._fields)).finite
            used[operators.index(cost.operator)] += bounded.plus(Usage(usd=cost.open_usd))
        machine_s = max(seconds - calls_s, 0.0)
        return cls(runs=runs, seconds=seconds, machine_s=machine_s, operators=operators, used=used)

    @property
    def figures(self) -> FloatArray:
        """All of them in a row."""
        return np.concatenate(([self.runs, self.seconds, self.machine_s], self.used.ravel()))

    def having(self, figures: FloatArray) -> Amounts:
        """Return the same with other figures."""
        runs, seconds, machine_s = figures[:3].tolist()
        used = figures[3:].reshape(self.used.shape)
        return replace(self, runs=runs, seconds=seconds, machine_s=machine_s, used=used)

    def usd(self, price_usd_per_hour: float) -> float:
        """Return the dollars of machines and calls."""
        machines = self.machine_s * price_usd_per_hour / _SECONDS_PER_HOUR
        return machines + float(self.used[:, _USD].sum())

    def cost(self, price_usd_per_hour: float) -> Cost:
        """Return what they cost, with a line for each operator that called."""
        by_operator = zip(self.operators, self.used, strict=True)
        calls = [
            CallsCost(operator=operator, **Usage(*row.tolist())._asdict())
            for operator, row in by_operator
            if row.any()
        ]
        calls_s = max(self.seconds - self.machine_s, 0.0)
        return Cost.of(self.runs, self.seconds, price_usd_per_hour, calls_s=calls_s, calls=calls)


def within(wholes: Sequence[Amounts], spent: Amounts, budget: Budget) -> list[Cost]:
    """Return the costs of ever larger amounts, as far as the budget lets each go on from the last.

    The first goes on from what is spent. So none costs less than the one before in any figure, and
    none more than the budget allows, but for what is spent already.
    """
    costs, before, price = [], spent, budget.price_usd_per_hour
    usd = budget.limits.profiling_usd
    for whole in wholes:
        most = before.having(np.maximum(before.figures, whole.figures))
        part = min(
            _part(before.machine_s, most.machine_s, budget.limits.profiling_s),
            _part(before.usd(price), most.usd(price), inf if usd is None else usd),
        )
        if part > 0:  # 0: not even a rounding error more
            before = before.having(before.figures + part * (most.figures - before.figures))
        costs.append(before.cost(price))
    return costs


def _part(low: float, high: float, limit: float) -> float:
    """Return which part of the way from `low` to `high` lies within a limit, in [0, 1]."""
    if high <= limit:
        return 1.0
    return max((limit - low) / (high - low), 0.0) if high > low else 0.0
