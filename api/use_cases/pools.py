"""Which pool of instances to rent, for a command or a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from circinus.api.schemas.pools import ChoosePoolBody, PoolChoiceView
from circinus.deploy.methods import DEFAULT
from circinus.pipelines import checks
from circinus.pipelines.io.instance_types import Catalogue, PricedType, known_types
from circinus.scheduler.pool.search import MOST_OF_TYPE
from circinus.scheduler.simulation.choosing import (
    best_within,
    cheapest_for_rate,
    largest_for_budget,
)
from circinus.scheduler.simulation.loads import Load, load_of, recorded_load
from circinus.scheduler.simulation.measurements import LatencyTable, measured
from circinus.scheduler.simulation.pool_choice import ChoiceMethod, PoolQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTerms:
    """The terms: a budget, or a rate, or the cheapest for the rate within the budget."""

    qos_s: float  # requests are due within
    budget_usd_per_hour: float | None = None
    rate_rps: float | None = None
    most: Mapping[str, int] = field(default_factory=dict)  # of types; others: MOST_OF_TYPE
    types: Sequence[str] = ()  # to choose among, the base type first; none: those measured
    prices: Catalogue = field(default_factory=dict)  # before those of the built-in catalogue
    load: Load = field(default_factory=load_of)  # sizes and arrivals
    dispatch: str = DEFAULT.dispatch
    method: str = ChoiceMethod.SIMULATED
    sampled: bool = False  # each run takes its own luck; False: the mean
    requests: int = 10_000  # of a simulated run
    seed: int = 0


def choose_pool(table: LatencyTable, terms: PoolTerms) -> PoolChoiceView:
    """Choose a pool; InvalidInput if the terms make no sense, or a type has no price."""
    checks.among("method", terms.method, [*ChoiceMethod])
    none = terms.budget_usd_per_hour is None and terms.rate_rps is None
    checks.require(not none, "budget", "must be given, or a rate, or both", None)
    table = table.of_kinds(tuple(terms.types) or table.kinds)
    for name in terms.most:
        checks.among("most", name, table.kinds)
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
        counts=tuple(terms.most.get(k, MOST_OF_TYPE) for k in table.kinds) if terms.most else (),
    )
    if terms.rate_rps is None:
        choice = largest_for_budget(question, terms.budget_usd_per_hour or 0.0)
    elif terms.budget_usd_per_hour is None:
        choice = cheapest_for_rate(question, terms.rate_rps)
    else:
        choice = best_within(question, terms.rate_rps, terms.budget_usd_per_hour)
    return PoolChoiceView.of(choice, prices=priced)


def chosen_for(body: ChoosePoolBody) -> PoolChoiceView:
    """Return the answer to a request; InvalidInput as `choose_pool`."""
    cells = {(r.type, r.batch): (r.mean_ms / 1e3, r.std_ms / 1e3) for r in body.latencies}
    checks.require(len(cells) == len(body.latencies), "latencies", "must not repeat", "a pair")
    terms = PoolTerms(
        qos_s=body.qos_ms / 1e3,
        budget_usd_per_hour=body.budget_usd_per_hour,
        rate_rps=body.rate_per_s,
        most=body.most,
        types=body.types,
        prices={each.name: PricedType(**each.model_dump()) for each in body.prices},
        load=recorded_load(body.mix, body.arrivals),
        dispatch=body.dispatch,
        method=body.method,
        sampled=body.sampled,
        requests=body.requests,
        seed=body.seed,
    )
    return choose_pool(measured("latencies", cells), terms)
