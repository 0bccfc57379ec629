"""What every configuration's calls cost, learnt operator by operator, as seconds are.

What a call uses depends on the knobs of its operator's lineage: which endpoint, which prompt, how
much is read. Prices are known before anything is called, so what is learnt is how many times as
much as a usual call at its endpoint's prices a run costs: an endpoint that was never called is
taken to be asked for as much as those that were.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.endpoints import Endpoint, Usage
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.profile import FloatArray
from circinus.planner.models.knob_process import KnobKernel, KnobProcess

_USUAL = Usage(calls=1.0, input_tokens=1000.0, output_tokens=200.0)
"""Of a call: a question with a page to read, and a paragraph as the answer."""
_USUAL_S = 1.0  # that it takes
_OWN, _INHERITED, _TOGETHER, _ANYWHERE = 0.3, 0.15, 0.05, 4.0
"""Variances of the log of dollars over those of a usual call: how much is read is open within two
orders of magnitude, and differs less between settings than that."""
_CV2 = 0.3  # squared deviation over mean of dollars between inputs
_LEAST = 1e-9  # of the ratio: some calls that are charged for cost nothing
_MOST_CORRECTION = 1.5  # of the mean of a log-normal over its median, in logs


class OperatorDollars:
    """The dollars of one operator's calls on an input, by cells of its lineage's knobs."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],  # of the infrastructure
        called: Sequence[frozenset[str]],  # by each cell
        process: KnobProcess,  # over the cells, nothing observed, of `kernel`
    ) -> None:
        usual = {each.name: each.price.usd(_USUAL, _USUAL_S) for each in endpoints}
        self._level = np.array([sum(usual[name] for name in names) for names in called])
        self._process = process
        self._mean = np.full(len(called), np.nan)  # US dollars where it was seen
        self._count = np.zeros(len(called), dtype=np.int64)

    def observe(self, cell: int, usd: FloatArray) -> None:
        """Take in the dollars of n >= 1 inputs of a cell, those seen before included, (n,)."""
        if len(usd) <= self._count[cell] or not self._level[cell] > 0:
            return
        is_new = self._count[cell] == 0
        self._count[cell], self._mean[cell] = len(usd), float(usd.mean())
        if is_new:
            noise = np.zeros(len(self._process) + 1)
            noise[-1] = _CV2 / len(usd) + 1e-4
            self._process.add(cell, self._log_ratio(cell), noise)

    def expected(self) -> FloatArray:  # (cells,)
        """Return the mean dollars of an input, as seen or as predicted."""
        met: list[int] = self._process.rows
        if met:
            self._process.revise(np.array([self._log_ratio(cell) for cell in met]))
        correction = np.minimum(self._process.variance / 2, _MOST_CORRECTION)
        expected = self._level * np.exp(self._process.mean + correction)
        return np.where(np.isnan(self._mean), expected, self._mean)

    def _log_ratio(self, cell: int) -> float:
        return float(np.log(max(self._mean[cell] / self._level[cell], _LEAST)))


def kernel(own: Sequence[bool]) -> KnobKernel:
    """Return the kernel of a process over cells, of knobs with a choice: the operator's or not."""
    return KnobKernel(
        mean=0.0,
        constant=_ANYWHERE,
        effects=tuple(_OWN if mine else _INHERITED for mine in own),
        interaction=_TOGETHER,
    )


def called_by_cells(
    operator: OperatorSpec,
    cells: IndexArray,  # value indices, (cells, own knobs), in the order of `operator.knobs`
) -> list[frozenset[str]]:
    """Return the endpoints that an operator calls under the settings of each cell."""
    known: dict[tuple[int, ...], frozenset[str]] = {}
    for row in np.unique(cells, axis=0).tolist():
        pairs = zip(operator.knobs, row, strict=True)
        settings = {knob.name: knob.values[index] for knob, index in pairs}
        called = operator.called(settings)
        known[tuple(row)] = frozenset(call.endpoint for call in called)
    return [known[tuple(row)] for row in cells.tolist()]
