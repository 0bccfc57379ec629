"""The calibrated search against a simulator whose posterior is known in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit, logit

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.pool.calibrated import (
    Calibrated,
    LogLikelihood,
    Particles,
    effective,
    observed,
    prior,
    systematic,
)
from circinus.scheduler.pool.search import (
    CheapestInTime,
    LargestRate,
    MeasurePool,
    Pool,
    PoolSpace,
    PoolTrial,
    best,
    search,
)

STEEP = 30.0
TARGET = float(logit(0.99))


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityLaw:
    """A `PoolSimulator`: log-odds are those of the target, plus STEEP * log(capacity / need).

    The capacity is what the instances serve together: n_k speed_k / scale_k each.
    """

    speed: tuple[float, ...]
    need: float
    requests: int = 10**9  # no finite run's noise
    streams: int = 3
    calls: list[int] = field(default_factory=list)

    def in_time(
        self,
        pools: IntArray,
        scale: FloatArray,
        variability: FloatArray,
        stream: IntArray,
        enough: float = 0.0,
    ) -> FloatArray:
        assert ((variability >= 0) & (variability <= 1)).all()
        assert ((stream >= 0) & (stream < self.streams)).all()
        self.calls.append(len(pools))
        capacity = (pools * np.array(self.speed) / scale).sum(axis=1)
        return np.asarray(expit(TARGET + STEEP * np.log(capacity / self.need)))


def measuring(shares: Mapping[Pool, float]) -> MeasurePool:
    return lambda pool: PoolTrial(pool, shares[pool])


def line(most: int = 20) -> CheapestInTime:
    return CheapestInTime(space=PoolSpace(types=("a",), prices=(1.0,), most=(most,)))


def share(pool: Pool, law: CapacityLaw, scale: Sequence[float]) -> float:
    no = np.zeros(1)
    return float(law.in_time(np.array([pool]), np.array([scale]), no, no.astype(int))[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"profile_error": -0.1}, "profile_error must be finite and >= 0"),
        ({"model_error": 0.0}, "model_error must be finite and > 0"),
        ({"shape_error": 0.0}, "shape_error must be finite and > 0"),
        ({"least_gain": 0.0}, r"least_gain must be in \(0, 1\)"),
        ({"least_gain": 1.0}, r"least_gain must be in \(0, 1\)"),
        ({"particles": 15}, "particles must be >= 16"),
    ],
)
def test_numbers_out_of_range_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Calibrated(simulator=CapacityLaw(speed=(1.0,), need=5.0), **changed)


def test_another_goal_is_refused() -> None:
    strategy = Calibrated(simulator=CapacityLaw(speed=(1.0,), need=5.0))
    goal = LargestRate(space=line().space, budget_usd_per_hour=5.0, bounds=np.ones(20))
    with pytest.raises(InvalidInput, match="goal must be the cheapest pool in time"):
        strategy.propose(goal, [])


def test_where_nothing_can_be_feasible_it_says_so_at_once() -> None:
    # 20 instances serve 20, 60 are needed: seven deviations of the profile
    advice = Calibrated(simulator=CapacityLaw(speed=(1.0,), need=60.0)).advice(line(), [])
    assert advice.pool is None
    assert advice.feasible == 0.0
    assert advice.settled == pytest.approx(1.0)


def test_a_space_that_is_tried_out_is_settled() -> None:
    strategy = Calibrated(simulator=CapacityLaw(speed=(1.0,), need=1.0))
    assert strategy.advice(line(1), [PoolTrial((1,), 0.5)]) == (None, 0.0, 1.0)


def test_a_profile_without_error_needs_one_trial() -> None:
    law = CapacityLaw(speed=(1.0,), need=6.7)
    goal = line()
    strategy = Calibrated(simulator=law, profile_error=0.0, model_error=1e-6)
    trials = search(goal, strategy, lambda pool: PoolTrial(pool, share(pool, law, (1.0,))), 9)
    assert [trial.pool for trial in trials] == [(7,)]


def test_a_trial_that_ended_early_counts_against_the_pool_and_smaller_ones() -> None:
    strategy = Calibrated(simulator=CapacityLaw(speed=(1.0,), need=9.5))
    first = strategy.advice(line(), [])
    assert first.pool is not None
    stopped = PoolTrial(first.pool, 0.3, ended_early=True)
    after = strategy.advice(line(), [stopped])
    assert after.pool is not None
    assert after.pool > first.pool


def test_free_instances_are_tried_where_they_are_likeliest_to_be_enough() -> None:
    goal = CheapestInTime(space=PoolSpace(types=("a",), prices=(0.0,), most=(20,)))
    advice = Calibrated(simulator=CapacityLaw(speed=(1.0,), need=9.5)).advice(goal, [])
    assert advice.pool is not None
    assert advice.pool > (10,)
    assert advice.feasible > 0.9


def test_stated_probabilities_are_those_of_the_closed_form() -> None:
    # s(n) = target + STEEP (log(n / need) - 0.15 z) + 0.1 noise; a priori z ~ Normal(0, 1).
    # Trials of 8, which violates, and 10: z has precision 1 + 2 (0.15 STEEP / 0.1)^2
    need, error, noise = 9.3, 0.15, 0.1
    law = CapacityLaw(speed=(1.0,), need=need)
    slope = STEEP * error
    observed_s = TARGET + STEEP * np.log(8 / need) - slope * -0.33
    strategy = Calibrated(
        simulator=law, model_error=1e-9, shape_error=noise, particles=2000, least_gain=1e-6
    )
    violated = PoolTrial((8,), float(expit(observed_s)))
    saved = PoolTrial((10,), 0.999)
    mean, seen = 0.0, ((8, observed_s), (10, float(logit(0.999))))
    precision = 1 + len(seen) * (slope / noise) ** 2
    for n, s in seen:
        mean += slope / noise**2 * (TARGET + STEEP * np.log(n / need) - s) / precision
    far = STEEP * np.log(9 / need) - slope * mean
    expected = NormalDist().cdf(far / sqrt(noise**2 + slope**2 / precision))
    advice = strategy.advice(line(10), [violated, saved])
    assert advice.pool == (9,)
    # 2,000 particles: standard error of the mean at most 0.011, moved ones are alike
    assert advice.feasible == pytest.approx(expected, abs=0.04)
    assert 0.02 < expected < 0.98


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    prices=st.tuples(*[st.floats(0.0, 3.0)] * 2),
    factors=st.tuples(*[st.floats(0.7, 1.4)] * 2),
    need=st.floats(0.5, 12.0),
)
def test_a_search_keeps_to_its_contract(
    seed: int, prices: tuple[float, float], factors: tuple[float, float], need: float
) -> None:
    law = CapacityLaw(speed=(1.0, 1.7), need=need)
    goal = CheapestInTime(space=PoolSpace(types=("a", "b"), prices=prices, most=(3, 4)))
    strategy, again = (Calibrated(simulator=law, particles=32, seed=seed) for _ in range(2))
    trials: list[PoolTrial] = []
    while True:
        advice = strategy.advice(goal, trials)
        assert 0 <= advice.feasible <= 1
        assert 0 <= advice.settled <= 1
        if advice.pool is None:
            break
        assert not goal.hopeless(trials)[goal.space.place(advice.pool)]
        trials.append(PoolTrial(advice.pool, share(advice.pool, law, factors)))
    assert again.advice(goal, trials) == advice  # asked at once or step by step
    truth = [share(tuple(pool), law, factors) for pool in goal.space.pools.tolist()]
    found = best(goal, trials)
    if found is not None:
        assert share(found.pool, law, factors) >= goal.in_time
    if max(truth) < goal.in_time:
        assert found is None


def test_hidden_factors_are_found_in_few_trials() -> None:
    # three types, each wrong by its own factor, and nothing else is
    law = CapacityLaw(speed=(3.0, 1.7, 1.0), need=14.3)
    space = PoolSpace(types=("a", "b", "c"), prices=(3.1, 1.6, 1.05), most=(6, 6, 6))
    goal = CheapestInTime(space=space)
    for seed in range(4):
        factors = np.exp(0.15 * np.random.default_rng(seed).standard_normal(3)).tolist()
        truth = [share(tuple(pool), law, factors) for pool in space.pools.tolist()]
        cheapest = space.costs[np.array(truth) >= 0.99].min()
        shares = dict(zip(map(tuple, space.pools.tolist()), truth, strict=True))
        strategy = Calibrated(simulator=law, model_error=0.002, shape_error=0.05, seed=seed)
        trials = search(goal, strategy, measuring(shares), 20)
        found = best(goal, trials)
        assert found is not None
        assert space.cost(found.pool) == pytest.approx(cheapest)
        assert len(trials) <= 10


COUNT = 2000


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def seen(value: float, sigma: float) -> LogLikelihood:
    """An observation of the first coordinate."""
    return lambda z: -np.square((value - z[:, 0]) / sigma) / 2


def moments(particles: Particles) -> tuple[FloatArray, FloatArray]:
    mean = particles.weight @ particles.z
    return mean, particles.weight @ np.square(particles.z - mean)


def test_an_observation_that_is_nearly_impossible_everywhere_leaves_finite_weights() -> None:
    found = observed(prior(50, 2, rng()), seen(1e3, 0.1), rng())
    assert np.isfinite(found.z).all()
    assert found.weight.sum() == pytest.approx(1.0)


def test_an_observation_that_says_nothing_moves_nobody() -> None:
    before = prior(50, 2, rng())
    after = observed(before, lambda z: np.zeros(len(z)), rng())
    assert (after.z == before.z).all()
    assert effective(after.weight) == pytest.approx(50)


@pytest.mark.parametrize("sigma", [3.0, 0.3, 0.01])
def test_one_observation_gives_the_conjugate_posterior(sigma: float) -> None:
    # prior Normal(0, 1), observed 1.2: mean 1.2 / (1 + sigma^2), variance sigma^2 / (1 + sigma^2)
    mean, variance = moments(observed(prior(COUNT, 2, rng()), seen(1.2, sigma), rng()))
    deviation = sigma / np.sqrt(1 + sigma**2)
    # particles drawn again are alike: 6 standard errors of independent ones fail rarely
    assert mean[0] == pytest.approx(1.2 / (1 + sigma**2), abs=6 * deviation / np.sqrt(COUNT))
    assert variance[0] == pytest.approx(deviation**2, rel=6 * np.sqrt(2 / COUNT))
    assert mean[1] == pytest.approx(0.0, abs=6 / np.sqrt(COUNT))


def test_observations_add_up_in_any_number() -> None:
    # five of deviation 0.5: precision 1 + 5 / 0.25 = 21
    particles = prior(COUNT, 1, rng())
    values = [0.9, 1.1, 1.4, 0.6, 1.0]
    for value in values:
        particles = observed(particles, seen(value, 0.5), rng())
    mean, variance = moments(particles)
    assert mean[0] == pytest.approx(sum(values) / 0.25 / 21, abs=6 / np.sqrt(21 * COUNT))
    assert variance[0] == pytest.approx(1 / 21, rel=6 * np.sqrt(2 / COUNT))
    assert particles.log_likelihood.shape == (COUNT, 5)
    again = np.column_stack([known(particles.z) for known in particles.known])
    assert again == pytest.approx(particles.log_likelihood)  # they were moved with their places


@given(
    arrays(np.float64, st.integers(1, 20), elements=st.floats(1e-3, 1.0)),
    st.integers(1, 50),
    st.integers(0, 100),
)
def test_systematic_draws_are_as_even_as_they_can_be(
    weight: FloatArray, count: int, seed: int
) -> None:
    weight = weight / weight.sum()
    chosen = systematic(weight, count, np.random.default_rng(seed))
    times = np.bincount(chosen, minlength=len(weight))
    assert times.sum() == count
    assert (np.abs(times - count * weight) < 1 + 1e-6).all()
