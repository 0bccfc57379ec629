"""What a search strategy is: it proposes configurations and observes their measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, Self

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import means_of_inputs, measurable
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import FloatArray, Profile
from circinus.pipelines.model.query import PlanningContext, Query, fitted
from circinus.pipelines.model.slo import Estimate, HoldsFor, Slo
from circinus.planner.deployment.callers import Called, Callers
from circinus.planner.deployment.placement import MOST_PLACEMENTS, Placements, placements_of
from circinus.planner.deployment.prediction import least_latencies
from circinus.planner.deployment.slices import with_own_slices
from circinus.planner.models.ahead import MOST_EXAMPLES, accuracy_needed
from circinus.planner.models.history import QueryRecord, within

_MARGIN = 1.4
"""Power of what requests may be off by: plans stand at a 99 % interval of that and of what inputs
differ by, and calibrations state 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSetting:
    """What is known before anything is measured: all that a strategy and plans start from."""

    space: ConfigurationSpace
    context: PlanningContext
    placements: Placements  # all that there are, of any configuration
    population: int  # number of inputs, `>= 1`
    # What earlier queries on the same pipeline measured, the newest first.
    history: tuple[QueryRecord, ...] = ()
    # Of configurations that are candidates in any case, however few others are drawn.
    numbers: tuple[int, ...] = ()
    # Least accuracy on all examples that shows the one wanted ahead; None: they must have it.
    needed: float | None = None
    callers: Callers | None = None  # who calls what; None: nobody anything

    @classmethod
    def of(
        cls,
        query: Query,
        graph: PipelineGraph,
        infrastructure: Infrastructure,
        population: int,
        *,
        most_placements: int = MOST_PLACEMENTS,
        history: Sequence[QueryRecord] = (),
    ) -> SearchSetting:
        """Return the setting of a query; of its history what the query allows.

        InvalidInput as `fitted` and `planner.deployment.placement.placements` do.
        """
        context = fitted(query, graph, infrastructure)
        space, own = ConfigurationSpace(context.graph), context.infrastructure
        callers = Callers.of(context.graph, own, query.restrictions)
        spots = placements_of(callers, context.graph, own, most=most_placements)
        if query.planning.own_slices:
            context, callers, spots = with_own_slices(context, callers, spots)
        needed = None
        # deviates: future-inputs
        if query.slo.holds_for is HoldsFor.FUTURE:  # all of them where none is known to do
            least = accuracy_needed(query.slo.accuracy, population)
            needed = 1.0 if least is None else least
        return cls(
            space=space,
            context=context,
            placements=spots,
            population=population,
            history=within(history, space),
            needed=needed,
            callers=callers if callers.any_calls else None,
        )

    def called(self, configuration: Configuration) -> Called | None:
        """Return what operators call under a configuration; None: nothing."""
        called = None if self.callers is None else self.callers.called(configuration)
        return called if called and any(called) else None

    def placements_of(self, configuration: Configuration) -> Placements:
        """Return those of `placements` on which a configuration can be."""
        if self.callers is None:
            return self.placements
        return self.placements.where(self.callers, self.callers.called(configuration))

    def least_latencies(
        self, configurations: Sequence[Configuration], works: Sequence[Work]
    ) -> FloatArray:  # (C,)
        """Return the `Measured.latency_s` of each of several configurations with its work."""
        if self.callers is None:
            return least_latencies(self.context, self.placements, works)
        least, groups = np.zeros(len(works)), dict[Called, list[int]]()
        for i, configuration in enumerate(configurations):
            groups.setdefault(self.callers.called(configuration), []).append(i)
        for called, mine in groups.items():
            spots = self.placements.where(self.callers, called)
            least[mine] = least_latencies(self.context, spots, [works[i] for i in mine])
        return least

    @property
    def draws(self) -> bool:
        """Whether an operator draws."""
        return self.context.graph.draws

    @property
    def measurable(self) -> int:
        """How many measurements of a configuration there are: inputs, and draws of them."""
        return measurable(self.context.graph, self.population)

    @property
    def runs(self) -> int:
        """How many runs those measured are drawn from, as far as single ones differ."""
        return MOST_EXAMPLES if self.draws else self.population

    @property
    def slo(self) -> Slo:
        """The query's objectives, as the examples must show them."""
        slo, needed = self.context.slo, self.needed
        return slo if needed is None else replace(slo, accuracy=needed)

    @property
    def is_ahead(self) -> bool:
        """Whether the objectives must hold for future inputs."""
        return self.context.slo.holds_for is HoldsFor.FUTURE

    @property
    def with_slack(self) -> SearchSetting:
        """The same with a latency that leaves slack for what requests are off by predictions.

        Objectives that hold for future inputs need it, by the factor of the calibrations.
        """
        slo, tiers = self.context.slo, self.context.infrastructure.tiers
        off_by = min((t.off_by for t in tiers if t.machines or t.remote), default=1.0)
        if not self.is_ahead or off_by == 1:
            return self
        return self.with_slo(replace(slo, latency_s=slo.latency_s / off_by**_MARGIN))

    def with_slo(self, slo: Slo) -> SearchSetting:
        """Return the same with other objectives."""
        query = replace(self.context.query, slo=slo)
        return replace(self, context=replace(self.context, query=query))


class Ending(StrEnum):
    """Why measuring a configuration ended."""

    ACCURATE = "accurate"  # the mean score is decided to be at least the SLO
    INACCURATE = "inaccurate"  # it is decided to be below
    SLOW = "slow"  # latency is clearly violated on every placement; accuracy was not decided
    PARTIAL = "partial"  # it met as many inputs as requested; accuracy is not decided
    CUT_OFF = "cut off"  # a limit or a cancellation came first


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """A configuration that gave a score on every input it met: what a strategy observes."""

    number: int
    configuration: Configuration
    ending: Ending
    # finite, in the evaluator's order of inputs and their draws, shape (n,), n >= 1
    scores: FloatArray
    work: Work  # on the same inputs
    accuracy: Estimate  # mean score, with the interval of these scores alone
    # Least latency over placements at full shares, in the SLO's statistic, waits for copies
    # included, `>= 0`; above the SLO when the machines do not hold the copies.
    latency_s: float
    profile: Profile  # all that is known of it
    # US dollars per hour of the cheapest plan announced so far of the other configurations, see
    # `planner.deployment.costs.hourly`; None: there is none.
    best_cost: float | None = None

    def __post_init__(self) -> None:
        checks.probability("measured.accuracy", self.accuracy.value)
        checks.non_negative("measured.latency_s", self.latency_s)
        checks.non_negative("measured.reference_s", self.reference_s)

    @property
    def inputs(self) -> int:
        """n, on how many inputs it rests, each draw counted."""
        return len(self.scores)

    @property
    def expected(self) -> FloatArray:
        """What each input scored, on average over its draws, shape (inputs met,)."""
        return means_of_inputs(self.profile.inputs, self.scores)

    @property
    def reference_s(self) -> float:
        """Mean operator seconds that one input takes on the reference machine."""
        return float(self.work.operator_s.sum(axis=0).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The configuration to measure next."""

    number: int  # of the configuration
    # On how many inputs in all, those it met before included, `>= 1`; None: as many as the
    # search's stopping rule needs to decide.
    inputs: int | None = None
    # What the strategy takes the probability to be that any configuration not announced yet meets
    # the SLOs, at most; None when unknown.
    chance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is thought of a configuration that was measured."""

    enough: bool  # whether it is accurate enough for its plans to be announced
    accuracy: Estimate | None = None  # None: by its own scores


class Strategy(Protocol):
    """Decides which configuration is measured next. Keeps the state of one search.

    Every proposal is observed, in the order of the proposals. A number is proposed again only with
    more inputs than it has met. Equal settings, generators and calls give equal proposals.
    """

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Return the next configuration, none of those under way: proposed and not observed yet.

        None when there is nothing left worth measuring, or nothing before what is under way is
        observed.
        """

    def observe(self, number: int, measured: Measured | None) -> None:
        """Learn the measurement of a configuration; None: it failed."""

    def judged(self, number: int, measured: Measured) -> Judgement:
        """Return whether a configuration is accurate enough, by all that was observed.

        This decides alone: a strategy without a judgement of its own returns that of the search's
        stopping rule. The configuration did not fail, and this is the latest of it.
        """

    def finishing(
        self, plans: Sequence[Plan], under_way: Sequence[Proposal] = ()
    ) -> Proposal | None:
        """Return what to measure to know the front, none of what is under way, with its inputs.

        The plans are all that were announced. None: the front is known, or the strategy ends with
        the cheapest plan.
        """

    def undecided(self, plans: Sequence[Plan]) -> int | None:
        """Return how many configurations may belong to the front, or may not, by what is known.

        None: the strategy cannot count them.
        """

    def under(self, setting: SearchSetting) -> Strategy:
        """Return one that judges all observations by other objectives or machines.

        Space, population and numbers are the same. Only its judgements are used.
        """


class Ruled:
    """For strategies that leave the decision to the search's stopping rule."""

    def judged(self, number: int, measured: Measured) -> Judgement:
        """Return what the stopping rule decided."""
        return Judgement(enough=measured.ending is Ending.ACCURATE)

    def finishing(
        self, plans: Sequence[Plan], under_way: Sequence[Proposal] = ()
    ) -> Proposal | None:
        """Return None: the search ends with the cheapest plan."""
        return None

    def undecided(self, plans: Sequence[Plan]) -> int | None:
        """Return None: a stopping rule knows of one configuration only."""
        return None

    def under(self, setting: SearchSetting) -> Self:
        """Return itself: it has learnt nothing that another setting changes."""
        return self


StrategyFactory = Callable[[SearchSetting, np.random.Generator], Strategy]
"""Makes the strategy of one search, one without observations."""
