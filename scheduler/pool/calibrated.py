"""Ours: a simulator, calibrated on the pools tried so far, chooses the pool to try next.

Whoever has a latency profile can simulate every pool; what the simulation has wrong shows in the
trials. Particles hold what may be wrong: the scale of the latencies of each type, and how bursty
arrivals are. Each trial weighs them by how well they explain its share in time. Proposed is the
pool with the largest product of the probability of enough in time and what is saved.

| symbol | meaning | shape |
| --- | --- | --- |
| K, C, M | types, candidates (pools that may be tried), particles | |
| R | runs of the simulator for a particle and a trial, one on each stream | |
| z | a particle: K scales and the variability of arrivals, a priori standard normal | (K + 1,) |
| s | log-odds of a share in time, with half a request more on either side | |
| e | error of all scales in one pool, besides z: nothing is just a scale | |
| p | probability that a trial of a candidate is feasible | (C,) |

    scale_k = exp(profile_error z_k + e), variability = Phi(z_K), e ~ Normal(0, model_error)
    s(observed) ~ Normal(mean_r s_r, max(var_r s_r, binomial) + shape_error^2),
        s_r of the run on stream r with e the quantile of (r + 1/2) / R
    p = mean_m Phi((s_m - s(target)) / shape_error), s_m of a run with a random stream and e

Runs on other streams differ as trials do that are repeated: that is the noise of a finite run.

Particles follow the posterior by a tempered sequential Monte Carlo sampler (Del Moral, Doucet and
Jasra, 2006; steps of the tempering by the effective sample size, Jasra et al., 2011). Arrays of
that part: D coordinates and T observations, places z (M, D), log-likelihoods l (M, T), log
weights w (M,).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import expit, log_ndtr, ndtr, ndtri

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.pool.search import CheapestInTime, Pool, PoolGoal, PoolTrial, Trials, best

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


def observed(
    particles: Particles, likelihood: LogLikelihood, rng: np.random.Generator
) -> Particles:
    """Return particles that know one observation more.

    It is let in step by step, each as large as half of the particles bear; then they are drawn
    anew and moved about by Metropolis steps that leave the posterior so far as it is.
    """
    z, known, before, log_weight = particles
    known, likely = (*known, likelihood), np.column_stack([before, likelihood(z)])
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
        there = np.column_stack([likelihood(tried) for likelihood in known])
        gain = (there - likely) @ power + (np.square(z) - np.square(tried)).sum(axis=1) / 2
        taken = (np.log(rng.random(len(z))) < gain)[:, None]
        z, likely = np.where(taken, tried, z), np.where(taken, there, likely)
    return z, likely


_SCREEN = 16  # particles that look at every pool before all look at a few
_MOST_LOOKED_AT = 24  # pools that all particles look at
_FAR = 1.0  # log-odds by which the screen looks further down: few particles see little
_NO_CHANCE = 4.0  # standard deviations: a run that is worse than this may be stopped
_LEAST_CHANCE = 1e-12  # of what is in sight, however improbable: all particles may see more


class PoolSimulator(Protocol):
    """Returns the share in time of pools. Pure: the same for the same arguments."""

    @property
    def requests(self) -> int:
        """Return how many requests a run has; best as many as a trial."""

    @property
    def streams(self) -> int:
        """Return how many streams of random numbers there are, `>= 2`."""

    def in_time(
        self,
        pools: IntArray,  # (E, K)
        scale: FloatArray,  # (E, K)
        variability: FloatArray,  # (E,)
        stream: IntArray,  # (E,)
        enough: float = 0.0,
    ) -> FloatArray:  # (E,)
        """Return the share in time of E runs.

        `scale` multiplies the latencies of each type; `variability` goes from 0, the smoothest
        arrivals, to 1, the most bursty; `stream` is in [0, streams). What is below `enough` may
        be any number below it.
        """


class Advice(NamedTuple):
    """What is believed after some trials."""

    pool: Pool | None  # to try next; None: it settles on the best so far, or there is no hope
    feasible: float  # probability that the pool is; of none, 0
    # probability that no pool that is cheaper than the best so far, tried ones apart, is
    # feasible; without a feasible one: that none of all is
    settled: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A `PoolStrategy` for `CheapestInTime` that knows the latency profile."""

    simulator: PoolSimulator
    # standard deviation of the logarithm of each type's scale, `>= 0`: by how much the profile is
    # thought to be wrong
    profile_error: float = 0.15
    # e and the error of s, `> 0`: what scales and arrivals cannot explain. Chosen on drawn
    # problems (docs/studies/pool.md)
    model_error: float = 0.02
    shape_error: float = 0.2
    # it settles when no trial is expected to save that share of the price of the best so far, or,
    # without a feasible one, to be feasible with that probability; in (0, 1)
    least_gain: float = 0.005
    particles: int = 128  # M, `>= 16`
    seed: int = 0
    _known: dict[tuple[float, tuple[PoolTrial, ...]], Particles] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        checks.non_negative("profile_error", self.profile_error)
        checks.positive("model_error", self.model_error)
        checks.positive("shape_error", self.shape_error)
        checks.open_probability("least_gain", self.least_gain)
        checks.at_least("particles", self.particles, _SCREEN)

    def propose(self, goal: PoolGoal, trials: Trials) -> Pool | None:
        """See `PoolStrategy.propose`; InvalidInput if the goal is not `CheapestInTime`."""
        return self.advice(goal, trials).pool

    def advice(self, goal: PoolGoal, trials: Trials) -> Advice:
        """Return the pool to try, and how sure that is; InvalidInput as above."""
        if not isinstance(goal, CheapestInTime):
            raise InvalidInput.of("goal", "must be the cheapest pool in time", goal)
        hopeful = np.flatnonzero(~goal.hopeless(trials))
        if not len(hopeful):
            return Advice(None, 0.0, 1.0)
        space, chosen = goal.space, best(goal, trials)
        limit = space.dearest if chosen is None else space.cost(chosen.pool)
        pools, saving = space.pools[hopeful], limit - space.costs[hopeful]
        p, settled = self._chances(goal, trials, pools, saving)
        first = int(np.lexsort((p, p * saving))[-1])  # where nothing is saved, the likeliest
        gain = p[first] if chosen is None else p[first] * saving[first] / limit
        if gain < self.least_gain:
            return Advice(None, 0.0, settled)
        pool: Pool = tuple(pools[first].tolist())
        return Advice(pool, float(p[first]), settled)

    def _after(self, goal: CheapestInTime, trials: Trials) -> Particles:
        """Return the particles after these trials, from those after the last but one."""
        key = (goal.in_time, tuple(trials))
        if key not in self._known:
            rng = self._rng(trials, 0)
            if trials:
                before = self._after(goal, trials[:-1])
                particles = observed(before, self._likelihood(goal, trials[-1]), rng)
            else:
                particles = prior(self.particles, len(goal.space.types) + 1, rng)
            self._known[key] = particles
        return self._known[key]

    def _likelihood(self, goal: CheapestInTime, trial: PoolTrial) -> LogLikelihood:
        runs = self.simulator.streams
        pool, stream = np.array(trial.pool), np.arange(runs)
        error = self.model_error * ndtri((stream + 0.5) / runs)
        least = self._bar(goal.in_time)
        measured = self._log_odds(np.array(trial.value))

        def likelihood(z: FloatArray) -> FloatArray:  # (M, D) -> (M,)
            s = self._log_odds(self._in_time(pool, z[:, None, :], error, stream))
            mean = s.mean(axis=1)
            luck = np.maximum(s.var(axis=1, ddof=1), self._binomial(mean))
            spread = np.sqrt(luck + self.shape_error**2)
            if trial.ended_early:  # all that is known: it violates
                return np.asarray(log_ndtr((least - mean) / spread))
            return np.asarray(-np.square((measured - mean) / spread) / 2 - np.log(spread))

        return likelihood

    def _chances(
        self,
        goal: CheapestInTime,
        trials: Trials,
        pools: IntArray,  # (C, K)
        saving: FloatArray,  # (C,)
    ) -> tuple[FloatArray, float]:  # (C,)
        """Return the probability of each candidate, and that none is feasible.

        Few particles look at all; then all look at those whose chance times saving may be largest.
        """
        rng, after = self._rng(trials, 1), self._after(goal, trials)
        z = after.z[rng.permutation(systematic(after.weight, self.particles, rng))]
        screened = self._feasible(goal, pools, z[:_SCREEN], rng, _FAR)
        p = screened.mean(axis=1)
        hopes = (screened.sum(axis=1) + 1.0) / (_SCREEN + 1)
        hopes[(screened == 0).all(axis=1)] = 0.0
        ranked = np.lexsort((hopes, hopes * saving))[::-1]
        ranked = ranked[hopes[ranked] > 0]
        chosen, left = ranked[:_MOST_LOOKED_AT], ranked[_MOST_LOOKED_AT:]
        closely = self._feasible(goal, pools[chosen], z, rng, 0.0)
        p[chosen] = closely.mean(axis=1)
        # given the particle, trials are independent; of what few looked at, the sum is a bound
        none = float((1.0 - closely).prod(axis=0).mean())
        return p, max(none - float(p[left].sum()), 0.0)

    def _feasible(
        self,
        goal: CheapestInTime,
        pools: IntArray,  # (C, K)
        z: FloatArray,  # (m, D)
        rng: np.random.Generator,
        far: float,
    ) -> FloatArray:  # (C, m)
        """Return the probability that each pool is feasible for each particle.

        0 where it is `far` log-odds and more below what may be.
        """
        shape = (len(pools), len(z))
        least, slack = self._bar(goal.in_time), _NO_CHANCE * self.shape_error + far
        error = self.model_error * rng.standard_normal(shape)
        stream = rng.integers(self.simulator.streams, size=shape)
        n = self.simulator.requests
        enough = max(0.0, ((n + 1) * float(expit(least - slack)) - 0.5) / n)
        s = self._log_odds(self._in_time(pools[:, None, :], z, error, stream, enough))
        p = ndtr((s - least) / self.shape_error)
        return np.asarray(np.where(s > least - slack, np.maximum(p, _LEAST_CHANCE), 0.0))

    def _in_time(
        self,
        pools: IntArray,  # broadcasts to (..., K)
        z: FloatArray,  # (..., D)
        error: FloatArray,  # (...)
        stream: IntArray,  # (...)
        enough: float = 0.0,
    ) -> FloatArray:  # (...)
        scale = np.exp(self.profile_error * z[..., :-1] + error[..., None])
        shape, kinds = scale.shape[:-1], scale.shape[-1]
        shares = self.simulator.in_time(
            np.ascontiguousarray(np.broadcast_to(pools, scale.shape).reshape(-1, kinds)),
            scale.reshape(-1, kinds),
            np.broadcast_to(ndtr(z[..., -1]), shape).ravel(),
            np.broadcast_to(stream, shape).ravel(),
            enough,
        )
        return shares.reshape(shape)

    def _log_odds(self, share: FloatArray) -> FloatArray:
        """Return s of shares in time."""
        n = self.simulator.requests
        inside = np.clip(share, 0.0, 1.0)
        return np.log((n * inside + 0.5) / (n * (1.0 - inside) + 0.5))

    def _bar(self, target: float) -> float:
        """Return the log-odds between a share that is feasible and the next that is not."""
        return float(self._log_odds(np.array(target - 0.5 / self.simulator.requests)))

    def _binomial(self, s: FloatArray) -> FloatArray:
        """Return the variance of s if requests were in time independently of each other."""
        share = expit(s)
        return np.asarray(1.0 / (self.simulator.requests * share * (1.0 - share)))

    def _rng(self, trials: Trials, purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, len(trials), purpose]))
