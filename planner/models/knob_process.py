"""A Gaussian process over knob values that grows by rows: the models of `multi_fidelity`.

| symbol | meaning | shape |
| --- | --- | --- |
| n, m, K | observations, candidates, knobs with a choice | |
| R_k | correlation of two values of knob k: 1 on the diagonal | (radix, radix) |
| h | number of unlike knob values of two rows, ordered neighbours counting less | |
| S | covariance of the observations, their noise included | (n, n) |
| T | inverse of the lower Cholesky factor of S | (n, n) |
| w | T (y - mean): independent standard normals if the model is right | (n,) |
| V | T k(X, candidates): what each observation adds on each candidate | (n, m) |

k(x, x') = c + sum_k a_k R_k(x_k, x'_k) + b exp(-theta h(x, x')).

What earlier queries measured is of a like function, not of the same: a query's function is
one that all queries share plus one of its own, (1 + o) k + s between its own observations
and k between those and earlier ones (the intrinsic model of coregionalisation). The part o
and the shift s are learnt with the rest: history that does not fit stops counting.

Main effects of the knobs explain most of what configurations differ by, so they have
terms of their own; the last term is what knobs do together. An unordered knob has
R_k = identity, an ordered one R_k = exp(-2 |i - j| / (radix - 1)).

A new observation adds one row to T, w and V and changes mean and variance of all
candidates by one rank. V is not stored: a row of it is a row of T times k(X, candidates),
which is a sum over the candidates that were met, see `planner.models.knob_basis`. So this is
O(n^2 + r m) for r of them, where a fit from scratch is O(n r m).

Hyper-parameters are moved on a grid, each in turn, by the closed-form marginal likelihood
under a log-normal prior; this is done seldom, by `refit`. S is linear in each of them, so
a step is one sum and one factorisation. Numpy alone: a step of gpytorch's optimiser takes
longer than all of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.profile import FloatArray
from circinus.planner.models.knob_basis import KnobBasis

JITTER = 1e-10  # added to the diagonal of S: far below any noise, enough for equal rows in float64

_ORDERED_DECAY = 2.0  # of the correlation between the two ends of an ordered knob
_STEPS = (0.4, 2.5)  # factors that a hyper-parameter is tried at; one undoes the other
_KNOWN_UNTIL = 1.5  # times as many observations as earlier ones: their hyper-parameters hold
_PRIOR_WIDTH = 1.5  # deviation of a hyper-parameter's logarithm around its start


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobKernel:
    """Hyper-parameters, variances in squared units of the target."""

    mean: float  # of the target before any observation
    constant: float  # c, how far the mean may be off
    effects: tuple[float, ...]  # a_k per knob with a choice
    interaction: float  # b
    decay: float = 0.7  # theta, per unlike knob value. 0.7: two unlike knobs leave a quarter.
    own: float = 0.0  # o, how much of the variance comes on top that queries do not share, `>= 0`
    shift: float = 0.0  # s, variance of what a query is off by everywhere, `>= 0`

    def __post_init__(self) -> None:
        for name in ("own", "shift"):
            checks.non_negative(f"knob_kernel.{name}", getattr(self, name))
        for value in self.variances:
            checks.positive("knob_kernel variances", value)

    @property
    def variances(self) -> tuple[float, ...]:
        """a_1 ... a_K, b, c."""
        return (*self.effects, self.interaction, self.constant)

    @property
    def prior(self) -> float:
        """Variance of a value before any observation."""
        return (1 + self.own) * sum(self.variances) + self.shift

    @property
    def learnt(self) -> tuple[float, ...]:
        """a_1 ... a_K, b, c and, where queries differ, o, s."""
        between = (self.own, self.shift) if self.own > 0 and self.shift > 0 else ()
        return (*self.variances, *between)

    def scaled(self, which: int, factor: float) -> KnobKernel:
        """Return the kernel with one of `learnt` multiplied."""
        values = [*self.variances, self.own, self.shift]
        values[which] *= factor
        *effects, interaction, constant, own, shift = values
        return replace(
            self,
            effects=tuple(effects),
            interaction=interaction,
            constant=constant,
            own=own,
            shift=shift,
        )


def correlations(radices: tuple[int, ...], ordered: tuple[bool, ...]) -> tuple[FloatArray, ...]:
    """Return R_k of every knob, those without a choice included."""
    tables = []
    for radix, is_ordered in zip(radices, ordered, strict=True):
        place = np.arange(radix) / max(radix - 1, 1)
        apart = np.abs(place[:, None] - place[None, :])
        tables.append(np.exp(-_ORDERED_DECAY * apart) if is_ordered else np.eye(radix))
    return tuple(tables)


class KnobProcess:
    """Predictions at fixed candidates from observations that arrive one by one."""

    def __init__(
        self,
        candidates: IndexArray,  # index of each knob's value, (m, knobs)
        tables: tuple[FloatArray, ...],  # R_k of every knob
        kernel: KnobKernel,  # where hyper-parameters start, and the centre of their prior
    ) -> None:
        knobs = sum(len(table) > 1 for table in tables)
        rule = f"must have an effect for each of {knobs} knobs"
        fits = len(kernel.effects) == knobs
        checks.require(fits, "knob_kernel.effects", rule, len(kernel.effects))
        self._basis = KnobBasis(candidates, tables, kernel.decay)
        self._start = self.kernel = kernel  # the hyper-parameters in use
        self._rows: list[int] = []
        self._y: list[float] = []
        self._earlier = 0  # of the rows, the first ones
        self._parts = np.zeros((8, knobs + 2), dtype=np.int64)  # of k(X, .), rows of the basis
        self._noise = np.zeros((8, 8))
        self._t = np.zeros((8, 8))
        self._w = np.zeros(8)
        self.mean: FloatArray = np.full(len(candidates), kernel.mean)  # (m,)
        self.variance: FloatArray = np.full(len(candidates), kernel.prior)  # (m,)

    def __len__(self) -> int:
        """Return n, the observations of this query."""
        return len(self._y) - self._earlier

    @property
    def rows(self) -> list[int]:
        """Which candidates this query's observations are of, in the order of adding."""
        return self._rows[self._earlier :]

    @property
    def squared_residual(self) -> float:
        """Mean square of w: 1 if the model is right, more when it is too sure of itself."""
        own = self._w[self._earlier : len(self._y)]
        return float(np.square(own).mean()) if len(own) else 1.0

    def recall(
        self,
        rows: Sequence[int],  # which candidates, k of them
        values: FloatArray,  # finite, shape (k,)
        noise: FloatArray,  # variance of each, independent, shape (k,)
        *,
        own: float,  # o to start from, `> 0`
        shift: float,  # s to start from, `> 0`
    ) -> None:
        """Start from what earlier queries observed, before anything is added.

        What all queries share is chosen by it once, see `refit`.
        """
        checks.require(not self._y, "recall", "must come before observations", len(self._y))
        finite = bool(np.isfinite(values).all() and np.isfinite(noise).all())
        checks.require(finite, "recall", "must get finite values only", "NaN or infinity")
        if not rows:
            return
        self._start = self.kernel = replace(self.kernel, own=own, shift=shift)
        self._earlier = len(rows)
        for row, value in zip(rows, values, strict=True):
            self._take_in(row, float(value))
        self._noise[: len(rows), : len(rows)] = np.diag(noise)
        self._restart(self._chosen(range(len(self.kernel.variances))))

    def add(self, row: int, value: float, noise: FloatArray) -> None:
        """Add an observation of a candidate.

        Its noise: the covariance with that of the observations so far, then its own variance,
        shape (n + 1,).
        """
        checks.require(bool(np.isfinite(value)), "observation", "must be finite", value)
        n, earlier = self._take_in(row, value), self._earlier
        self._noise[n, earlier : n + 1] = self._noise[earlier : n + 1, n] = noise
        self._append(n)

    def revise(self, values: FloatArray) -> None:
        """Put other finite values, shape (n,), in place of those of this query, in their order."""
        rule = f"must be {len(self)} finite values"
        fits = values.shape == (len(self),) and bool(np.isfinite(values).all())
        checks.require(fits, "revision", rule, values)
        n = len(self._y)
        self._y[self._earlier :] = values.tolist()
        self._w[:n] = self._t[:n, :n] @ (np.array(self._y) - self.kernel.mean)
        along = self._along(self._w[:n] @ self._t[:n, :n], self._phi())
        self.mean = self.kernel.mean + self._basis.combined(along)

    def refit(self, noise: FloatArray | None = None) -> None:
        """Choose hyper-parameters anew and start over with them.

        What queries share is known from the earlier ones: until there are half as many
        observations on top only how this query differs from them is chosen.
        `noise` is the covariance of that of all observations, shape (n, n); None: as before.
        """
        n = len(self._y)
        if noise is not None:
            self._noise[self._earlier : n, self._earlier : n] = noise
        if len(self) < 2:
            return
        learnt = len(self.kernel.learnt)
        known = n < _KNOWN_UNTIL * self._earlier
        before = self.kernel
        total = self._chosen(range(len(before.variances) if known else 0, learnt))
        if noise is not None or self.kernel != before:
            self._restart(total)

    def _chosen(self, hyper_parameters: range) -> FloatArray:  # (n, n)
        """Move some of `KnobKernel.learnt` to a higher posterior, and return S there."""
        at = self._basis.at(self._rows)
        total = self._total(at)
        best = self._log_posterior(self.kernel, total)
        for which in hyper_parameters:
            share = self.kernel.learnt[which] * self._slope(which, at)
            for factor in _STEPS:
                tried, moved = self.kernel.scaled(which, factor), total + (factor - 1) * share
                value = self._log_posterior(tried, moved)
                if value > best:
                    best, total, self.kernel = value, moved, tried
                    break  # the other step would undo it
        return total

    def _take_in(self, row: int, value: float) -> int:
        """Record an observation, and return its number."""
        n = len(self._y)
        if n == len(self._w):
            self._parts = np.pad(self._parts, ((0, n), (0, 0)))
            self._w = np.pad(self._w, (0, n))
            self._noise, self._t = (np.pad(a, ((0, n), (0, n))) for a in (self._noise, self._t))
        self._rows.append(row)
        self._y.append(value)
        self._parts[n] = self._basis.parts(row)
        return n

    def _append(self, n: int) -> None:
        kernel, t, phi = self.kernel, self._t, self._phi()
        at = self._basis.at([self._rows[n]])[:, 0]
        covariances = np.einsum("nk,nk->n", phi[:n], at[self._parts[:n]]) + self._noise[n, :n]
        known = t[:n, :n] @ covariances
        rest = kernel.prior + self._noise[n, n] + JITTER - float(known @ known)
        pivot = float(np.sqrt(max(rest, JITTER)))
        t[n, :n], t[n, n] = -(known @ t[:n, :n]) / pivot, 1 / pivot
        self._w[n] = (self._y[n] - kernel.mean - known @ self._w[:n]) / pivot
        v = self._basis.combined(self._along(t[n, : n + 1], phi))
        self.mean = self.mean + v * self._w[n]
        self.variance = np.maximum(self.variance - v * v, JITTER)

    def _restart(self, total: FloatArray) -> None:
        """Start over with S."""
        n = len(self._y)
        lower = np.linalg.cholesky(total)
        t = solve_triangular(lower, np.eye(n), lower=True, check_finite=False)
        self._t[:n, :n], self._w[:n] = t, t @ (np.array(self._y) - self.kernel.mean)
        spread = np.zeros((n, len(self._basis)))
        np.put_along_axis(spread, self._parts[:n], self._phi(), axis=1)
        along = t @ spread  # V over the basis
        self.mean = self.kernel.mean + self._basis.combined(self._w[:n] @ along)
        explained = self._basis.squared(along)
        self.variance = np.maximum(self.kernel.prior - explained, JITTER)

    def _phi(self) -> FloatArray:  # (n, K + 2)
        """Return how much of its rows of the basis each observation's k(x, .) is made of."""
        kernel, parts = self.kernel, self._parts[: len(self._y)]
        phi = np.broadcast_to(kernel.variances, parts.shape).copy()
        phi[self._earlier :] *= 1 + kernel.own
        phi[self._earlier :, -1] += kernel.shift  # of the row of ones
        return phi

    def _along(self, weights: FloatArray, phi: FloatArray) -> FloatArray:  # (rows of the basis,)
        """Return the sum of the observations' k(X, .), weights of shape (n,), over the basis."""
        parts = self._parts[: len(self._y)].ravel()
        summed = np.bincount(parts, (weights[:, None] * phi).ravel(), len(self._basis))
        return summed.astype(np.float64)

    def _slope(self, which: int, at: FloatArray) -> FloatArray:  # (n, n)
        """Return the derivative of S by one of `learnt`, from the basis at all observations."""
        parts, variances = self._parts[: len(self._y)].T, self.kernel.variances
        mine = np.s_[self._earlier :, self._earlier :]
        if which < len(variances):
            slope: FloatArray = at[parts[which]]
            slope[mine] *= 1 + self.kernel.own
            return slope
        slope = np.zeros((len(self._y), len(self._y)))
        if which > len(variances):
            slope[mine] = 1.0
        else:
            for variance, part in zip(variances, parts, strict=True):
                slope[mine] += variance * at[part][mine]
        return slope

    def _total(self, at: FloatArray) -> FloatArray:  # (n, n)
        """Return S."""
        n, earlier = len(self._y), self._earlier
        total = self._noise[:n, :n] + JITTER * np.eye(n)
        for which, variance in enumerate(self.kernel.variances):
            total += variance * self._slope(which, at)
        total[earlier:, earlier:] += self.kernel.shift
        return total

    def _log_posterior(self, kernel: KnobKernel, total: FloatArray) -> float:
        try:
            lower = np.linalg.cholesky(total)
        except np.linalg.LinAlgError:
            return -np.inf
        y = np.array(self._y) - kernel.mean
        w = solve_triangular(lower, y, lower=True, check_finite=False)
        moved = np.log(np.array(kernel.learnt) / np.array(self._start.learnt))
        prior = 0.5 * float(np.square(moved / _PRIOR_WIDTH).sum())
        return float(-0.5 * (w @ w) - np.log(np.diag(lower)).sum() - prior)
