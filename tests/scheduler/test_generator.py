from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.feasibility import Compiled, PlanArrays
from circinus.studies.scheduling.problems import Recipe, Weights, arrays_of, problem_of

Row = tuple[int, float, list[tuple[int, int]]]

TIERS = (
    Tier(name="device", machines=1, dedicated=True),
    Tier(name="edge", machines=4, price_usd_per_hour=0.75),
    Tier(name="cloud", machines=4, price_usd_per_hour=3.7),
)
RECIPE = Recipe(queries=12, plans=5, tiers=TIERS)


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: replace(RECIPE, queries=-1), "queries must be finite and >= 0, got -1"),
        (lambda: replace(RECIPE, plans=0), "plans must be finite and > 0, got 0"),
        (lambda: replace(RECIPE, largest=0.01), r"largest must be in \[0.05, 1\], got 0.01"),
        (lambda: replace(RECIPE, alone=1.5), r"alone must be in \[0, 1\], got 1.5"),
        (lambda: replace(RECIPE, tiers=()), "tiers must have at least one tier"),
    ],
)
def test_bounds_of_the_settings(build: Callable[[], Recipe], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        build()


def test_without_queries_the_problem_is_empty() -> None:
    assert problem_of(replace(RECIPE, queries=0), 1).candidates == ()


def test_a_seed_is_a_problem() -> None:
    assert problem_of(RECIPE, 3) == problem_of(RECIPE, 3)
    assert problem_of(RECIPE, 3) != problem_of(RECIPE, 4)


def rows(arrays: PlanArrays) -> list[Row]:
    """Plans as (query, money, items), in whatever order they come."""
    return sorted(
        (query, round(cost, 9), sorted(arrays.items(plan)))
        for plan, (query, cost) in enumerate(
            zip(arrays.owner.tolist(), arrays.cost_usd_per_hour.tolist(), strict=True)
        )
    )


@given(
    seed=st.integers(0, 10_000),
    alone=st.sampled_from([0.0, 0.3]),
    replicated=st.sampled_from([0.0, 0.5, 1.0]),
    largest=st.sampled_from([0.05, 0.2, 1.0]),
)
@settings(deadline=None, max_examples=30)
def test_arrays_are_the_problem_with_names(
    seed: int, alone: float, replicated: float, largest: float
) -> None:
    recipe = replace(RECIPE, alone=alone, replicated=replicated, largest=largest)
    made, named = arrays_of(recipe, seed), Compiled.of(problem_of(recipe, seed)).arrays
    for name in ("benefit", "first", "machines"):
        np.testing.assert_allclose(getattr(made, name), getattr(named, name), err_msg=name)
    assert rows(made) == rows(named)


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=20)
def test_every_plan_fits_empty_machines_and_uses_a_shared_tier(seed: int) -> None:
    recipe = replace(RECIPE, largest=0.5, weights=Weights.EQUAL)
    for query in problem_of(recipe, seed).candidates:
        assert query.weight == 1.0
        for plan in query.plans:
            assert {item.tier for item in plan.demand} & {"edge", "cloud"}
            assert all(0 < item.share <= 1 for item in plan.demand)
            assert all(item.share <= 0.5 for item in plan.demand if item.tier != "device")
