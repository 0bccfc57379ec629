"""Particles against posteriors that are known: normal priors with normal observations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.pool.calibrated import (
    LogLikelihood,
    Particles,
    effective,
    observed,
    prior,
    systematic,
)

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
