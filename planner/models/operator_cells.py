"""Seconds and dollars of one operator on an input, by cells: settings of its lineage's knobs.

Prices are known before anything is called. So what is learnt of dollars is how many times as much
as a usual call at its endpoint's prices a run costs: calls to an endpoint without any so far are
taken to be as large as those to the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.endpoints import Endpoint, Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.profile import FloatArray
from circinus.planner.models.history import ConfigurationRecord
from circinus.planner.models.knob_process import KnobKernel, KnobProcess, correlations

_SHORTEST_S = 1e-9
_OWN, _INHERITED, _TOGETHER, _ANYWHERE = 0.8, 0.15, 0.05, 4.0
"""Variances of log seconds: an operator's own knobs matter most, those before it less; how long
it takes at all is open within two orders of magnitude."""
_OTHER_OWN, _OTHER_SHIFT, _BETWEEN = 0.004, 0.1, 0.01
"""How log seconds of an operator differ between queries: see `KnobKernel.own`, `shift`; variance
of the mean of a cell between them."""
_PRIOR_CV2, _PRIOR_WEIGHT = 0.3, 20.0  # pooled with observations; few inputs show no spikes
_MOST_CORRECTION = 1.5  # of the mean of a log-normal over its median, in logs
_USUAL = Usage(calls=1.0, input_tokens=1000.0, output_tokens=200.0)
"""Of a call: a question with a page to read, and a paragraph as the answer."""
_USUAL_S = 1.0  # that it takes
_USD_OWN, _USD_INHERITED = 0.3, 0.15
"""Variances of the log of dollars over those of a usual call, `_ANYWHERE` and `_TOGETHER` beside
them: how much is read is open within two orders of magnitude, and differs less by settings."""
_CV2 = 0.3  # squared deviation over mean of dollars between inputs
_LEAST = 1e-9  # of the ratio: some calls that are charged for cost nothing


class OperatorSeconds:
    """One operator: its cells, their observations, and a process over the others.

    Cells are unlike settings of the lineage's knobs, or of all (`whole`).
    """

    def __init__(
        self,
        graph: PipelineGraph,
        o: int,
        knobs: IndexArray,  # (C, knobs)
        typical: float,  # log seconds
        population: int,
        *,
        whole: bool,
    ) -> None:
        name, lineage = graph.operators[o].name, list(graph.upstream_knobs[o])
        columns = list(range(len(graph.slots))) if whole else lineage
        slots = [graph.slots[k] for k in columns]
        cells, self.which = _numbered(knobs[:, columns])  # cell of each configuration, (C,)
        self.paid_which = _numbered(knobs[:, lineage])[1] if whole else self.which
        chosen = [slot for slot in slots if len(slot.knob.values) > 1]
        kernel = KnobKernel(
            mean=typical,
            constant=_ANYWHERE,
            effects=tuple(
                _OWN if whole or slot.operator == name else _INHERITED for slot in chosen
            ),
            interaction=_TOGETHER,
        )
        tables = correlations(
            tuple(len(slot.knob.values) for slot in slots),
            tuple(bool(slot.knob.ordered) for slot in slots),
        )
        self.cells, self.tables = cells, tables
        # Of shared knobs the slot is that of the first operator.
        own = [graph.slots[k] for slot, k in graph.choosing if slot.operator == name]
        self.own = cells[:, [slots.index(slot) for slot in own]]
        self.chosen_own = [slot in own for slot in chosen]
        self.paid = np.zeros(int(self.paid_which.max()) + 1, dtype=np.int64)
        self._count = np.zeros(len(cells), dtype=np.int64)
        self._mean = np.zeros(len(cells))
        self._square = np.zeros(len(cells))
        self._bytes = np.full(len(cells), np.nan)
        self._waiting = np.full(len(cells), np.nan)  # part of the seconds
        self.cv2 = _PRIOR_CV2
        self._population = population
        self.process = KnobProcess(cells, tables, kernel)

    def recall(self, rows: Sequence[int], earlier: Sequence[ConfigurationRecord], o: int) -> None:
        """Start from the mean of each cell, weighted by inputs."""
        members: dict[int, list[ConfigurationRecord]] = {}
        for row, one in zip(rows, earlier, strict=True):
            members.setdefault(int(self.which[row]), []).append(one)
        values, noise = [], []
        for cell, ones in members.items():
            inputs = np.array([one.inputs for one in ones], dtype=float)
            part = inputs / inputs.sum()
            mean = float(part @ np.array([one.operator_s[o] for one in ones]))
            values.append(np.log(max(mean, _SHORTEST_S)))
            noise.append(min(self.cv2, 1.0) / inputs.sum() + _BETWEEN)
            self._bytes[cell] = float(part @ np.array([one.output_bytes[o] for one in ones]))
            waiting = [float(one.mean_work.waiting[o]) for one in ones]
            self._waiting[cell] = float(part @ np.array(waiting))
        self.process.recall(
            list(members), np.array(values), np.array(noise), own=_OTHER_OWN, shift=_OTHER_SHIFT
        )

    def observe(self, row: int, seconds: FloatArray, sizes: FloatArray, waiting: float) -> None:
        """Learn from all inputs that the cell of a row has met, if they are more than before."""
        cell, paid = int(self.which[row]), int(self.paid_which[row])
        self.paid[paid] = max(self.paid[paid], len(seconds))
        if len(seconds) <= self._count[cell]:
            return
        first = self._count[cell] == 0
        self._count[cell] = len(seconds)
        self._mean[cell] = max(float(seconds.mean()), _SHORTEST_S)
        self._square[cell] = float(np.square(seconds - seconds.mean()).sum())
        self._bytes[cell] = float(sizes.mean())
        self._waiting[cell] = waiting
        several = self._count >= 2
        relative = (self._square[several] / np.square(self._mean[several])).sum()
        weight = (self._count[several] - 1).sum()
        self.cv2 = float((_PRIOR_CV2 * _PRIOR_WEIGHT + relative) / (_PRIOR_WEIGHT + weight))
        if first:
            n = len(self.process)
            noise = np.zeros(n + 1)
            noise[n] = min(self.cv2, 1.0) / len(seconds) + 1e-4
            self.process.add(cell, float(np.log(self._mean[cell])), noise)

    def refit(self) -> None:
        """Choose hyper-parameters anew; noise stays that of the first looks.

        It also stands for what the kernel cannot explain.
        """
        if len(self.process) >= 4:
            self.process.refit()

    def moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:  # (cells,) each
        """Return mean, variance and harmonic mean of seconds, see `Seconds`."""
        met = self.process.rows
        known = self._mean[met]
        left = np.maximum(1 / self._count[met] - 1 / self._population, 0.0)
        if met:
            self.process.revise(np.log(known))
        variance = self.process.variance
        correction = np.minimum(variance / 2, _MOST_CORRECTION)
        mean = np.exp(self.process.mean + correction)
        spread = np.square(mean) * np.expm1(2 * correction)
        hoped = np.exp(self.process.mean - correction)
        mean[met] = hoped[met] = known
        spread[met] = np.square(known) * self.cv2 * left
        return mean, spread, hoped

    def waiting(self) -> FloatArray:  # (cells,)
        """Return which part of the seconds it waits: of a cell never met, as of those met."""
        known = ~np.isnan(self._waiting)
        typical = float(self._waiting[known].mean()) if known.any() else 0.0
        return np.where(known, self._waiting, typical)

    def bytes(self) -> FloatArray:  # (cells,)
        """Return what each cell hands on; one never met, as the geometric mean of the others."""
        known = ~np.isnan(self._bytes)
        typical = float(np.exp(np.log(np.maximum(self._bytes[known], 1.0)).mean()))
        return np.where(known, self._bytes, typical)


class OperatorDollars:
    """The dollars of one operator's calls on an input, by cells of its lineage's knobs."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],  # of the infrastructure
        called: Sequence[frozenset[str]],  # by each cell
        process: KnobProcess,  # over the cells, nothing observed, of `dollars_kernel`
    ) -> None:
        usual = {each.name: each.price.usd(_USUAL, _USUAL_S) for each in endpoints}
        self._level = np.array([sum(usual[name] for name in names) for names in called])
        self._process = process
        self._mean = np.full(len(called), np.nan)  # US dollars where observed
        self._count = np.zeros(len(called), dtype=np.int64)

    def observe(self, cell: int, usd: FloatArray) -> None:
        """Learn the dollars of n >= 1 inputs of a cell, those observed before included, (n,)."""
        if len(usd) <= self._count[cell] or not self._level[cell] > 0:
            return
        is_new = self._count[cell] == 0
        self._count[cell], self._mean[cell] = len(usd), float(usd.mean())
        if is_new:
            noise = np.zeros(len(self._process) + 1)
            noise[-1] = _CV2 / len(usd) + 1e-4
            self._process.add(cell, self._log_ratio(cell), noise)

    def expected(self) -> FloatArray:  # (cells,)
        """Return the mean dollars of an input, as observed or as predicted."""
        met: list[int] = self._process.rows
        if met:
            self._process.revise(np.array([self._log_ratio(cell) for cell in met]))
        correction = np.minimum(self._process.variance / 2, _MOST_CORRECTION)
        expected = self._level * np.exp(self._process.mean + correction)
        return np.where(np.isnan(self._mean), expected, self._mean)

    def _log_ratio(self, cell: int) -> float:
        return float(np.log(max(self._mean[cell] / self._level[cell], _LEAST)))


def dollars_kernel(own: Sequence[bool]) -> KnobKernel:
    """Return the kernel of a process over cells, of knobs with a choice: the operator's or not."""
    return KnobKernel(
        mean=0.0,
        constant=_ANYWHERE,
        effects=tuple(_USD_OWN if mine else _USD_INHERITED for mine in own),
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


def _numbered(settings: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the unlike rows, and which of them each row is."""
    cells, which = np.unique(settings, axis=0, return_inverse=True)
    return cells, which.ravel()
