"""Weighted particles that follow a posterior as observations come: a tempered SMC sampler.

Del Moral, Doucet and Jasra, "Sequential Monte Carlo samplers", 2006; the steps of the tempering
are chosen by the effective sample size (Jasra et al., 2011). The prior is standard normal in
every coordinate; what a coordinate stands for is the likelihood's affair.

| symbol | meaning | shape |
| --- | --- | --- |
| M, D, T | particles, coordinates, observations | |
| z | places | (M, D) |
| l | log-likelihood of each observation | (M, T) |
| w | log weights | (M,) |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from circinus.pipelines.model.profile import FloatArray, IntArray

LogLikelihood = Callable[[FloatArray], FloatArray]
"""(M, D) places -> (M,), finite: how likely an observation is there. Pure."""

_LEAST_EFFECTIVE = 0.5  # share of the particles below which they are drawn again and moved
_SWEEPS = 2  # moves of each particle then: drawn again alone, they would be twins
_SPREAD = 2.38  # over sqrt(D): the best step of a random walk (Roberts et al., 1997)
_JITTER = 1e-6  # variance added where all particles agree: their covariance has to have a root
_CLOSE, _HALVINGS = 0.01, 60  # of the length of a step, which may be very short


class Particles(NamedTuple):
    """A weighted sample of what is believed."""

    z: FloatArray  # (M, D)
    known: tuple[LogLikelihood, ...]  # T of them
    log_likelihood: FloatArray  # (M, T)
    log_weight: FloatArray  # (M,)

    @property
    def weight(self) -> FloatArray:  # (M,)
        """Return the weights, which add up to 1."""
        return _normal(self.log_weight)


def prior(count: int, coordinates: int, rng: np.random.Generator) -> Particles:
    """Return particles that know nothing."""
    z = rng.standard_normal((count, coordinates))
    return Particles(z, (), np.empty((count, 0)), np.zeros(count))


def effective(weight: FloatArray) -> float:
    """Return how many equally weighted particles would be as good."""
    return float(1.0 / np.square(weight).sum())


def observed(particles: Particles, seen: LogLikelihood, rng: np.random.Generator) -> Particles:
    """Return particles that know one observation more.

    It is let in step by step, each as large as half of the particles bear; then they are drawn
    anew and moved about by Metropolis steps that leave the posterior so far as it is.
    """
    z, known, before, log_weight = particles
    known, likely = (*known, seen), np.column_stack([before, seen(z)])
    done = 0.0
    while True:
        step = _bearable(log_weight, likely[:, -1], 1.0 - done)
        log_weight, done = log_weight + step * likely[:, -1], done + step
        if done >= 1.0 and _enough(log_weight):
            return Particles(z, known, likely, log_weight)
        power = np.append(np.ones(before.shape[1]), done)
        z, likely = _moved(z, likely, log_weight, known, power, rng)
        log_weight = np.zeros(len(z))
        if done >= 1.0:
            return Particles(z, known, likely, log_weight)


def systematic(weight: FloatArray, count: int, rng: np.random.Generator) -> IntArray:  # (count,)
    """Draw so many places by weight, as evenly as they can be."""
    places = (np.arange(count) + rng.random()) / count
    return np.minimum(np.searchsorted(np.cumsum(weight), places), len(weight) - 1)


def _normal(log_weight: FloatArray) -> FloatArray:
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _enough(log_weight: FloatArray) -> bool:
    return effective(_normal(log_weight)) >= _LEAST_EFFECTIVE * len(log_weight)


def _bearable(log_weight: FloatArray, likely: FloatArray, most: float) -> float:
    """Return the largest step, at most so large, after which enough particles count."""
    if _enough(log_weight + most * likely):
        return most
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _enough(log_weight + middle * likely) else (low, middle)
        if high - low < _CLOSE * high:
            break
    return high


def _moved(
    z: FloatArray,
    likely: FloatArray,  # (M, T)
    log_weight: FloatArray,
    known: tuple[LogLikelihood, ...],
    power: FloatArray,  # (T,); to which each likelihood counts
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    weight = _normal(log_weight)
    apart = z - weight @ z
    spread = (weight * apart.T) @ apart + _JITTER * np.eye(z.shape[1])
    root = _SPREAD / np.sqrt(z.shape[1]) * np.linalg.cholesky(spread)
    chosen = systematic(weight, len(z), rng)
    z, likely = z[chosen], likely[chosen]
    for _ in range(_SWEEPS):
        tried = z + rng.standard_normal(z.shape) @ root.T
        there = np.column_stack([seen(tried) for seen in known])
        gain = (there - likely) @ power + (np.square(z) - np.square(tried)).sum(axis=1) / 2
        taken = (np.log(rng.random(len(z))) < gain)[:, None]
        z, likely = np.where(taken, tried, z), np.where(taken, there, likely)
    return z, likely
