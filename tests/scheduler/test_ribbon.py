"""Ribbon's own rules; what it shares with other strategies is in the contract suite."""

from __future__ import annotations

from dataclasses import replace
from math import nan, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.pool.ribbon import (
    NOISE,
    PoolSurrogateSettings,
    Ribbon,
    carried_over,
    expected_improvement,
    predicted,
)
from circinus.scheduler.pool.ribbon_space import EarlyEnd, MeasuredTypes, most_useful
from circinus.scheduler.pool.search import (
    CheapestInTime,
    MeasurePool,
    Pool,
    PoolSpace,
    PoolTrial,
    best,
    search,
)

SPACE = PoolSpace(types=("a", "b"), prices=(2.0, 1.0), most=(4, 6))
PUBLISHED = CheapestInTime(space=SPACE, prunes_below=0.01)


def enough_for_seven(pool: Pool) -> PoolTrial:
    """An `a` serves 3, a `b` 1; 7 are needed."""
    return PoolTrial(pool, min((3 * pool[0] + pool[1]) / 7, 1.0))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"ribbon.first must be >= 1, got 0"):
        Ribbon(first=0)
    with pytest.raises(InvalidInput, match=r"ribbon.xi must be finite and >= 0"):
        Ribbon(xi=-0.1)


def test_the_first_pools_are_drawn_by_the_seed() -> None:
    drawn = {tuple(search(PUBLISHED, Ribbon(seed=seed), enough_for_seven, 2)) for seed in range(9)}
    assert len(drawn) > 5


def test_it_finds_the_cheapest_with_fewer_trials_than_there_are_pools() -> None:
    # 2 a + 1 b serve 7 for 5 USD/h; the only cheaper ones serve less
    for seed in range(5):
        trials = search(PUBLISHED, Ribbon(seed=seed), enough_for_seven, 100)
        assert (2, 1) in {trial.pool for trial in trials}
        assert len(trials) < len(SPACE.pools) / 2


def test_what_clearly_violates_prunes_what_it_contains_only_as_published() -> None:
    trials = [PoolTrial((2, 3), 0.9), PoolTrial((3, 0), 0.985)]
    safe = CheapestInTime(space=SPACE)
    pruned, kept = PUBLISHED.hopeless(trials), safe.hopeless(trials)
    assert pruned[SPACE.place((1, 3))]
    assert not kept[SPACE.place((1, 3))]
    assert not pruned[SPACE.place((1, 4))]  # holds one more
    # 0.985 is within the threshold of 0.99: nothing but itself
    only = PUBLISHED.hopeless(trials[1:])
    assert only.tolist() == (np.arange(len(SPACE.pools)) == SPACE.place((3, 0))).tolist()


@pytest.mark.parametrize(("mean", "deviation", "above"), [(0.5, 0.1, 0.6), (0.2, 0.3, 0.0)])
def test_expected_improvement_is_the_integral_that_it_stands_for(
    mean: float, deviation: float, above: float
) -> None:
    found = expected_improvement(np.array([mean]), np.array([deviation]), above)
    integral, _ = quad(
        lambda y: (y - above) * norm.pdf(y, mean, deviation), above, mean + 12 * deviation
    )
    assert found == pytest.approx([integral], rel=1e-6)


def test_nothing_is_expected_of_a_pool_that_is_known_to_be_worse() -> None:
    found = expected_improvement(np.array([0.2]), np.array([1e-6]), 0.5)
    assert found == pytest.approx([0.0], abs=1e-12)


RIBBON_REUSE_SPACE = PoolSpace(types=("a", "b"), prices=(2.0, 0.9), most=(8, 12))
GOAL = CheapestInTime(space=RIBBON_REUSE_SPACE, prunes_below=0.01)
EARLIER = [PoolTrial((3, 0), 0.999), PoolTrial((2, 0), 0.90), PoolTrial((4, 0), 1.0)]


def test_nothing_is_estimated_where_the_pool_is_feasible_still() -> None:
    again = PoolTrial((3, 0), 0.995)
    assert carried_over(GOAL, EARLIER, again) == [again]


def test_nothing_is_estimated_from_a_pool_that_was_never_tried_or_ended_early() -> None:
    again = PoolTrial((5, 5), 0.3)
    assert carried_over(GOAL, EARLIER, again) == [again]
    ended = PoolTrial((5, 5), 0.5, ended_early=True)
    assert carried_over(GOAL, [*EARLIER, ended], again) == [again]
    nothing = PoolTrial((5, 5), 0.0)
    assert carried_over(GOAL, [*EARLIER, nothing], again) == [again]


def test_what_was_no_better_is_estimated_as_the_paper_does() -> None:
    # 99.9 to 33.3 %: what had 90 % gets 30 %; (4, 0) was better and is not told of
    again = PoolTrial((3, 0), 0.333)
    found = carried_over(GOAL, EARLIER, again)
    assert found[0] == again
    assert [(trial.pool, trial.ended_early) for trial in found[1:]] == [((2, 0), True)]
    assert found[1].value == pytest.approx(0.30)
    assert not any(map(GOAL.feasible, found))


def test_what_was_as_good_may_be_the_way_out() -> None:
    saturated = [PoolTrial((3, 0), 1.0), PoolTrial((4, 0), 1.0)]
    again = PoolTrial((3, 0), 0.5)
    assert carried_over(GOAL, saturated, again) == [again]


def test_what_is_estimated_is_not_tried_and_prunes_what_it_contains() -> None:
    hopeless = GOAL.hopeless(carried_over(GOAL, EARLIER, PoolTrial((3, 0), 0.333)))
    for pool in ((3, 0), (2, 0), (1, 0)):
        assert hopeless[RIBBON_REUSE_SPACE.place(pool)]
    assert not hopeless[RIBBON_REUSE_SPACE.place((4, 0))]


def measure_at(rate: float) -> MeasurePool:
    """An `a` serves 3, a `b` 1; what comes beyond is late."""

    def measure(pool: Pool) -> PoolTrial:
        return PoolTrial(pool, min((3 * pool[0] + pool[1]) / rate, 1.0))

    return measure


@given(
    seed=st.integers(0, 999),
    rate=st.integers(6, 20),
    growth=st.sampled_from([1.2, 1.5, 1.8]),
)
@pytest.mark.slow
@settings(max_examples=10, deadline=None)
def test_the_new_optimum_is_found_without_trying_what_is_known(
    seed: int, rate: int, growth: float
) -> None:
    # where more instances are never worse, no more than violating pools is left out
    earlier = search(GOAL, Ribbon(seed=seed), measure_at(rate), 200)
    settled, now = best(GOAL, earlier), measure_at(growth * rate)
    assert settled is not None
    known = carried_over(GOAL, earlier, now(settled.pool))
    trials = search(GOAL, Ribbon(seed=seed), now, 200, known)
    found = best(GOAL, trials)
    every = [now(tuple(pool)) for pool in RIBBON_REUSE_SPACE.pools.tolist()]
    cheapest = min(RIBBON_REUSE_SPACE.cost(trial.pool) for trial in every if GOAL.feasible(trial))
    assert found is not None
    assert RIBBON_REUSE_SPACE.cost(found.pool) == pytest.approx(cheapest)
    assert {trial.pool for trial in known}.isdisjoint(trial.pool for trial in trials)


SHARE = np.array([0.5, 0.5])
# fast, cheap and a little late, cheaper and far too late, slow and dear
LATENCY = np.array([[0.010, 0.015, 0.020, 0.012], [0.020, 0.025, 0.040, 0.026]])
PRICES = np.array([1.0, 0.3, 0.1, 2.0])
TYPES = MeasuredTypes(share=SHARE, latency_s=LATENCY, prices=PRICES)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"share": SHARE[:1]}, r"latency_s must have shape \(1, 4\)"),
        ({"latency_s": 0 * LATENCY}, "latency_s must be > 0"),
        ({"prices": 0 * PRICES}, "prices must be > 0"),
    ],
)
def test_types_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(TYPES, **changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"qos_s": 0.0}, "qos_s must be finite and > 0"),
        ({"qos_s": 0.019}, "qos_s must be such that a type alone has 99% of the requests in time"),
        ({"relaxed": -0.1}, "relaxed must be finite and >= 0"),
    ],
)
def test_targets_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TYPES.useful(**({"qos_s": 0.02} | changed))


def test_a_dollar_serves_what_is_served_in_its_time() -> None:
    # 15 ms on average for 1 USD/h: 3600 / 0.015
    assert TYPES.requests_per_usd[0] == pytest.approx(240_000.0)


def test_a_type_is_of_use_that_meets_the_relaxed_target_and_serves_more_for_a_dollar() -> None:
    assert TYPES.useful(0.020) == [0, 1]
    assert TYPES.useful(0.020, relaxed=0.24) == [0]
    # the cheapest type serves the most for a dollar: 3600 / 0.03 / 0.1
    assert TYPES.useful(0.020, relaxed=1.0) == [0, 2, 1]


def test_the_base_serves_the_most_for_a_dollar_of_those_in_time() -> None:
    # 3600 / 0.02 / 0.3 is more than 240,000; the cheapest is late by the relaxed target, too
    assert TYPES.useful(0.026) == [1]
    assert TYPES.useful(0.040) == [2]


def test_the_few_that_may_be_late_do_not_matter() -> None:
    types = MeasuredTypes(
        share=np.array([0.99, 0.01]),
        latency_s=np.array([[0.01, 0.02], [0.02, 9.0]]),
        prices=np.array([9.0, 0.1]),
    )
    assert types.useful(0.02) == [1]
    assert types.useful(0.02, in_time=0.995) == [0]


def test_the_most_of_a_type_is_where_more_do_not_improve() -> None:
    def in_time(pool: Pool) -> float:
        """Of the first, 3 serve all; of the second, one does nothing and 4 get to 0.9."""
        return min(pool[0] / 3, 1.0) + (0.3 * min(pool[1] - 1, 3) if pool[1] else 0.0)

    assert most_useful(in_time, kinds=2, limit=9) == (3, 4)
    assert most_useful(in_time, kinds=2, limit=2) == (2, 2)
    assert most_useful(lambda pool: 0.0, kinds=2, limit=9) == (1, 1)


def test_differences_within_the_tolerance_are_none() -> None:
    shares = [0.0, 0.5, 0.95, 0.953, 0.951]
    told: dict[Pool, float] = {(count,): share for count, share in enumerate(shares)}
    assert most_useful(told.__getitem__, kinds=1, limit=4) == (2,)
    assert most_useful(told.__getitem__, kinds=1, limit=4, tolerance=0.0) == (3,)


def test_a_share_that_misses_the_target_does_not_equal_one_that_has_it() -> None:
    shares: dict[Pool, float] = {(1,): 0.988, (2,): 0.992}
    assert most_useful(shares.__getitem__, kinds=1, limit=2) == (1,)
    assert most_useful(shares.__getitem__, kinds=1, limit=2, target=0.99) == (2,)
    assert most_useful(shares.__getitem__, kinds=1, limit=2, target=0.999) == (2,)


@pytest.mark.parametrize("wrong", [{"kinds": 0}, {"limit": 0}, {"tolerance": -1.0}])
def test_no_types_or_counts_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        most_useful(lambda pool: 1.0, **({"kinds": 1, "limit": 1} | wrong))


RULE = EarlyEnd(longest_queue=5)


def trial(
    waiting: list[int], late: set[int], rule: EarlyEnd = RULE, count: int = 200
) -> tuple[PoolTrial, int]:
    """Of 200 requests, 2 may be late."""
    in_time = np.array([i not in late for i in range(count)])
    return rule.trial((1,), np.array(waiting + [0] * (count - len(waiting))), in_time)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"longest_queue": -1}, "longest_queue must be >= 0"),
        ({"in_time": 0.0}, r"in_time must be in \(0, 1\]"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        EarlyEnd(**({"longest_queue": 5} | changed))


def test_no_requests_and_other_shapes_are_refused() -> None:
    for count in (0, 3):
        with pytest.raises(InvalidInput, match="waiting must have shape"):
            RULE.trial((1,), np.zeros(2, dtype=np.int64), np.ones(count, dtype=np.bool_))
    with pytest.raises(InvalidInput, match="waiting must have shape"):
        trial([], set(), count=0)


def test_a_trial_goes_on_while_it_may_turn_out_well() -> None:
    assert trial([5] * 200, {0, 1}) == (PoolTrial((1,), 0.99), 200)


def test_it_ends_with_the_first_late_one_too_many() -> None:
    assert trial([], {0, 1, 4}) == (PoolTrial((1,), 2 / 5, ended_early=True), 5)
    assert trial([], {0, 1, 199}) == (PoolTrial((1,), 0.985), 200)


def test_it_ends_when_the_queue_is_too_long_unless_any_length_is_good() -> None:
    assert trial([0, 5, 6, 0], set()) == (PoolTrial((1,), 1.0, ended_early=True), 3)
    anything = EarlyEnd(longest_queue=None)
    assert trial([0, 5, 6, 0], set(), anything) == (PoolTrial((1,), 1.0), 200)


def test_a_queue_that_is_too_long_with_the_last_request_violates_as_well() -> None:
    ended, count = trial([0] * 199 + [6], set())
    assert (ended, count) == (PoolTrial((1,), 1.0, ended_early=True), 200)
    goal = CheapestInTime(space=PoolSpace(types=("a",), prices=(1.0,), most=(3,)))
    assert not goal.feasible(ended)
    assert goal.worth(ended) == 0.5  # no more than what violates may be worth


@given(st.lists(st.booleans(), min_size=100, max_size=100), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_without_a_longest_queue_it_says_what_the_whole_trial_would(
    in_time: list[bool], target: float
) -> None:
    rule = EarlyEnd(longest_queue=None, in_time=target)
    done, _ = rule.trial((1,), np.zeros(100, dtype=np.int64), np.array(in_time))
    goal = CheapestInTime(space=PoolSpace(types=("a",), prices=(1.0,), most=(3,)), in_time=target)
    assert goal.feasible(done) == goal.feasible(PoolTrial((1,), sum(in_time) / 100))


TRIED = np.array([[0.0, 0.0], [4.0, 8.0], [1.0, 6.0], [3.0, 2.0]])
WORTH = np.array([0.1, 0.5, 0.7, 0.4])
ASKED = np.array([[1.0, 6.0], [2.0, 5.0], [0.0, 8.0]])
UNLEARNT = PoolSurrogateSettings(steps=0)


@pytest.mark.parametrize(
    ("tried", "worth", "message"),
    [
        (np.empty((0, 2)), np.empty(0), "tried must not be empty"),
        (TRIED, WORTH[:3], r"worth must have shape \(4,\)"),
        (TRIED, np.array([0.1, nan, 0.2, 0.3]), "worth must be finite"),
        (TRIED[:, :1], WORTH, r"asked must have 1 columns"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tried: FloatArray, worth: FloatArray, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        predicted(tried, worth, ASKED)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": -1}, "surrogate.steps must be finite and >= 0"),
        ({"shortest": 0.0}, "surrogate.shortest must be finite and > 0"),
        ({"first_length": 0.01}, "surrogate.first_length must be between"),
        ({"longest": 1.0}, "surrogate.first_length must be between"),
    ],
)
def test_a_surrogate_whose_settings_make_no_sense_is_refused(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        PoolSurrogateSettings(**changed)


def closed_form(length: float) -> tuple[FloatArray, FloatArray]:
    def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
        r = sqrt(5) * np.linalg.norm((a[:, None] - b[None]) / length, axis=-1)
        return np.asarray((1 + r + r**2 / 3) * np.exp(-r))  # Matern 5/2

    inverse = np.linalg.inv(kernel(TRIED, TRIED) + NOISE * np.eye(len(TRIED)))
    cross, scale = kernel(ASKED, TRIED), WORTH.std()
    mean = WORTH.mean() + cross @ inverse @ (WORTH - WORTH.mean())
    variance = 1 - np.einsum("pn,nm,pm->p", cross, inverse, cross)
    return mean, scale * np.sqrt(variance)


def test_it_predicts_what_the_closed_form_does() -> None:
    mean, deviation = predicted(TRIED, WORTH, ASKED, UNLEARNT)
    by_hand = closed_form(UNLEARNT.first_length)
    assert mean == pytest.approx(by_hand[0], abs=1e-7)
    assert deviation == pytest.approx(by_hand[1], abs=1e-6)


def test_a_pool_that_was_tried_is_known() -> None:
    mean, deviation = predicted(TRIED, WORTH, TRIED)
    assert mean == pytest.approx(WORTH, abs=1e-4)
    assert (deviation < 1e-3).all()


@given(st.integers(0, 4), st.integers(0, 8), st.floats(-0.49, 0.49), st.floats(-0.49, 0.49))
@settings(max_examples=20, deadline=None)
def test_counts_that_round_alike_are_one_pool(a: int, b: int, da: float, db: float) -> None:
    asked = np.array([[a, b], [a + da, b + db]], dtype=np.float64)
    mean, deviation = predicted(TRIED, WORTH, asked, UNLEARNT)
    assert mean[0] == mean[1]
    assert deviation[0] == deviation[1]


def test_equal_worths_are_no_news() -> None:
    mean, deviation = predicted(TRIED[:2], np.array([0.3, 0.3]), ASKED)
    assert mean == pytest.approx([0.3] * 3)
    assert np.isfinite(deviation).all()


def test_the_length_is_learnt() -> None:
    # a wave of 2 pi in 16: what lies between every second count is known within little
    tried = np.arange(0.0, 25.0, 2.0)[:, None]
    between = tried[:-1] + 1
    worth, truth = np.sin(tried[:, 0] * np.pi / 8), np.sin(between[:, 0] * np.pi / 8)
    learnt, _ = predicted(tried, worth, between)
    unlearnt, _ = predicted(tried, worth, between, UNLEARNT)
    assert np.abs(learnt - truth).max() < 0.5 * np.abs(unlearnt - truth).max()


def test_the_number_of_threads_is_left_as_it_was() -> None:
    before = torch.get_num_threads()
    predicted(TRIED, WORTH, ASKED)
    assert torch.get_num_threads() == before
