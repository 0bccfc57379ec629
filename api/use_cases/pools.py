"""Which pool of instances to rent, as a command or a request asks it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from circinus.deploy.methods import DEFAULT
from circinus.pipelines import checks
from circinus.pipelines.instance_types import Catalogue, PricedType, known_types
from circinus.scheduler.simulation.choosing import cheapest_for_rate, largest_for_budget
from circinus.scheduler.simulation.loads import Load, load_of
from circinus.scheduler.simulation.measurements import LatencyTable, parse_latencies
from circinus.scheduler.simulation.pool_choice import ChoiceMethod, PoolChoice, PoolQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTerms:
    """What is asked; either a budget or a rate."""

    qos_s: float  # requests are due within
    budget_usd_per_hour: float | None = None
    rate_rps: float | None = None
    types: Sequence[str] = ()  # to choose among, the base type first; none: those measured
    prices: Catalogue = field(default_factory=dict)  # before those of the built-in catalogue
    load: Load = field(default_factory=load_of)  # sizes and arrivals
    dispatch: str = DEFAULT.dispatch
    method: str = ChoiceMethod.SIMULATED
    sampled: bool = False  # each run takes its own luck; False: the mean
    requests: int = 10_000  # of a simulated run
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAnswer:
    """What was chosen, and the prices that it was chosen by."""

    choice: PoolChoice
    priced: tuple[PricedType, ...]  # the types to choose among


def latencies_of(lines: Iterable[str], model: str) -> LatencyTable:
    """Give the measured latencies of a model, see `scheduler.simulation.measurements`."""
    return parse_latencies(lines, model)


def choose_pool(table: LatencyTable, terms: PoolTerms) -> PoolAnswer:
    """Choose a pool; InvalidInput if the terms make no sense, or a type has no price."""
    checks.among("method", terms.method, [*ChoiceMethod])
    both = (terms.budget_usd_per_hour is None) == (terms.rate_rps is None)
    rule = "must be given or a rate, and not both"
    checks.require(not both, "budget", rule, terms.budget_usd_per_hour)
    table = table.of_kinds(tuple(terms.types) or table.kinds)
    known = {**known_types(), **terms.prices}
    missing = [name for name in table.kinds if name not in known]
    rule = "must have every type to choose among, or leave them out of the types"
    checks.require(not missing, "prices", rule, f"none of {', '.join(missing)}")
    priced = tuple(known[name] for name in table.kinds)
    question = PoolQuestion(
        table=table,
        prices=tuple(each.price_usd_per_hour for each in priced),
        qos_s=terms.qos_s,
        dispatch=terms.dispatch,
        load=terms.load,
        method=ChoiceMethod(terms.method),
        sampled=terms.sampled,
        requests=terms.requests,
        seed=terms.seed,
    )
    if terms.rate_rps is not None:
        choice = cheapest_for_rate(question, terms.rate_rps)
    else:
        choice = largest_for_budget(question, terms.budget_usd_per_hour or 0.0)
    return PoolAnswer(choice=choice, priced=priced)
