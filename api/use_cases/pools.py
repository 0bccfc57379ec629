"""Choosing a pool of instances: which to rent for requests whose latencies were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from circinus.api.schemas.pools import PoolChoiceView, PricedType
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.pool.pools import PoolSpace
from circinus.scheduler.simulation.draws import LoadDraws
from circinus.scheduler.simulation.pool_choice import PoolChoice, PoolChooser


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolQuestion:
    """What is to be served, and what may be paid; one of rate and budget."""

    draws: Sequence[LoadDraws]  # of several seeds; the first has fewer requests
    prices: Mapping[str, PricedType]  # of the types that were measured, in their order
    dispatch: str  # name of the policy
    rate_rps: float | None = None
    budget_usd_per_hour: float | None = None
    most: int = 30  # instances of each type

    def __post_init__(self) -> None:
        told = [self.rate_rps, self.budget_usd_per_hour]
        rule = "must be given, or budget, and not both"
        checks.require(told.count(None) == 1, "rate", rule, self.rate_rps)
        checks.at_least("most", self.most, 1)
        checks.at_least("draws", len(self.draws), 2)


def choose_pool(question: PoolQuestion) -> PoolChoiceView:
    """Give the cheapest pool for a rate, or the largest rate for a budget.

    InvalidInput if a number is out of its range, a type has no price, or a budget pays for no
    instance. That no pool does is an answer.
    """
    coarse, *fine = question.draws
    types, prices = tuple(question.prices), [p.usd_per_hour for p in question.prices.values()]
    if question.budget_usd_per_hour is None:
        space = PoolSpace(types=types, prices=tuple(prices), most=(question.most,) * len(types))
    else:
        space = PoolSpace.within_budget(types, prices, question.budget_usd_per_hour, question.most)
    chooser = PoolChooser(
        space=space, policy=dispatch_policy(question.dispatch), coarse=coarse, fine=fine
    )
    return PoolChoiceView.told(_chosen(chooser, question), question.prices, question.dispatch)


def priced(types: Sequence[str], known: Mapping[str, PricedType]) -> dict[str, PricedType]:
    """Give the prices of types; InvalidInput if one is not known."""
    missing = [kind for kind in types if kind not in known]
    if missing:
        rule = f"must be in the catalogue, with a price: {', '.join(sorted(known))}"
        raise InvalidInput.of("type", rule, missing[0])
    return {kind: known[kind] for kind in types}


def _chosen(chooser: PoolChooser, question: PoolQuestion) -> PoolChoice:
    if question.rate_rps is not None:
        return chooser.cheapest_for(question.rate_rps)
    return chooser.largest_for(question.budget_usd_per_hour or 0.0)
