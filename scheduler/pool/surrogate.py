"""A Gaussian process over counts of instances; the home of gpytorch among pools.

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
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray

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
    asked: FloatArray,  # counts, (P, K)
    settings: PoolSurrogateSettings | None = None,
) -> tuple[FloatArray, FloatArray]:  # (P,), (P,)
    """Return mean and standard deviation of what pools are worth, after some were tried.

    InvalidInput if shapes disagree or a worth is not finite.
    """
    settings = settings or PoolSurrogateSettings()
    _check(tried, worth, asked)
    offset, deviation = float(worth.mean()), float(worth.std())
    scale = deviation if deviation > _CONSTANT else 1.0
    y = torch.from_numpy((worth - offset) / scale)
    with _one_thread():
        model = _Model(_rounded(tried), y, settings)
        _learn(model, settings.steps)
        mean, spread = _posterior(model, _rounded(asked))
    return offset + scale * mean, scale * spread


def _check(tried: FloatArray, worth: FloatArray, asked: FloatArray) -> None:
    checks.require(len(tried) >= 1, "tried", "must not be empty", len(tried))
    columns = tried.shape[1]
    rule = f"must have {columns} columns"
    checks.require(asked.shape[1] == columns, "asked", rule, asked.shape)
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
        found: torch.Tensor = -likelihood(model(*model.train_inputs), model.train_targets)
        found.backward()
        return found

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
