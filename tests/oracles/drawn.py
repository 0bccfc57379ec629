"""An evaluator whose inputs flip between draws: expected scores are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import MOST_DRAWS, DrawOrder
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.profile import FloatArray, Profile
from tests.oracles.synthetic import chain


def drawing_chain(*radices: int) -> PipelineGraph:
    """Return a chain of operators, one knob of `radix` values each, whose last one draws."""
    graph = chain(*radices)
    *others, last = graph.operators
    return replace(graph, operators=(*others, replace(last, draws=True)))


@dataclass(eq=False)
class FlippingEvaluator:
    """Scores are 0 and 1. Of each configuration a part of the inputs flips between draws.

    Which inputs are hard is alike for all configurations, more so for those alike in their knobs.
    """

    population: int
    seed: int
    flipping: float = 0.1  # part of the inputs that score 1 in half of the draws, in [0, 1]
    radices: tuple[int, ...] = (3, 3)
    width: int = 16
    spent_s: float = 0.0
    calls_s: float = 0.0  # it calls nothing
    calls_usd: float = 0.0
    measured: dict[Configuration, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = drawing_chain(*self.radices)
        self.space = ConfigurationSpace(self.graph)
        rng = np.random.Generator(np.random.PCG64(self.seed))
        n, c = self.population, self.space.size
        values = self.space.indices(list(range(c)))
        effects = [rng.normal(0, 0.6, radix) for radix in self.radices]
        parts = np.stack([e[values[:, k]] for k, e in enumerate(effects)])
        skill = rng.normal(1.0, 0.4) + parts.sum(axis=0)
        hard = rng.normal(0, 0.8, n)
        alike = rng.normal(0, 0.6, (self.radices[-1], n))[values[:, -1]]
        latent = skill[:, None] - hard - alike - rng.normal(0, 0.4, (c, n))
        flips = rng.random((c, n)) < self.flipping
        self.chance = np.where(flips, 0.5, latent > 0)
        self._scores = rng.random((c, n, MOST_DRAWS)) < self.chance[..., None]
        order = DrawOrder(rng.permutation(n), draws=True)
        order.grow(order.size, 1)
        self._pairs = np.array(order.pairs(0, order.size))

    @property
    def truth(self) -> FloatArray:
        """Expected score of each configuration, by number."""
        return np.asarray(self.chance.mean(axis=1))

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        return tuple(self.measure(configuration, inputs) for configuration, inputs in wanted)

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        number = self.space.number(configuration)
        before = self.measured.get(configuration, 0)
        n = self.measured[configuration] = max(before, inputs)
        pairs = self._pairs[:n]
        seconds = np.full((len(self.graph.operators), n), 0.01 * (1 + number / self.space.size))
        self.spent_s += float(seconds[:, before:].sum())
        return Profile(
            configuration=configuration,
            inputs=pairs[:, 0],
            score=self._scores[number, pairs[:, 0], pairs[:, 1]].astype(np.float64),
            operator_s=seconds,
            output_bytes=np.full(seconds.shape, 100.0),
            input_bytes=np.full(n, 1000.0),
            spent_s=float(seconds.sum()),
        )
