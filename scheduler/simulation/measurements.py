"""Latencies as they were measured: a table per model, by batch size and instance type.

Read from text in the format of `kairos_latency.csv`: a header, then a row per (model,
instance, batch) with `mean_ms` and `std_ms` at least. A request of any size is charged the next
batch size of the table.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.policy import FloatArray, IntArray

_COLUMNS = ("model", "instance", "batch", "mean_ms", "std_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTable:
    """What a model was measured to take."""

    model: str
    # names of the K instance types, in the order of the file; the first is the base
    kinds: tuple[str, ...]
    batches: IntArray  # (B,); the B batch sizes, rising
    mean_s: FloatArray  # (B, K); seconds, `> 0`
    std_s: FloatArray  # (B, K); standard deviation of single runs, `>= 0`

    def rows(self, sizes: IntArray) -> IntArray:  # (N,)
        """Return the row that each size is charged.

        InvalidInput if a size is larger than the largest batch size, or `< 1`.
        """
        largest = int(self.batches[-1])
        outside = sizes[(sizes < 1) | (sizes > largest)].tolist()
        if outside:
            rule = f"must be in [1, {largest}], the sizes that were measured"
            raise InvalidInput.of("batch", rule, outside[0])
        return np.searchsorted(self.batches, sizes)

    def of_kinds(self, kinds: Sequence[str]) -> LatencyTable:
        """Return the table of instance types, in that order; InvalidInput if one is unknown."""
        checks.require(len(kinds) > 0, "types", "must not be empty", kinds)
        checks.unique("types", kinds)
        for kind in kinds:
            checks.among("types", kind, self.kinds)
        at = [self.kinds.index(kind) for kind in kinds]
        mean_s, std_s = self.mean_s[:, at], self.std_s[:, at]
        return replace(self, kinds=tuple(kinds), mean_s=mean_s, std_s=std_s)

    def quantile_s(self, level: float) -> FloatArray:  # (B, K)
        """Return the quantile of single runs, taken as log-normal with that mean and deviation.

        InvalidInput if `level` is not in (0, 1).
        """
        checks.open_probability("level", level)
        mu, sigma = self._log_normal()
        return np.asarray(np.exp(mu + NormalDist().inv_cdf(level) * sigma))

    # deviates: sampled-service
    def sampled_s(self, rows: IntArray, rng: np.random.Generator) -> FloatArray:  # (N, K)
        """Return seconds of single runs, log-normal, independent for each kind."""
        mu, sigma = self._log_normal()
        draws = rng.standard_normal((len(rows), len(self.kinds)))
        return np.asarray(np.exp(mu[rows] + sigma[rows] * draws))

    def _log_normal(self) -> tuple[FloatArray, FloatArray]:
        variance = np.log1p((self.std_s / self.mean_s) ** 2)
        return np.log(self.mean_s) - variance / 2, np.sqrt(variance)


def parse_latencies(lines: Iterable[str], model: str) -> LatencyTable:
    """Return the table of a model.

    InvalidInput if a column, the model or a combination of type and batch is missing or stated
    twice, or a number is none or out of its range.
    """
    reader = csv.DictReader(lines)
    missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    checks.require(not missing, "header", f"must have {', '.join(_COLUMNS)}", reader.fieldnames)
    cells: dict[tuple[str, int], tuple[float, float]] = {}
    models: dict[str, None] = {}
    for row in reader:
        models[row["model"]] = None
        if row["model"] == model:
            key, value = _cell(row)
            checks.require(key not in cells, f"row {key}", "must not repeat", row)
            cells[key] = value
    checks.require(bool(cells), "model", f"must be among {', '.join(models)}", model)
    return measured(model, cells)


def _cell(row: dict[str, str]) -> tuple[tuple[str, int], tuple[float, float]]:
    try:
        batch = int(row["batch"])
        mean_s, std_s = float(row["mean_ms"]) / 1e3, float(row["std_ms"]) / 1e3
    except (TypeError, ValueError) as error:
        rule = "must have numbers for batch, mean_ms and std_ms"
        raise InvalidInput.of("row", rule, row) from error
    checks.positive("batch", batch)
    checks.positive("mean_ms", mean_s)
    checks.non_negative("std_ms", std_s)
    return (row["instance"], batch), (mean_s, std_s)


def measured(model: str, cells: Mapping[tuple[str, int], tuple[float, float]]) -> LatencyTable:
    """Return the table of the mean and deviation, in seconds, by type and batch size.

    InvalidInput if a combination of type and batch size is missing.
    """
    kinds = tuple(dict.fromkeys(kind for kind, _ in cells))
    sizes = sorted({batch for _, batch in cells})
    missing = [(k, b) for k in kinds for b in sizes if (k, b) not in cells]
    checks.require(not missing, model, "must have every type at every batch", missing[:3])
    grid = np.array([[cells[kind, batch] for kind in kinds] for batch in sizes])
    batches = np.array(sizes, dtype=np.int64)
    return LatencyTable(
        model=model, kinds=kinds, batches=batches, mean_s=grid[:, :, 0], std_s=grid[:, :, 1]
    )
