"""Problems drawn at random, for studies, tests and benchmarks: the published generator.

How a problem is drawn, query after query, from one seed:

- its *size* uniform in [0.25, 1]: queries differ in how much their plans need;
- its *weight* uniform in [1, 10] (`Weights.UNLIKE`), or 1 (`EQUAL`);
- each of its plans uses every shared tier with probability 0.5, and at least one of them (a
  plan that uses none is put on one drawn uniformly), except that it runs on the query's own
  device alone with probability `alone`;
- its item on a tier: uniform in {1, ..., 20 * largest}, times the size, rounded up, in
  twentieths of a machine; with probability `replicated` the item comes twice;
- on each dedicated tier it takes a share drawn like an item, once: it always fits.

Money is the shares at the tiers' prices. Plans are not filtered: some are worse than others
in everything, as a user's own may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines import checks
from circinus.pipelines.infrastructure import Tier
from circinus.pipelines.plan import DemandItem
from circinus.scheduler.compiled.arrays import FloatArray, IntArray, PlanArrays
from circinus.scheduler.problem import PARTS, Candidate, PlanOption, Problem

_STEPS = 20
"""Of a machine."""


class Weights(StrEnum):
    """How much queries differ in weight."""

    UNLIKE = "unlike"
    EQUAL = "equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What kind of problem is drawn."""

    queries: int  # N
    plans: int  # of each query
    tiers: tuple[Tier, ...]  # with their machines
    largest: float = 1.0  # share of the largest item, in [0.05, 1]
    weights: Weights = Weights.UNLIKE  # how weights are drawn
    alone: float = 0.0  # probability that a plan needs no shared tier
    replicated: float = 0.1  # probability that an item comes twice

    def __post_init__(self) -> None:
        checks.non_negative("queries", self.queries)
        checks.positive("plans", self.plans)
        ok = 1 / _STEPS <= self.largest <= 1
        checks.require(ok, "largest", "must be in [0.05, 1]", self.largest)
        checks.probability("alone", self.alone)
        checks.probability("replicated", self.replicated)
        checks.require(len(self.tiers) > 0, "tiers", "must have at least one tier", [])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnProblem:
    """The numbers of a problem."""

    weight: FloatArray  # (N,); of each query
    twentieths: IntArray  # (N, P, tiers); share of a plan's item on a tier; 0: none
    copies: IntArray  # (N, P, tiers); how often the item comes


def draw(recipe: Recipe, seed: int) -> DrawnProblem:
    """Give the numbers of a problem; equal arguments give equal numbers."""
    rng = np.random.Generator(np.random.PCG64(seed))
    shape = (recipe.queries, recipe.plans, len(recipe.tiers))
    size = rng.uniform(0.25, 1.0, recipe.queries)
    weight = rng.uniform(1.0, 10.0, recipe.queries)
    largest = max(1, round(recipe.largest * _STEPS))
    twentieths = np.ceil(rng.integers(1, largest + 1, shape) * size[:, None, None])
    used = rng.random(shape) < 0.5
    shared = [t for t, tier in enumerate(recipe.tiers) if not tier.dedicated]
    own = [t for t, tier in enumerate(recipe.tiers) if tier.dedicated]
    used[..., own] = True
    _use_some(used, shared, rng)
    if own:
        alone = rng.random(shape[:2]) < recipe.alone
        used[..., shared] &= ~alone[..., None]
    copies = 1 + (rng.random(shape) < recipe.replicated)
    copies[..., own] = 1
    unlike = recipe.weights is Weights.UNLIKE
    return DrawnProblem(
        weight=weight if unlike else np.ones(recipe.queries),
        twentieths=(twentieths * used).astype(np.int64),
        copies=copies.astype(np.int64),
    )


def _use_some(used: NDArray[np.bool_], shared: list[int], rng: np.random.Generator) -> None:
    """Make each plan use a shared tier, in place."""
    if not shared:
        return
    pick = rng.integers(0, len(shared), used.shape[:2])
    none = ~used[..., shared].any(axis=2)
    for i, tier in enumerate(shared):
        used[..., tier] |= none & (pick == i)


def problem_of(recipe: Recipe, seed: int) -> Problem:
    """Give a drawn problem with names: queries q000000, ..., plans p0, ..."""
    drawn = draw(recipe, seed)
    rows = zip(
        drawn.weight.tolist(), drawn.twentieths.tolist(), drawn.copies.tolist(), strict=True
    )
    candidates = []
    for q, (weight, twentieths, copies) in enumerate(rows):
        items = enumerate(zip(twentieths, copies, strict=True))
        plans = tuple(_plan(recipe.tiers, p, *numbers) for p, numbers in items)
        candidates.append(Candidate(query_id=f"q{q:06}", weight=weight, plans=plans))
    return Problem(tiers=recipe.tiers, candidates=tuple(candidates))


def _plan(
    tiers: tuple[Tier, ...], number: int, twentieths: list[int], copies: list[int]
) -> PlanOption:
    rows = [row for row in zip(tiers, twentieths, copies, strict=True) if row[1]]
    money = sum(tier.price_usd_per_hour * n * times / _STEPS for tier, n, times in rows)
    items = [DemandItem(tier.name, n / _STEPS) for tier, n, times in rows for _ in range(times)]
    return PlanOption(plan_id=f"p{number}", demand=tuple(items), cost_usd_per_hour=money)


def arrays_of(recipe: Recipe, seed: int) -> PlanArrays:
    """Give a drawn problem as arrays, for sizes at which names would take longer than plans."""
    drawn = draw(recipe, seed)
    shared = [t for t, tier in enumerate(recipe.tiers) if not tier.dedicated]
    queries, plans, _ = drawn.twentieths.shape
    twentieths = drawn.twentieths[..., shared].reshape(queries * plans, -1)
    copies = drawn.copies[..., shared].reshape(queries * plans, -1)
    prices = np.array([recipe.tiers[t].price_usd_per_hour for t in shared])
    twice = np.concatenate((twentieths, np.where(copies == 2, twentieths, 0)), axis=1)
    order = np.argsort(-twice, axis=1, kind="stable")
    sizes = np.take_along_axis(twice, order, axis=1)
    there = sizes > 0
    return PlanArrays(
        benefit=drawn.weight,
        first=np.arange(0, queries * plans + 1, plans),
        cost_usd_per_hour=(twentieths * copies) @ prices / _STEPS,
        item_first=np.concatenate(([0], np.cumsum(there.sum(axis=1)))),
        item_tier=(order % len(shared))[there],
        item_parts=sizes[there] * (PARTS // _STEPS),
        machines=np.array([recipe.tiers[t].machines for t in shared], np.int64),
    )
