"""Gaussian processes over encoded configurations; the only home of gpytorch.

| symbol | meaning | shape |
| --- | --- | --- |
| n, m, D, q | observations, candidates, encoded columns, targets | |
| X, Xc | observed, candidate encodings | (n, D), (m, D) |
| Y | targets, each column standardised | (n, q) |
| K | Matern 5/2 covariance of X, plus noise on the diagonal | (n, n) |
| L | lower Cholesky factor of K | (n, n) |
| V | L^-1 k(X, Xc) | (n, m) |
| W | L^-1 (Y - c), c the constant mean | (n, q) |

Marginal posterior: mean = c + V' W, variance = s - sum of V's squared columns, with s
the prior variance. The covariance between candidates is never formed: asking
gpytorch's own posterior for 7,000 candidates would build a 7,000 x 7,000 matrix.

The hyper-parameters maximise the marginal likelihood of the first target; further
targets share them. All in float64 on one thread.

An `Ensemble` has Q processes with the hyper-parameters of another one, the observations of each
padded to n rows: their means at a candidate are K^-1 (Y - c) times its covariances, all at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_ndtr

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray

with warnings.catch_warnings():
    # linear_operator still compiles with torch.jit.script: nobody here can act on that.
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch

CHOLESKY_JITTER = 1e-8
"""Added to the diagonal of K: enough for float64 when two rows are nearly equal, and far below
the smallest noise."""

SMALLEST_NOISE = 1e-4
"""Of the variance of standardised targets: keeps K well conditioned without observable effect."""

_SMALLEST_VARIANCE = 1e-12  # rounding can push a variance at an observed point below zero
_SMALLEST_DEVIATION = 1e-9
_CONSTANT = 1e-12  # a target that varies less than this has no scale of its own
_DECAY, _ADAM_EPSILON = (0.9, 0.999), 1e-8  # of Adam, as its authors and torch have them
_AT_ONCE = 100  # processes whose covariances are in memory together


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateSettings:
    """How hyper-parameters are learnt."""

    # Adam steps of a fit from scratch, `>= 0`. 60: the likelihood hardly rises any more.
    first_steps: int = 60
    # Adam steps when starting from an earlier fit, `>= 0`. 8: one observation more moves them
    # little, and this is most of a proposal's time.
    warm_steps: int = 8
    learning_rate: float = 0.1  # of Adam, `> 0`

    def __post_init__(self) -> None:
        checks.non_negative("surrogate.first_steps", self.first_steps)
        checks.non_negative("surrogate.warm_steps", self.warm_steps)
        checks.positive("surrogate.learning_rate", self.learning_rate)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posterior:
    """Marginal normal predictions of noise-free functions, in the units of the targets."""

    mean: FloatArray  # (m, q) of a `Surrogate`; or any other shape, and so what follows from it
    deviation: FloatArray  # standard deviation, `> 0`, the same shape

    def target(self, which: int, widened: float = 1.0) -> Posterior:
        """Return one of q targets, shape (m,), with deviations so many times as large."""
        deviation = widened * np.maximum(self.deviation[:, which], _SMALLEST_DEVIATION)
        return Posterior(mean=self.mean[:, which], deviation=deviation)

    def log_at_least(self, bound: float) -> FloatArray:
        """Return log Pr[value >= bound]."""
        return np.asarray(log_ndtr((self.mean - bound) / self.deviation))

    def log_at_most(self, bound: float) -> FloatArray:
        """Return log Pr[value <= bound]."""
        return np.asarray(log_ndtr((bound - self.mean) / self.deviation))


# deviates: process-hyper-parameters
class _Model(gpytorch.models.ExactGP):
    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        noise = gpytorch.constraints.GreaterThan(SMALLEST_NOISE)
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood(noise_constraint=noise))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.MaternKernel(
                nu=2.5,
                ard_num_dims=x.shape[1],
                # Few observations do not fix every column's length: the prior holds the others
                # near the distance between unlike one-hot rows (sqrt 2 per knob).
                lengthscale_prior=gpytorch.priors.LogNormalPrior(np.log(2.0), 0.75),
            ),
            outputscale_prior=gpytorch.priors.GammaPrior(2.0, 1.0),
        )
        self.to(torch.float64)
        self.likelihood.noise = 0.01
        self.covar_module.base_kernel.lengthscale = 2.0
        self.covar_module.outputscale = 1.0

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Surrogate:
    """A fitted Gaussian process. Made by `fit`."""

    model: _Model  # with its hyper-parameters; not to be changed
    cholesky: torch.Tensor  # L, shape (n, n)
    whitened: torch.Tensor  # W, shape (n, q)
    offset: FloatArray  # mean of each target, shape (q,)
    scale: FloatArray  # standard deviation of each target, shape (q,)

    def predict(self, candidates: FloatArray) -> Posterior:  # (m, D)
        """Return marginal mean and deviation of every target at every candidate."""
        with torch.no_grad(), _one_thread():
            kernel = self.model.covar_module
            x = self.model.train_inputs[0]
            cross = kernel(x, torch.from_numpy(candidates)).to_dense()  # (n, m)
            v = torch.linalg.solve_triangular(self.cholesky, cross, upper=False)
            mean = self.model.mean_module.constant + v.T @ self.whitened  # (m, q)
            variance = kernel.outputscale - v.square().sum(dim=0)  # (m,)
            deviation = variance.clamp_min(_SMALLEST_VARIANCE).sqrt()
        return Posterior(
            mean=self.offset + self.scale * mean.numpy(),
            deviation=self.scale * deviation.numpy()[:, None],
        )


def fit(
    x: FloatArray,  # encoded configurations, (n, D), n >= 1, D >= 1
    targets: FloatArray,  # (n, q), finite; the first column decides the hyper-parameters
    *,
    warm: Surrogate | None = None,  # an earlier fit on as many columns to start from; not changed
    settings: SurrogateSettings | None = None,
) -> Surrogate:
    """Return the process fitted to observations.

    InvalidInput if shapes disagree or a value is not finite.
    """
    _check(x, targets)
    settings = settings or SurrogateSettings()
    offset = targets.mean(axis=0)
    scale = _scale_of(targets)
    y = torch.from_numpy((targets - offset) / scale)
    with _one_thread():
        model = _Model(torch.from_numpy(np.ascontiguousarray(x)), y[:, 0])
        if warm is not None:
            model.load_state_dict(warm.model.state_dict())
        _learn(model, settings.first_steps if warm is None else settings.warm_steps, settings)
        with torch.no_grad():
            inputs = model.train_inputs[0]
            noise = (model.likelihood.noise + CHOLESKY_JITTER) * torch.eye(len(x), dtype=y.dtype)
            lower = torch.linalg.cholesky(model.covar_module(inputs).to_dense() + noise)
            centred = y - model.mean_module.constant
            whitened = torch.linalg.solve_triangular(lower, centred, upper=False)
    return Surrogate(model=model, cholesky=lower, whitened=whitened, offset=offset, scale=scale)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ensemble:
    """Means of many processes that share hyper-parameters. Made by `alike`."""

    shared: Surrogate  # whose hyper-parameters they have
    rows: torch.Tensor  # X of all, padded by zeros, shape (Q n, D)
    weights: torch.Tensor  # K^-1 (Y - c) of each, 0 where padded, shape (Q, n)
    offset: FloatArray  # mean of the target of each, shape (Q,)
    scale: FloatArray  # its standard deviation, shape (Q,)

    def means(self, candidate: FloatArray) -> FloatArray:  # (D,) -> (Q,)
        """Return the mean of every process at one candidate."""
        with torch.no_grad(), _one_thread():
            model = self.shared.model
            cross = model.covar_module(torch.from_numpy(candidate)[None], self.rows).to_dense()
            sums = (cross.reshape(self.weights.shape) * self.weights).sum(dim=1)
            return np.asarray(
                self.offset + self.scale * (model.mean_module.constant + sums).numpy()
            )


def alike(shared: Surrogate, each: Sequence[tuple[FloatArray, FloatArray]]) -> Ensemble:
    """Return the processes of observations x, (n, D), and a target, (n,), of each, n >= 1.

    Their means are those of `fit` from `shared` without a step. InvalidInput as there.
    """
    for x, y in each:
        _check(x, y[:, None])
    most, columns = max(len(y) for _, y in each), each[0][0].shape[1]
    rows = torch.zeros((len(each), most, columns), dtype=torch.float64)
    y_padded, there = (torch.zeros(rows.shape[:2], dtype=torch.float64) for _ in range(2))
    offset, scale = np.zeros(len(each)), np.ones(len(each))
    constant = shared.model.mean_module.constant.detach()
    for q, (x, y) in enumerate(each):
        offset[q], scale[q] = y.mean(), _scale_of(y)
        rows[q, : len(y)], there[q, : len(y)] = torch.from_numpy(x), 1.0
        y_padded[q, : len(y)] = torch.from_numpy((y - offset[q]) / scale[q]) - constant
    with torch.no_grad(), _one_thread():
        noise = shared.model.likelihood.noise + CHOLESKY_JITTER
        weights = []
        for some in range(0, len(each), _AT_ONCE):
            part, mask = rows[some : some + _AT_ONCE], there[some : some + _AT_ONCE]
            k = shared.model.covar_module(part).to_dense() * mask[:, :, None] * mask[:, None, :]
            lower = torch.linalg.cholesky(k + noise * torch.eye(most, dtype=k.dtype))
            solved = torch.cholesky_solve(y_padded[some : some + _AT_ONCE, :, None], lower)
            weights.append(solved[:, :, 0])
    return Ensemble(
        shared=shared,
        rows=rows.reshape(-1, columns),
        weights=torch.cat(weights),
        offset=offset,
        scale=scale,
    )


def _scale_of(targets: FloatArray) -> FloatArray:  # (n, ...) -> (...)
    deviation = targets.std(axis=0)
    return np.where(deviation > _CONSTANT, deviation, 1.0)


def _check(x: FloatArray, targets: FloatArray) -> None:
    checks.require(len(x) >= 1, "surrogate", "must have at least one observation", len(x))
    same = targets.ndim == 2 and len(x) == len(targets)
    checks.require(same, "surrogate.targets", f"must have {len(x)} rows", targets.shape)
    finite = bool(np.isfinite(x).all() and np.isfinite(targets).all())
    checks.require(finite, "surrogate", "must get finite values only", "NaN or infinity")


def _learn(model: _Model, steps: int, settings: SurrogateSettings) -> None:
    model.train()
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    parameters = list(model.parameters())
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))  # moments
    exact = gpytorch.settings.fast_computations(
        covar_root_decomposition=False, log_prob=False, solves=False
    )
    with exact, gpytorch.settings.cholesky_jitter(double_value=CHOLESKY_JITTER):
        for step in range(1, steps + 1):
            loss = -likelihood(model(*model.train_inputs), model.train_targets)
            gradients = torch.autograd.grad(loss, parameters)
            # Adam. `torch.optim` would load torch's compiler: seconds of a search's response time.
            with torch.no_grad():
                for p, gradient, m, v in zip(parameters, gradients, first, second, strict=True):
                    m.lerp_(gradient, 1 - _DECAY[0])
                    v.lerp_(gradient.square(), 1 - _DECAY[1])
                    unbiased = (v / (1 - _DECAY[1] ** step)).sqrt() + _ADAM_EPSILON
                    p -= settings.learning_rate * m / (1 - _DECAY[0] ** step) / unbiased
    model.eval()


@contextmanager
def _one_thread() -> Iterator[None]:
    # Matrices this small lose more to thread hand-over than they gain, and measurements
    # that run beside the planner must not be disturbed.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
