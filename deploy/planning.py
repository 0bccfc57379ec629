"""The planner of a method: how its inputs are drawn and its configurations searched.

One rule: planning workers, the command line, studies and benchmarks all search through
`Planner.search`. Studies may make a `Planner` of parts that only they have; those of a method come
from `planner_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from circinus.deploy.methods import MOST_EARLIER, goes_to_the_end, most_earlier
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, Waits
from circinus.pipelines.execution.features import InputFeatures
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import Evaluator, StoppingRule
from circinus.pipelines.model.query import PlanningMethod, Query
from circinus.planner.answers.known import Answer, Known, answer, evaluated
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.auditing import Audit
from circinus.planner.search.bill import CallsCost, Cost, Forecast
from circinus.planner.search.budget import Budget
from circinus.planner.search.forecasting import TO_THE_LIMIT, Probes, from_earlier
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.measuring import PartScores
from circinus.planner.search.result import Observer, PlanningResult
from circinus.planner.strategy.in_order import exhaustive_search, random_search
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import StrategyFactory
from circinus.profiler.drawing import (
    Drawing,
    Sampling,
    no_strata,
    random_drawing,
    stratified_drawing,
)
from circinus.profiler.stopping import Betting, TTest

PATIENCE = 25
"""Configurations without a cheaper plan: few inputs of each are measured, but planning takes time,
too."""
# deviates: tightening-margin
PUBLISHED_MARGIN_CONFIDENCE = 0.9
"""The papers tighten to the estimate itself, and every other plan is late. The interval is a
deviation in their favour."""

_ORDER_STREAM = 1
"""Of the streams spawned from a query's seed: the order of its inputs."""

_SAMPLING: Mapping[str, Sampling] = {"random": random_drawing, "stratified": stratified_drawing}

Features = Callable[[], InputFeatures]
"""Returns features of every input."""

RuleFactory = Callable[[Drawing], StoppingRule]

_STOPPING: Mapping[str, RuleFactory] = {
    "betting": lambda drawing: Betting(groups=drawing.groups),
    "t_test": lambda drawing: TTest(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What plans queries, of whatever parts."""

    settings: SearchSettings = field(default_factory=lambda: SearchSettings(patience=PATIENCE))
    stopping: RuleFactory | None = None  # None: the strategy decides
    sampling: Sampling = random_drawing  # draws the order of inputs
    most_earlier: int | None = MOST_EARLIER  # queries of a history, the newest; None: all
    method: PlanningMethod | None = None  # whose parts they are; None: queries name theirs

    def drawing(self, features: Features, count: int, seed: int) -> Drawing:
        """Return the sampling order of `count` inputs of a query: equal seeds, equal orders.

        Features are asked for where strata or the stopping rule need them; the drawing says what
        its strata are made of then.
        """
        rng = np.random.Generator(np.random.PCG64([seed, _ORDER_STREAM]))
        in_order = self.sampling is not random_drawing
        if self.stopping is None and not in_order:
            return self.sampling(None, count, rng)
        known = features()
        drawing = self.sampling(known.values, count, rng)
        if not in_order and drawing.groups is None:
            return drawing
        reason = no_strata(known.values, count)
        strata = f"none, in random order, as {reason}" if reason else f"by {known.source}"
        return replace(drawing, strata=strata)

    def rule(self, drawing: Drawing) -> StoppingRule | None:
        """Return what ends measurements of inputs drawn so."""
        return None if self.stopping is None else self.stopping(drawing)

    def forecast(
        self, query: Query, infrastructure: Infrastructure, bills: Sequence[Cost]
    ) -> Forecast | Probes:
        """Return what the cost of a search is forecast from.

        Bills of the pipeline's earlier queries, if enough, or probes; these alone where limits
        alone end the search, as the bills are of queries with any limits.
        """
        if self.settings.patience is None:
            return Probes(span=TO_THE_LIMIT)
        # deviates: probes-first
        return from_earlier(bills, Budget.of(query.limits, infrastructure)) or Probes()

    def search(  # noqa: PLR0913 - the arguments of `planner.search.loop.search`
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
        audit: Audit | None = None,
        scores: PartScores | None = None,
        called: Callable[[], Sequence[CallsCost]] | None = None,
        waits: Waits | None = None,
    ) -> PlanningResult:
        """Return the plans of a query, or why there are none: see `planner.search.loop.search`.

        The evaluator measures in the order of the drawing; the last of its arguments as in
        `SearchSettings`.
        """
        settings = replace(
            self.settings, forecast=forecast, audit=audit, called=called, waits=waits
        )
        result = search(
            self._own(query),
            infrastructure,
            evaluator,
            self.rule(drawing),
            settings=replace(settings, scores=scores),
            observer=observer,
            clock=clock,
            history=history[: self.most_earlier],
        )
        if not drawing.strata:
            return result
        return replace(result, remarks=(*result.remarks, f"strata: {drawing.strata}"))

    def answer(
        self, query: Query, infrastructure: Infrastructure, known: Known, drawing: Drawing
    ) -> Answer:
        """Return the plans as far as was measured in the drawing's order; errors as `search`."""
        strategy, confidence = self.settings.strategy, self.settings.margin_confidence
        rule = self.rule(drawing)
        return answer(self._own(query), infrastructure, known, strategy, rule, confidence)

    def every_plan(
        self, query: Query, infrastructure: Infrastructure, known: Known, drawing: Drawing
    ) -> Sequence[Plan]:
        """Return the plans that `answer` chooses among, of every configuration; errors alike."""
        strategy, confidence = self.settings.strategy, self.settings.margin_confidence
        rule = self.rule(drawing)
        own = self._own(query)
        return evaluated(own, infrastructure, known, strategy, rule, confidence).plans

    def _own(self, query: Query) -> Query:
        """Return the query as planned by this planner's method, which may allocate otherwise."""
        return query if self.method is None else replace(query, planning=self.method)


def planner_of(method: PlanningMethod) -> Planner:
    """Return the planner of a method's parts."""
    settings = SearchSettings(strategy=_strategy(method.strategy), patience=PATIENCE)
    if goes_to_the_end(method):
        settings = to_the_end(settings)
    stopping = None
    if method.stopping is not None:
        settings = replace(settings, margin_confidence=PUBLISHED_MARGIN_CONFIDENCE)
        stopping = partial(stopping_rule, method.stopping)
    return Planner(
        settings=settings,
        stopping=stopping,
        sampling=sampling_of(method.sampling),
        most_earlier=most_earlier(method),
        method=method,
    )


def to_the_end(settings: SearchSettings) -> SearchSettings:
    """Return settings of a search that limits end, or that nothing is left to measure.

    As published (Circinus 4.2, algorithm 1): neither vain configurations nor models end it.
    """
    return replace(settings, patience=None, minimum=None, infeasible_below=0.0)


def stopping_rule(name: str, drawing: Drawing) -> StoppingRule:
    """Return the rule of a name, of `STOPPING`, for a drawing; InvalidInput if there is none."""
    checks.among("planning.stopping", name, _STOPPING)
    return _STOPPING[name](drawing)


def sampling_of(name: str) -> Sampling:
    """Return the way to draw inputs of a name, of `SAMPLING`; InvalidInput if there is none."""
    checks.among("planning.sampling", name, _SAMPLING)
    return _SAMPLING[name]


def _strategy(name: str) -> StrategyFactory:
    if name == "cmbo":
        # Imported when asked for: what it fits its models with takes seconds to load.
        from circinus.planner.strategy.cmbo import Cmbo

        return Cmbo
    return _STRATEGIES[name]


_STRATEGIES: Mapping[str, StrategyFactory] = {
    "multi_fidelity": MultiFidelity,
    "random": random_search,
    "exhaustive": exhaustive_search,
}
