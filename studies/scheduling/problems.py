"""Problems to compare scheduling policies on: drawn, or a user's own."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Tier
from circinus.scheduler.compiled.feasibility import Compiled
from circinus.scheduler.ilp.model import Objective
from circinus.scheduler.problem import Problem
from circinus.scheduler.problem_form import problem_from_dict
from circinus.studies.scheduling.generator import Recipe, Weights, problem_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCase:
    """A problem to compare policies on."""

    name: str  # for files: unique within a run
    problem: Problem
    plans: int  # of each query; of the query with most, where they differ
    seed: int | None  # it was drawn from; None: it was given


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
        if self.load is not None:
            checks.positive("load", self.load)


def cases(draw: Draw, objective: Objective) -> tuple[ProblemCase, ...]:
    """Give the drawn problems, the small ones first.

    For `COST` each shared tier gets as many machines as could ever be needed.
    """
    found = []
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
            found.append(ProblemCase(name=name, problem=problem, plans=draw.plans, seed=seed))
    return tuple(found)


def given(problem: Problem, name: str) -> ProblemCase:
    """Give the case of a user's own problem."""
    plans = max((len(c.plans) for c in problem.candidates), default=0)
    return ProblemCase(name=name, problem=problem, plans=plans, seed=None)


def with_machines(problem: Problem, machines: int) -> Problem:
    """Give the problem with that many machines on each shared tier."""
    tiers = tuple(t if t.dedicated else replace(t, machines=machines) for t in problem.tiers)
    return replace(problem, tiers=tiers)


def _machines(problem: Problem, load: float) -> int:
    compiled = Compiled.of(with_machines(problem, 1))
    least, _ = compiled.arrays.least(compiled.arrays.usage.sum(axis=1))
    return max(1, round(float(least.sum()) / load / max(1, len(compiled.tiers))))


def read_problem(path: Path) -> Problem:
    """Give the problem of a file, in the form of `scheduler.problem_form`.

    Raises:
        InvalidInput: If it cannot be read or is not JSON, a field is missing or of the wrong
            kind, or breaks a rule.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInput.of("problem", f"must be a readable file ({reason})", path) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput.of("problem", "must be JSON", str(error)) from error
    return problem_from_dict(document)
