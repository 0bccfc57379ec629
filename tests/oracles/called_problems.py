"""Small drawn pipelines of rented and called operators, and their cheapest plans by trying all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, RateLimits, Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work, compose
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.profile import FloatArray, Profile
from circinus.pipelines.model.tiers import Tier

INPUTS = 20

GRAPH = PipelineGraph(
    name="ask",
    operators=(
        OperatorSpec(name="search", knobs=(Knob(name="k", values=(1, 2)),)),
        OperatorSpec(
            name="read",
            after=("search",),
            knobs=(Knob(name="model", values=("own", "small", "large")),),
            calls=("small", "large"),
        ),
        OperatorSpec(name="check", after=("read",), calls=("judge",)),
    ),
)
SPACE = ConfigurationSpace(GRAPH)


def infrastructure(
    rng: np.random.Generator, limits: dict[str, RateLimits] | None = None
) -> Infrastructure:
    """Return two tiers of machines with prices and two remote ones: three endpoints."""

    def endpoint(name: str) -> Endpoint:
        price = CallPrice(input_usd_per_million=float(rng.uniform(0.1, 5.0)))
        return Endpoint(name=name, price=price, limits=(limits or {}).get(name, RateLimits()))

    def link(a: str, b: str) -> Link:
        delay_s = float(rng.uniform(0.0, 0.2))
        return Link(between=(a, b), bandwidth_bytes_per_s=1e6, delay_s=delay_s)

    edge = Tier(
        name="edge",
        machines=2,
        price_usd_per_hour=float(rng.uniform(0.2, 1.0)),
        speed_factor=float(rng.uniform(0.3, 1.0)),
    )
    return Infrastructure(
        name="mixed",
        tiers=(
            edge,
            Tier(name="near", endpoints=(endpoint("small"), endpoint("judge"))),
            Tier(name="cloud", machines=3, price_usd_per_hour=float(rng.uniform(1.0, 6.0))),
            Tier(name="far", endpoints=(endpoint("large"),)),
        ),
        links=(link("edge", "near"), link("edge", "cloud"), link("edge", "far")),
    )


@dataclass
class CallingEvaluator:
    """Measures drawn figures of the pipeline; tokens and dollars of what is called with them."""

    seed: int
    where: Infrastructure
    graph: PipelineGraph = GRAPH
    population: int = INPUTS
    width: int = 1
    spent_s: float = 0.0
    calls_s: float = 0.0
    calls_usd: float = 0.0
    met: dict[int, int] = field(default_factory=dict)

    def work(self, number: int) -> Work:
        """Return what all inputs take and use."""
        rng = np.random.default_rng([self.seed, number])
        operators = len(GRAPH.operators)
        operator_s = rng.uniform(0.05, 0.4, (operators, 1)) * rng.uniform(
            0.8, 1.2, (operators, INPUTS)
        )
        used = np.zeros((operators, len(Usage._fields), INPUTS))
        configuration = SPACE.configuration(number)
        endpoints = {each.name: each for each in self.where.endpoints}
        for o, operator in enumerate(GRAPH.operators):
            for call in operator.called(configuration.of(operator.name)):
                tokens = rng.uniform(500, 3000) * rng.uniform(0.9, 1.1, INPUTS)
                for i, read in enumerate(tokens):
                    usage = Usage(calls=1.0, input_tokens=float(read))
                    usd = endpoints[call.endpoint].price.usd(usage)
                    used[o, :, i] = usage._replace(usd=usd)
        return Work(
            operator_s=operator_s,
            output_bytes=np.full((operators, INPUTS), 1000.0),
            input_bytes=np.full(INPUTS, 1000.0),
            used=used,
        )

    def accuracy(self, number: int) -> float:
        """Return the score of every input."""
        return float(np.random.default_rng([self.seed, number, 1]).uniform(0.4, 1.0))

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        return tuple(self.measure(configuration, inputs) for configuration, inputs in wanted)

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        number = SPACE.number(configuration)
        before = self.met.get(number, 0)
        n = self.met[number] = max(before, inputs)
        work = self.work(number)
        assert work.used is not None
        calling = [bool(op.called(configuration.of(op.name))) for op in GRAPH.operators]
        self.spent_s += float(work.operator_s[:, before:n].sum())
        self.calls_s += float(work.operator_s[calling, before:n].sum())
        self.calls_usd += float(work.used[:, -1, before:n].sum())
        return Profile(
            configuration=configuration,
            inputs=np.arange(n),
            score=np.full(n, self.accuracy(number)),
            operator_s=work.operator_s[:, :n],
            output_bytes=work.output_bytes[:, :n],
            input_bytes=work.input_bytes[:n],
            used=work.used[:, :, :n],
            spent_s=float(work.operator_s[:, :n].sum()),
            calls_s=float(work.operator_s[calling, :n].sum()),
            calls_usd=float(work.used[:, -1, :n].sum()),
        )


def placements(where: Infrastructure, configuration: Configuration) -> Iterator[tuple[int, ...]]:
    """Return every placement on which the configuration's operators can be."""
    choices = []
    for operator in GRAPH.operators:
        called = {call.endpoint for call in operator.called(configuration.of(operator.name))}
        choices.append(
            [
                t
                for t, tier in enumerate(where.tiers)
                if (called <= {e.name for e in tier.endpoints} if called else tier.machines > 0)
            ]
        )
    return itertools.product(*choices)


def cheapest_usd_per_1000(where: Infrastructure, work: Work, number: int, bound_s: float) -> float:
    """Return what 1,000 requests one after the other cost at least, in time; inf: none is."""
    best = np.inf
    for tiers in placements(where, SPACE.configuration(number)):
        on = np.array(tiers)
        used = [t for t in sorted(set(tiers)) if where.tiers[t].machines]
        steps = np.array(list(itertools.product(range(1, 21), repeat=len(used)))) * 0.05
        shares = np.ones((len(steps), len(where.tiers)))
        shares[:, used] = steps
        mean_s = _mean_s(where, work, on, shares)
        price = np.array([where.tiers[t].price_usd_per_hour for t in used])
        usd = float(work.used[:, -1].sum(axis=0).mean()) if work.used is not None else 0.0
        cost = 1000 * (steps @ price / 3600 * mean_s + usd)
        best = min(best, float(cost[mean_s <= bound_s].min(initial=np.inf)))
    return best


def cheapest_usd_per_hour(where: Infrastructure, work: Work, number: int, rate: float) -> float:
    """Return what an hour at a rate costs at least, however long requests take; inf: none fits.

    At that many requests copies are busy for at most 0.7 of the time, and limits of endpoints are
    used for as much.
    """
    assert work.used is not None
    configuration, best = SPACE.configuration(number), np.inf
    calls_usd = 3600 * rate * float(work.used[:, -1].sum(axis=0).mean())
    if any(part > 0.7 * allowed for part, allowed in _limits(where, work, configuration, rate)):
        return np.inf
    for tiers in placements(where, configuration):
        cost = 0.0
        for t in {t for t in tiers if where.tiers[t].machines}:
            tier, mine = where.tiers[t], [o for o, on in enumerate(tiers) if on == t]
            busy = float(work.operator_s[mine].sum(axis=0).mean()) / tier.speed_factor
            options = [
                (ceil(rate * busy / (k / 20) / 0.7 - 1e-9) * k / 20 * tier.price_usd_per_hour)
                for k in range(1, 21)
                if ceil(rate * busy / (k / 20) / 0.7 - 1e-9) <= tier.machines * (20 // k)
            ]
            cost += min(options, default=np.inf)
        best = min(best, cost + calls_usd)
    return best


def _limits(
    where: Infrastructure, work: Work, configuration: Configuration, rate: float
) -> Iterator[tuple[float, float]]:
    """Yield what is used and allowed of every limit of the endpoints that are called."""
    assert work.used is not None
    for o, operator in enumerate(GRAPH.operators):
        for call in operator.called(configuration.of(operator.name)):
            limits = next(e.limits for e in where.endpoints if e.name == call.endpoint)
            usage = Usage(*work.used[o].mean(axis=1).tolist())
            seconds = float(work.operator_s[o].mean())
            figures = (60 * rate * usage.calls, 60 * rate * usage.tokens, rate * seconds)
            allowed = (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent)
            yield from ((f, a) for f, a in zip(figures, allowed, strict=True) if a is not None)


def _mean_s(where: Infrastructure, work: Work, on: np.ndarray, shares: FloatArray) -> FloatArray:
    rows = np.tile(on, (len(shares), 1))
    return np.asarray(compose(GRAPH, where, work, rows, shares[:, on]).mean(axis=1))
