"""A Gaussian process over knob values that grows by rows: the models of `multi_fidelity`.

| symbol | meaning | shape |
| --- | --- | --- |
| n, m, K | observations, candidates, knobs with a choice | |
| R_k | correlation of two values of knob k: 1 on the diagonal | (radix, radix) |
| h | number of unlike knob values of two rows, ordered neighbours counting less | |
| S | covariance of the observations, their noise included | (n, n) |
| L | lower Cholesky factor of S | (n, n) |
| V | L^-1 k(X, candidates) | (n, m) |
| w | L^-1 (y - mean): independent standard normals if the model is right | (n,) |

k(x, x') = c + sum_k a_k R_k(x_k, x'_k) + b exp(-theta h(x, x')).

What earlier queries measured is of a like function, not of the same: a query's function is
one that all queries share plus one of its own, (1 + o) k + s between its own observations
and k between those and earlier ones (the intrinsic model of coregionalisation). The part o
and the shift s are learnt with the rest: history that does not fit stops counting.

Main effects of the knobs explain most of what configurations differ by, so they have
terms of their own; the last term is what knobs do together. An unordered knob has
R_k = identity, an ordered one R_k = exp(-2 |i - j| / (radix - 1)).

A new observation adds one row to L, V and w and changes mean and variance of all
candidates by one rank: O(n m), where a fit from scratch is O(n^2 m). Hyper-parameters
are moved on a grid, each in turn, by the closed-form marginal likelihood under a
log-normal prior; this is done seldom, by `refit`. Numpy alone: a step of gpytorch's
optimiser takes longer than all of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from pipelines import checks
from pipelines.configuration import IndexArray
from pipelines.profile import FloatArray

JITTER = 1e-10
"""Added to the diagonal of S: far below any noise, enough for equal rows in float64."""

_ORDERED_DECAY = 2.0  # of the correlation between the two ends of an ordered knob
_STEPS = (0.4, 2.5)  # factors that a hyper-parameter is tried at
_PRIOR_WIDTH = 1.5  # deviation of a hyper-parameter's logarithm around its start


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobKernel:
    """Hyper-parameters, variances in squared units of the target.

    Attributes:
        mean: Of the target before anything is seen.
        constant: c, how far the mean may be off.
        effects: a_k per knob with a choice.
        interaction: b.
        decay: theta, per unlike knob value. 0.7: two unlike knobs leave a quarter.
        own: o, how much of the variance comes on top that queries do not share, `>= 0`.
        shift: s, variance of what a query is off by everywhere, `>= 0`.
    """

    mean: float
    constant: float
    effects: tuple[float, ...]
    interaction: float
    decay: float = 0.7
    own: float = 0.0
    shift: float = 0.0

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
        """Variance of a value before anything is seen."""
        return (1 + self.own) * sum(self.variances) + self.shift

    @property
    def learnt(self) -> tuple[float, ...]:
        """a_1 ... a_K, b, c and, where queries differ, o, s."""
        between = (self.own, self.shift) if self.own > 0 and self.shift > 0 else ()
        return (*self.variances, *between)

    def scaled(self, which: int, factor: float) -> KnobKernel:
        """Give the kernel with one of `learnt` multiplied."""
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
    """Give R_k of every knob, those without a choice included."""
    tables = []
    for radix, is_ordered in zip(radices, ordered, strict=True):
        place = np.arange(radix) / max(radix - 1, 1)
        apart = np.abs(place[:, None] - place[None, :])
        tables.append(np.exp(-_ORDERED_DECAY * apart) if is_ordered else np.eye(radix))
    return tuple(tables)


class KnobProcess:
    """Predictions at fixed candidates from observations that arrive one by one.

    Args:
        candidates: Index of each knob's value, shape (m, knobs).
        tables: R_k of every knob.
        kernel: Where hyper-parameters start, and the centre of their prior.
    """

    def __init__(
        self, candidates: IndexArray, tables: tuple[FloatArray, ...], kernel: KnobKernel
    ) -> None:
        self._candidates = candidates
        self._knobs = [k for k, table in enumerate(tables) if len(table) > 1]
        rule = f"must have an effect for each of {len(self._knobs)} knobs"
        fits = len(kernel.effects) == len(self._knobs)
        checks.require(fits, "knob_kernel.effects", rule, len(kernel.effects))
        self._tables = tables
        self._start = self._kernel = kernel
        self._rows: list[int] = []
        self._y: list[float] = []
        self._noise = np.zeros((0, 0))
        self._earlier = 0  # of the rows, the first ones
        self._forget()

    def __len__(self) -> int:
        """Give n, the observations of this query."""
        return len(self._y) - self._earlier

    @property
    def kernel(self) -> KnobKernel:
        """The hyper-parameters in use."""
        return self._kernel

    @property
    def surprise(self) -> float:
        """Mean square of w: 1 if the model is right, more when it is too sure of itself."""
        own = self._w[self._earlier : len(self._y)]
        return float(np.square(own).mean()) if len(own) else 1.0

    def recall(
        self,
        rows: Sequence[int],
        values: FloatArray,
        noise: FloatArray,
        *,
        own: float,
        shift: float,
    ) -> None:
        """Start from what earlier queries observed, before anything is added.

        Args:
            rows: Which candidates, k of them.
            values: Finite, shape (k,).
            noise: Variance of each, independent, shape (k,).
            own: o to start from, `> 0`.
            shift: s to start from, `> 0`.
        """
        checks.require(not self._y, "recall", "must come before observations", len(self._y))
        finite = bool(np.isfinite(values).all() and np.isfinite(noise).all())
        checks.require(finite, "recall", "must get finite values only", "NaN or infinity")
        if not rows:
            return
        self._start = self._kernel = replace(self._kernel, own=own, shift=shift)
        self._rows, self._y = list(rows), [float(value) for value in values]
        self._noise = np.diag(noise)
        self._earlier = len(rows)
        self._restart()

    def add(self, row: int, value: float, noise: FloatArray) -> None:
        """Take in an observation.

        Args:
            row: Which candidate.
            value: Finite.
            noise: Covariance of its noise with that of the observations so far, then its own
                variance, shape (n + 1,).
        """
        checks.require(bool(np.isfinite(value)), "observation", "must be finite", value)
        n = len(self._y)
        grown = np.zeros((n + 1, n + 1))
        grown[:n, :n] = self._noise
        grown[n, self._earlier :] = grown[self._earlier :, n] = noise
        self._noise = grown
        self._rows.append(row)
        self._y.append(value)
        self._append(n)

    def refit(self, noise: FloatArray | None = None) -> None:
        """Choose hyper-parameters anew and start over with them.

        Args:
            noise: Covariance of the noise of all observations, shape (n, n); None: as before.
        """
        if noise is not None:
            self._noise[self._earlier :, self._earlier :] = noise
        if len(self) < 2:
            return
        parts = self._parts()
        best = self._log_posterior(self._kernel, parts)
        for which in range(len(self._kernel.learnt)):
            for factor in _STEPS:
                tried = self._kernel.scaled(which, factor)
                value = self._log_posterior(tried, parts)
                if value > best:
                    best, self._kernel = value, tried
        self._restart()

    def _forget(self) -> None:
        m = len(self._candidates)
        self._l = np.zeros((8, 8))
        self._v = np.zeros((8, m))
        self._w = np.zeros(8)
        self.mean: FloatArray = np.full(m, self._kernel.mean)  # (m,)
        self.variance: FloatArray = np.full(m, self._kernel.prior)  # (m,)

    def _append(self, n: int) -> None:
        self._reserve(n + 1)
        row, kernel = self._rows[n], self._kernel
        shared = self._covariance(row, self._candidates)
        cross = (1 + kernel.own) * shared + kernel.shift
        l_row = np.zeros(0)
        if n:
            seen = cross[self._rows[:n]] + self._noise[n, :n]
            seen[: self._earlier] = shared[self._rows[: self._earlier]]
            l_row = solve_triangular(self._l[:n, :n], seen, lower=True, check_finite=False)
        rest = self._kernel.prior + self._noise[n, n] + JITTER - float(l_row @ l_row)
        pivot = float(np.sqrt(max(rest, JITTER)))
        self._l[n, :n], self._l[n, n] = l_row, pivot
        self._w[n] = (self._y[n] - self._kernel.mean - l_row @ self._w[:n]) / pivot
        v = (cross - l_row @ self._v[:n]) / pivot
        self._v[n] = v
        self.mean = self.mean + v * self._w[n]
        self.variance = np.maximum(self.variance - v * v, JITTER)

    def _restart(self) -> None:
        self._forget()
        n, kernel = len(self._y), self._kernel
        self._reserve(n)
        lower = np.linalg.cholesky(_combined(kernel, self._parts()))
        cross = np.stack([self._covariance(row, self._candidates) for row in self._rows])
        cross[self._earlier :] = (1 + kernel.own) * cross[self._earlier :] + kernel.shift
        y = np.array(self._y) - self._kernel.mean
        self._l[:n, :n] = lower
        self._v[:n] = solve_triangular(lower, cross, lower=True, check_finite=False)
        self._w[:n] = solve_triangular(lower, y, lower=True, check_finite=False)
        self.mean = self._kernel.mean + self._w[:n] @ self._v[:n]
        explained = np.einsum("nm,nm->m", self._v[:n], self._v[:n])
        self.variance = np.maximum(self._kernel.prior - explained, JITTER)

    def _reserve(self, n: int) -> None:
        size = len(self._w)
        if n <= size:
            return
        more = max(2 * size, n) - size
        self._l = np.pad(self._l, ((0, more), (0, more)))
        self._v = np.concatenate([self._v, np.zeros((more, self._v.shape[1]))])
        self._w = np.pad(self._w, (0, more))

    def _covariance(self, row: int, others: IndexArray) -> FloatArray:  # (m,)
        kernel, here = self._kernel, self._candidates[row]
        total = np.full(len(others), kernel.constant)
        unlike = np.zeros(len(others))
        for effect, knob in zip(kernel.effects, self._knobs, strict=True):
            alike = self._tables[knob][here[knob]][others[:, knob]]
            total += effect * alike
            unlike += 1.0 - alike
        return np.asarray(total + kernel.interaction * np.exp(-kernel.decay * unlike))

    def _parts(self) -> _Parts:
        """Give what does not change with the hyper-parameters."""
        x = self._candidates[self._rows]
        tables = [self._tables[k][x[:, k][:, None], x[:, k][None, :]] for k in self._knobs]
        unlike = sum((1.0 - table for table in tables), np.zeros((len(x), len(x))))
        mine = np.arange(len(x)) >= self._earlier
        return _Parts(
            noise=self._noise + JITTER * np.eye(len(x)),
            alike=tables,
            together=np.exp(-self._kernel.decay * unlike),
            own=(mine[:, None] & mine[None, :]).astype(float),
        )

    def _log_posterior(self, kernel: KnobKernel, parts: _Parts) -> float:
        try:
            lower = np.linalg.cholesky(_combined(kernel, parts))
        except np.linalg.LinAlgError:
            return -np.inf
        y = np.array(self._y) - kernel.mean
        w = solve_triangular(lower, y, lower=True, check_finite=False)
        moved = np.log(np.array(kernel.learnt) / np.array(self._start.learnt))
        prior = 0.5 * float(np.square(moved / _PRIOR_WIDTH).sum())
        return float(-0.5 * (w @ w) - np.log(np.diag(lower)).sum() - prior)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """Of all observations: their noise, R_k, exp(-theta h), 1 where both are this query's."""

    noise: FloatArray
    alike: list[FloatArray]
    together: FloatArray
    own: FloatArray


def _combined(kernel: KnobKernel, parts: _Parts) -> FloatArray:  # (n, n)
    shared = kernel.constant + kernel.interaction * parts.together
    for effect, table in zip(kernel.effects, parts.alike, strict=True):
        shared = shared + effect * table
    own = kernel.own * shared + kernel.shift
    return np.asarray(parts.noise + shared + parts.own * own)
