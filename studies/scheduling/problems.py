"""Problems to compare scheduling policies on: drawn by the published generator, or a user's own.

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

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.files import read_file
from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.feasibility import Compiled, PlanArrays
from circinus.scheduler.problem import PARTS, Candidate, Objective, PlanOption, Problem
from circinus.scheduler.problem_form import problem_from_dict

_STEPS = 20
"""Of a machine."""


class Weights(StrEnum):
    """How much queries differ in weight."""

    UNLIKE = "unlike"
    EQUAL = "equal"


# deviates: drawn-problems
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


def _draw(recipe: Recipe, seed: int) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the numbers of a problem; equal arguments give equal numbers.

    The weight of each query, shape (N,); the share of a plan's item on a tier in twentieths, 0:
    none, and how often that item comes, both of shape (N, P, tiers).
    """
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
    if shared:  # each plan uses one
        pick = rng.integers(0, len(shared), used.shape[:2])
        none = ~used[..., shared].any(axis=2)
        for i, tier in enumerate(shared):
            used[..., tier] |= none & (pick == i)
    if own:
        alone = rng.random(shape[:2]) < recipe.alone
        used[..., shared] &= ~alone[..., None]
    copies = 1 + (rng.random(shape) < recipe.replicated)
    copies[..., own] = 1
    if recipe.weights is Weights.EQUAL:
        weight = np.ones(recipe.queries)
    return weight, (twentieths * used).astype(np.int64), copies.astype(np.int64)


def problem_of(recipe: Recipe, seed: int) -> Problem:
    """Return a drawn problem with names: queries q000000, ..., plans p0, ..."""
    rows = zip(*(array.tolist() for array in _draw(recipe, seed)), strict=True)
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
    """Return a drawn problem as arrays, for sizes at which names would take longer than plans."""
    weight, twentieths, copies = _draw(recipe, seed)
    shared = [t for t, tier in enumerate(recipe.tiers) if not tier.dedicated]
    queries, plans, _ = twentieths.shape
    twentieths = twentieths[..., shared].reshape(queries * plans, -1)
    copies = copies[..., shared].reshape(queries * plans, -1)
    prices = np.array([recipe.tiers[t].price_usd_per_hour for t in shared])
    twice = np.concatenate((twentieths, np.where(copies == 2, twentieths, 0)), axis=1)
    order = np.argsort(-twice, axis=1, kind="stable")
    sizes = np.take_along_axis(twice, order, axis=1)
    there = sizes > 0
    return PlanArrays(
        benefit=weight,
        first=np.arange(0, queries * plans + 1, plans),
        cost_usd_per_hour=(twentieths * copies) @ prices / _STEPS,
        calls_usd_per_hour=np.zeros(queries * plans),
        item_first=np.concatenate(([0], np.cumsum(there.sum(axis=1)))),
        item_tier=(order % len(shared))[there],
        item_parts=sizes[there] * (PARTS // _STEPS),
        machines=np.array([recipe.tiers[t].machines for t in shared], np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCase:
    """A problem to compare policies on."""

    name: str  # for files: unique within a run
    problem: Problem
    seed: int | None = None  # it was drawn from; None: it was not drawn

    @property
    def plans(self) -> int:
        """Of each query; of the query with most, where they differ."""
        return max((len(c.plans) for c in self.problem.candidates), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Which problems are drawn."""

    queries: tuple[int, ...]  # sizes; for each of them one problem per seed
    plans: int  # of a query
    tiers: tuple[Tier, ...]  # with their machines
    seeds: int = 1  # how many
    first_seed: int = 0  # the first of them, `>= 0`
    largest: float = 1.0  # share of the largest item
    weights: Weights = Weights.UNLIKE  # how queries differ in weight
    # if given, machines are set so that the least that all queries could ask for is this many
    # times what there is, spread over the tiers evenly, a machine each at least
    load: float | None = None

    def __post_init__(self) -> None:
        for queries in self.queries:
            checks.at_least("queries", queries, 1)
        checks.positive("plans", self.plans)
        checks.positive("seeds", self.seeds)
        checks.non_negative("first_seed", self.first_seed)
        checks.positive("load", self.load)


def cases(draw: Draw, objective: Objective) -> tuple[ProblemCase, ...]:
    """Return the drawn problems, the small ones first.

    For `COST` each shared tier gets as many machines as could ever be needed.
    """
    problem_cases = []
    for queries in draw.queries:
        for seed in range(draw.first_seed, draw.first_seed + draw.seeds):
            recipe = Recipe(
                queries=queries,
                plans=draw.plans,
                tiers=draw.tiers,
                largest=draw.largest,
                weights=draw.weights,
            )
            problem = problem_of(recipe, seed)
            if objective is Objective.COST:
                problem = with_machines(problem, 2 * queries)
            elif draw.load is not None:
                problem = with_machines(problem, _machines(problem, draw.load))
            name = f"q{queries}-p{draw.plans}-s{seed}"
            problem_cases.append(ProblemCase(name=name, problem=problem, seed=seed))
    return tuple(problem_cases)


def with_machines(problem: Problem, machines: int) -> Problem:
    """Return the problem with that many machines on each shared tier."""
    tiers = tuple(t if t.dedicated else replace(t, machines=machines) for t in problem.tiers)
    return replace(problem, tiers=tiers)


def _machines(problem: Problem, load: float) -> int:
    compiled = Compiled.of(with_machines(problem, 1))
    least, _ = compiled.arrays.least(compiled.arrays.usage.sum(axis=1))
    return max(1, round(float(least.sum()) / load / max(1, len(compiled.tiers))))


def read_problem(path: Path) -> Problem:
    """Return the problem of a JSON file (`scheduler.problem_form`), or InvalidInput."""
    try:
        document = json.loads(read_file(path, "problem"))
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidInput.of("problem", "must be JSON", str(error)) from error
    return problem_from_dict(document)
