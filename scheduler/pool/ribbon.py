"""Ribbon: Bayesian optimisation over pools (Li et al., SC 2021, section 4).

A Gaussian process learns what pools are worth (equation 2, `PoolGoal.worth`) from those tried;
proposed is the one with the largest expected improvement among all that are not `hopeless`. What
is pruned is the goal's choice: `CheapestInTime` with `prunes_below=0.01` is as published.

| symbol | meaning | shape |
| --- | --- | --- |
| P | pools that may be tried | |
| mu, sigma | predicted worth and its standard deviation | (P,) |
| f* | the largest worth so far | |

    z = (mu - f* - xi) / sigma,    EI = sigma (z Phi(z) + phi(z))

The Gaussian process, over counts of instances (gpytorch has its home here among pools):

| symbol | meaning | shape |
| --- | --- | --- |
| n, P, K | pools tried, pools asked for, types | |
| x | counts, rounded | (n, K), (P, K) |
| y | what the tried ones were worth, standardised | (n,) |
| k' | Matern 5/2 of rounded counts, one length for all types, times an output scale | |

    k'(x_i, x_j) = k(R(x_i), R(x_j))    (Ribbon, equation 3)

Counts are not divided by the most of each type, as neither the paper nor the artefact does;
docs/studies/pool.md has what that changes. Length and output scale maximise the marginal
likelihood, from the same start each time, so that the same trials give the same process. All in
float64 on one thread.

`carried_over` starts a search at a new load from trials at an earlier one ("load changes"):

| symbol | meaning |
| --- | --- |
| A | the pool settled on at the earlier load, tried again at the new one |
| S | pools that were worse than A at the earlier load |
| R(B), R'(B) | share in time of a pool at the earlier and at the new load |

The paper takes equals into S as well. Pools that had all requests in time at the earlier load are
all equal, and some of them are the way out at the new one: here they stay.

Where A violates at the new load, all of S is taken to violate, too, with the share

    R'(B) = R(B) R'(A) / R(A)      (the paper's example: 99.9 to 33.3 %, so 90 to 30 %)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.special import ndtr

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.pool.search import CheapestInTime, Pool, PoolGoal, PoolTrial, Trials

with warnings.catch_warnings():
    # linear_operator still compiles with torch.jit.script: nobody here can act on that.
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch

NOISE = 1e-6
"""Variance of standardised worths: a trial is taken at its word, as in the authors' artefact, and
K stays well conditioned."""

_CONSTANT = 1e-12  # worths that vary less have no scale of their own
_SMALLEST_VARIANCE = 1e-12  # rounding can push a variance at a tried pool below zero


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSurrogateSettings:
    """How hyper-parameters are learnt."""

    # most steps of L-BFGS, `>= 0`. 15: the likelihood hardly rises any more
    steps: int = 15
    # of the length, in instances: where learning starts, as the artefact; and bounds, `> 0`. The
    # artefact's are wider, 1e-5 to 1e5: beyond ours nothing changes but the conditioning of K
    first_length: float = 1.0
    shortest: float = 0.05
    longest: float = 1000.0

    def __post_init__(self) -> None:
        checks.non_negative("surrogate.steps", self.steps)
        checks.positive("surrogate.shortest", self.shortest)
        inside = self.shortest < self.first_length < self.longest < np.inf
        rule = f"must be between {self.shortest} and {self.longest}"
        checks.require(inside, "surrogate.first_length", rule, self.first_length)


def predicted(
    tried: FloatArray,  # counts of the pools tried, (n, K), n >= 1
    worth: FloatArray,  # (n,), finite
    candidates: FloatArray,  # counts, (P, K)
    settings: PoolSurrogateSettings | None = None,
) -> tuple[FloatArray, FloatArray]:  # (P,), (P,)
    """Return mean and standard deviation of what pools are worth, after some were tried.

    InvalidInput if shapes disagree or a worth is not finite.
    """
    settings = settings or PoolSurrogateSettings()
    _check(tried, worth, candidates)
    offset, deviation = float(worth.mean()), float(worth.std())
    scale = deviation if deviation > _CONSTANT else 1.0
    y = torch.from_numpy((worth - offset) / scale)
    with _one_thread():
        model = _Model(_rounded(tried), y, settings)
        _learn(model, settings.steps)
        mean, spread = _posterior(model, _rounded(candidates))
    return offset + scale * mean, scale * spread


def _check(tried: FloatArray, worth: FloatArray, candidates: FloatArray) -> None:
    checks.require(len(tried) >= 1, "tried", "must not be empty", len(tried))
    columns = tried.shape[1]
    rule = f"must have {columns} columns"
    checks.require(candidates.shape[1] == columns, "asked", rule, candidates.shape)
    shape = (len(tried),)
    checks.require(worth.shape == shape, "worth", f"must have shape {shape}", worth.shape)
    checks.require(bool(np.isfinite(worth).all()), "worth", "must be finite", "NaN or infinity")


def _rounded(counts: FloatArray) -> torch.Tensor:
    return torch.from_numpy(np.rint(counts))


class _Model(gpytorch.models.ExactGP):
    def __init__(self, x: torch.Tensor, y: torch.Tensor, settings: PoolSurrogateSettings) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(NOISE / 2)
        )
        super().__init__(x, y, likelihood)
        between = gpytorch.constraints.Interval(settings.shortest, settings.longest)
        # deviates: one-length-for-counts
        self.matern = gpytorch.kernels.MaternKernel(nu=2.5, lengthscale_constraint=between)
        self.mean = gpytorch.means.ZeroMean()
        self.kernel = gpytorch.kernels.ScaleKernel(self.matern)
        self.to(torch.float64)
        self.matern.lengthscale = settings.first_length
        self.kernel.outputscale = 1.0
        self.likelihood.noise = NOISE
        self.likelihood.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def _learn(model: _Model, steps: int) -> None:
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    learnt = [p for p in model.parameters() if p.requires_grad]
    descent = torch.optim.LBFGS(learnt, max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        descent.zero_grad()
        value: torch.Tensor = -likelihood(model(*model.train_inputs), model.train_targets)
        value.backward()
        return value

    exact = gpytorch.settings.fast_computations(
        covar_root_decomposition=False, log_prob=False, solves=False
    )
    model.train()
    with exact:
        if steps:
            descent.step(loss)
    model.eval()


def _posterior(model: _Model, x: torch.Tensor) -> tuple[FloatArray, FloatArray]:
    # The covariance between the pools asked for is never formed.
    with torch.no_grad():
        inputs, y = model.train_inputs[0], model.train_targets
        noise = NOISE * torch.eye(len(inputs), dtype=y.dtype)
        lower = torch.linalg.cholesky(model.kernel(inputs).to_dense() + noise)
        cross = model.kernel(inputs, x).to_dense()  # (n, P)
        v = torch.linalg.solve_triangular(lower, cross, upper=False)
        w = torch.linalg.solve_triangular(lower, y[:, None], upper=False)
        mean = (v.T @ w)[:, 0]
        variance = model.kernel.outputscale - v.square().sum(dim=0)
        return mean.numpy(), variance.clamp_min(_SMALLEST_VARIANCE).sqrt().numpy()


@contextmanager
def _one_thread() -> Iterator[None]:
    # Matrices this small lose more to handing work over to threads than they gain.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ribbon:
    """A `PoolStrategy`. The same trials and seed give the same proposal.

    The paper does not state where it starts, but for a picture with a fixed pool; the artefact
    draws two pools at random, and so does this.
    """

    seed: int = 0
    # deviates: two-random-pools
    first: int = 2  # pools drawn at random before the process proposes, `>= 1`
    # deviates: no-improvement-margin
    # improvement of worth that does not count, `>= 0`. 0, as the paper names none: the
    # artefact's 0.1 tries a few more pools (docs/studies/pool.md)
    xi: float = 0.0
    surrogate: PoolSurrogateSettings = field(default_factory=PoolSurrogateSettings)

    def __post_init__(self) -> None:
        checks.at_least("ribbon.first", self.first, 1)
        checks.non_negative("ribbon.xi", self.xi)

    def propose(self, goal: PoolGoal, trials: Trials) -> Pool | None:
        """See `PoolStrategy.propose`."""
        hopeful = np.flatnonzero(~goal.hopeless(trials))
        if not len(hopeful):
            return None
        if len(trials) < self.first:
            rng = np.random.Generator(np.random.PCG64([self.seed, len(trials)]))
            return goal.space.at(rng.choice(hopeful))
        worth = np.array([goal.worth(trial) for trial in trials])
        mean, deviation = predicted(
            np.array([trial.pool for trial in trials], dtype=np.float64),
            worth,
            goal.space.pools[hopeful].astype(np.float64),
            self.surrogate,
        )
        # deviates: every-pool-looked-at
        gained = expected_improvement(mean, deviation, worth.max() + self.xi)
        return goal.space.at(hopeful[np.argmax(gained)])


def expected_improvement(
    mean: FloatArray, deviation: FloatArray, above: float
) -> FloatArray:  # (P,)
    """Return by how much normal values are expected to exceed a bound; deviations are `> 0`."""
    z = (mean - above) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return np.asarray(deviation * (z * ndtr(z) + density))


# deviates: carried-over-pruning
def carried_over(goal: CheapestInTime, earlier: Trials, again: PoolTrial) -> list[PoolTrial]:
    """Return trials to begin the search at a new load with: A's, then those estimated of S.

    Strategies learn from an estimated one and do not try it; what it prunes is by the goal's
    rules, so that within the threshold it prunes nothing, other than published. None is estimated
    where A is feasible still, was never tried before, or had nothing in time.
    """
    before = {trial.pool: trial.value for trial in earlier if not trial.ended_early}
    of_a = before.get(again.pool, 0.0)
    if goal.feasible(again) or not of_a > 0:
        return [again]
    ratio = again.value / of_a
    # deviates: equals-not-carried-over
    estimated = [
        PoolTrial(pool, value * ratio, ended_early=True)
        for pool, value in before.items()
        if value < of_a
    ]
    return [again, *estimated]
