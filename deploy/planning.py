"""The planner of a method: how its inputs are drawn and its configurations searched.

One rule: planning workers, the command line, studies and benchmarks all search through
`Planner.search`. Studies may make a `Planner` of parts that only they have; those of a method come
from `planner_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from pipelines import checks
from pipelines.clock import Clock
from pipelines.evaluation import Evaluator, StoppingRule
from pipelines.infrastructure import Infrastructure
from pipelines.method import PlanningMethod
from pipelines.profile import FloatArray
from pipelines.query import Query
from planner.bill import Forecast
from planner.caution import CAUTION
from planner.forecasting import Probes
from planner.history import QueryRecord
from planner.known import Answer, Known, answer
from planner.measuring import LatencyLooks
from planner.multi_fidelity import MultiFidelityFactory
from planner.result import Observer, PlanningResult
from planner.search import SearchSettings, search
from planner.strategy import StrategyFactory
from profiler.betting import Betting
from profiler.drawing import Drawing, Sampling, random_drawing, stratified_drawing
from profiler.stopping import TTest

PATIENCE = 25
"""Configurations without a cheaper plan: few inputs of each are measured, but planning takes time,
too."""
PUBLISHED_CAUTION = 0.9
"""The papers tighten to the estimate itself, and every other plan is late. The interval is a
deviation in their favour."""

_ORDER_STREAM = 1
"""Of the streams spawned from a query's seed: the order of its inputs."""

_SAMPLING: Mapping[str, Sampling] = {"random": random_drawing, "stratified": stratified_drawing}

Features = Callable[[], FloatArray | None]
"""Gives features of every input, shape (n, F); None when there are none."""

RuleFactory = Callable[[Drawing], StoppingRule]

_STOPPING: Mapping[str, RuleFactory] = {
    "betting": lambda drawing: Betting(groups=drawing.groups),
    "t_test": lambda drawing: TTest(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What plans queries, of whatever parts.

    Attributes:
        strategy: Proposes.
        stopping: Makes the stopping rule for a drawing; None: the strategy decides.
        sampling: Draws the order of inputs.
        caution: See `SearchSettings`, as the others.
    """

    strategy: StrategyFactory
    stopping: RuleFactory | None = None
    sampling: Sampling = random_drawing
    caution: float | None = CAUTION
    patience: int = PATIENCE
    hopeless: float = 1e-3
    looks: LatencyLooks = field(default_factory=LatencyLooks)

    def drawing(self, features: Features, count: int, seed: int) -> Drawing:
        """Give the order in which a query's inputs are drawn: equal seeds, equal orders.

        Args:
            features: Of every input, asked for where strata or the stopping rule need them.
            count: n.
            seed: The query's.
        """
        rng = np.random.Generator(np.random.PCG64([seed, _ORDER_STREAM]))
        needed = self.stopping is not None or self.sampling is not random_drawing
        return self.sampling(features() if needed else None, count, rng)

    def rule(self, drawing: Drawing) -> StoppingRule | None:
        """Give what ends measurements of inputs drawn so."""
        return None if self.stopping is None else self.stopping(drawing)

    def search(  # noqa: PLR0913 - the arguments of `planner.search.search`
        self,
        query: Query,
        infrastructure: Infrastructure,
        evaluator: Evaluator,
        drawing: Drawing,
        *,
        forecast: Forecast | Probes | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
        history: Sequence[QueryRecord] = (),
    ) -> PlanningResult:
        """Give the plans of a query, or why there are none.

        Args:
            query: What to plan.
            infrastructure: Where it may run.
            evaluator: Measures in the order of the drawing.
            drawing: Of the inputs.
            forecast: See `SearchSettings`.
            observer: Is told of progress and may cancel.
            clock: Measures the response time.
            history: What earlier queries measured, the newest first.

        Raises:
            InvalidInput: As `planner.search.search` does.
        """
        return search(
            query,
            infrastructure,
            evaluator,
            self.rule(drawing),
            settings=SearchSettings(
                strategy=self.strategy,
                patience=self.patience,
                hopeless=self.hopeless,
                caution=self.caution,
                looks=self.looks,
                forecast=forecast,
            ),
            observer=observer,
            clock=clock,
            history=history,
        )

    def answer(
        self, query: Query, infrastructure: Infrastructure, known: Known, drawing: Drawing
    ) -> Answer:
        """Give the plans of a query as far as they were measured, in the order of the drawing.

        Raises:
            InvalidInput: As `planner.known.answer` does.
        """
        rule = self.rule(drawing)
        return answer(query, infrastructure, known, self.strategy, rule, self.caution)


def planner_of(method: PlanningMethod) -> Planner:
    """Give the planner of a method's parts."""
    strategy = _STRATEGIES[method.strategy]()
    sampling = sampling_of(method.sampling)
    if method.stopping is None:
        return Planner(strategy=strategy, sampling=sampling)
    return Planner(
        strategy=strategy,
        stopping=partial(stopping_rule, method.stopping),
        sampling=sampling,
        caution=PUBLISHED_CAUTION,
    )


def stopping_rule(name: str, drawing: Drawing) -> StoppingRule:
    """Give the stopping rule of a name, of `STOPPING`, for inputs drawn so.

    Raises:
        InvalidInput: If there is none of that name.
    """
    checks.among("planning.stopping", name, _STOPPING)
    return _STOPPING[name](drawing)


def sampling_of(name: str) -> Sampling:
    """Give the way to draw inputs of a name, of `SAMPLING`.

    Raises:
        InvalidInput: If there is none of that name.
    """
    checks.among("planning.sampling", name, _SAMPLING)
    return _SAMPLING[name]


# Imported when asked for: what CMBO fits its models with takes seconds to load.


def _cmbo() -> StrategyFactory:
    from planner.cmbo import CmboFactory

    return CmboFactory()


def _random() -> StrategyFactory:
    from planner.baselines.random import RandomFactory

    return RandomFactory()


def _exhaustive() -> StrategyFactory:
    from planner.baselines.exhaustive import ExhaustiveFactory

    return ExhaustiveFactory()


_STRATEGIES: Mapping[str, Callable[[], StrategyFactory]] = {
    "multi_fidelity": MultiFidelityFactory,
    "cmbo": _cmbo,
    "random": _random,
    "exhaustive": _exhaustive,
}
