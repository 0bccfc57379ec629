"""The product's own strategy: chooses a configuration and on how many inputs to measure it.

Every proposal is the one with the largest chance per second: the chance that the configuration
will have been shown to meet the SLOs once it has met n' inputs, over the seconds that this takes
beyond what a prefix cache holds, n' chosen with it (`planner.strategy.acquisition`). So a bad
region is left after a few inputs, and only what is about to be announced is measured on many.
After the first plan the chance is weighted by what a cheaper plan would save; once nothing is
worth that, what may belong to the front is finished (`planner.strategy.front`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from math import inf, log

import numpy as np

from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import BoolArray, FloatArray
from circinus.planner.deployment.costs import hourly
from circinus.planner.models.accuracy import Accuracies, AccuracyModel
from circinus.planner.models.history import recalled
from circinus.planner.models.latency_tail import LatencyTail, lineage_cells
from circinus.planner.models.operator_seconds import Seconds, SecondsModel, usd_per_s
from circinus.planner.strategy.acquisition import (
    Acquisition,
    MultiFidelitySettings,
    Predictions,
    chance_of,
    least_costs,
    log_affordable,
    log_allowed,
    log_fast,
    log_saving,
)
from circinus.planner.strategy.front import FrontCandidate, Openness, openness
from circinus.planner.strategy.protocol import Judgement, Measured, Proposal, SearchSetting
from circinus.planner.strategy.space import candidates, indices_of

_STEP_PART = 8  # of the inputs met: what is known well takes more to move
_FINISHING_PART = (
    2  # the same while the front is finished: what is left may well be measured whole
)
_DECISION_S = 1e-2  # about what weighing candidates anew takes
_NEVER = 1e-9  # chance of being in time at which nothing more is measured of what was run
_HARDLY = 0.01  # chance at which the last configurations that may be measured are left
_TINY = 1e-12
_SECONDS_PER_HOUR = 3600.0


class MultiFidelity:
    """A `planner.strategy.protocol.Strategy`."""

    def __init__(
        self,
        setting: SearchSetting,
        rng: np.random.Generator,
        settings: MultiFidelitySettings | None = None,
    ) -> None:
        self._setting = setting
        self._settings = settings = settings or MultiFidelitySettings()
        earlier = recalled(setting.history, setting.space) if settings.history else ()
        known = [setting.space.number(one.configuration) for one in earlier]
        self._pool = _Pool(setting, rng, settings.candidates, known)
        self._accuracy = AccuracyModel(
            setting.space,
            setting.population,
            self._pool.knobs,
            ordered=settings.ordered,
            paired=settings.paired,
            draws=setting.draws,
        )
        self._seconds = self._seconds_model()
        self._tail = LatencyTail()
        self._acquisition = Acquisition(
            slo=setting.with_slack.slo, population=setting.measurable, settings=settings
        )
        if earlier:
            rows = self._pool.recalled.tolist()
            self._accuracy.recall(rows, earlier)
            self._seconds.recall(rows, earlier)
        self._refit_at = 2
        self._predictions: Predictions | None = None
        self._best_cost: float | None = None
        self._works: dict[int, Work] = {}  # by row, as observed
        self._elsewhere = False  # whether they were observed in another setting

    def _seconds_model(self) -> SecondsModel:
        setting = self._setting
        return SecondsModel(
            setting.with_slack.context,
            setting.placements,
            self._pool.knobs,
            setting.runs,
            structured=self._settings.structured,
            callers=setting.callers,
        )

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Return the configuration and the inputs with the largest value per second.

        What is under way is left out, and what it pays for is paid.
        """
        pool = self._pool
        left = self._open(under_way)
        if not left.any():
            return None
        if not self._accuracy.observations and not len(pool.recalled):
            return Proposal(number=pool.numbers[pool.first(left)], inputs=1)
        predictions = self._predicted(under_way)
        weight = log_affordable(self._setting.context, predictions.seconds)
        if self._best_cost is not None:
            duration_s = self._setting.context.query.duration_s or self._settings.horizon_s
            weight = weight + log_saving(predictions.seconds, self._best_cost, duration_s)
        utility, inputs = self._acquisition.valued(predictions, np.flatnonzero(left), weight)
        if self._best_cost is not None:
            price = log(usd_per_s(self._setting.context))  # of a second of profiling
            utility = np.where(utility > price, utility, -inf)
        best = int(np.argmax(utility))
        if utility[best] == -inf and self._best_cost is not None:
            return None
        if utility[best] == -inf:  # no bound on cost that no deployment keeps is worth measuring
            return Proposal(number=pool.numbers[best], inputs=int(pool.met[best]) + 1, chance=0.0)
        # The last configurations that may be measured are left where they are hardly worth it.
        if self._limited and chance_of(self._setting, predictions, self._open()) < _HARDLY:
            return None
        goal = self._next_inputs(best, int(inputs[best]))
        return Proposal(number=pool.numbers[best], inputs=goal, chance=self._chance(predictions))

    def finishing(
        self, plans: Sequence[Plan], under_way: Sequence[Proposal] = ()
    ) -> Proposal | None:
        """Return the measurement that decides most of the front per second."""
        left, predictions = self._open(under_way), self._predicted(under_way)
        worth = np.where(left, self._openness(plans, predictions).worth, 0.0)
        if not worth.any():
            return None
        # All inputs finish a configuration; then, where operators draw, further draws do.
        once, every = self._setting.population, self._setting.measurable
        goals = np.where(predictions.met < once, once, every)
        best = int(np.argmax(worth / (self._acquisition.seconds_to(goals, predictions) + _TINY)))
        inputs = self._next_inputs(best, int(goals[best]), _FINISHING_PART)
        return Proposal(number=self._pool.numbers[best], inputs=inputs)

    def undecided(self, plans: Sequence[Plan]) -> int | None:
        """Return how many configurations may belong to the front; None: nothing was measured."""
        if not self._pool.met.any():
            return None
        predictions = self._predicted()
        if self._elsewhere and self._pool.unknown.any():
            predictions = replace(
                predictions,
                seconds=_relearnt(self._seconds_model(), self._setting, self._pool, self._works),
            )
        return int(self._openness(plans, predictions).undecided.sum())

    def observe(self, number: int, measured: Measured | None) -> None:
        """Learn a measurement; a failed one only ends the configuration's candidacy."""
        pool, context = self._pool, self._setting.context
        row = pool.position[number]
        is_new = not pool.met[row]
        pool.observe(row, None if measured is None else measured.scores)
        if measured is None:
            return
        self._predictions = None
        self._best_cost = measured.best_cost
        configuration = self._setting.space.configuration(number)
        self._tail.add(lineage_cells(context.graph, configuration), measured.work)
        if is_new:  # more inputs seldom change where a configuration is best
            self._seconds.consider(measured.work, configuration)
        self._seconds.observe(row, measured.work, measured.latency_s)
        self._works[row] = measured.work
        drawn = measured.profile.inputs if self._setting.draws else None
        self._accuracy.observe(row, measured.scores, drawn)
        if self._accuracy.observations >= self._refit_at or self._accuracy.is_out_of_date:
            self._refit_at = int(self._settings.refit_growth * self._refit_at) + 1
            self._accuracy.refit()
            self._seconds.refit()

    def judged(self, number: int, measured: Measured) -> Judgement:
        """Return the models' judgement, and whether a configuration's own scores agree."""
        row = self._pool.position[number]
        known = self._predicted().accuracies
        accuracy = known.estimate(row, measured.scores, self._setting.population)
        if self._setting.draws:  # how far draws differ is a guess more: both have to agree
            low, high = (
                min(accuracy.low, measured.accuracy.low),
                max(accuracy.high, measured.accuracy.high),
            )
            accuracy = replace(accuracy, low=low, high=high)
        return Judgement(enough=self._enough(row, measured, known), accuracy=accuracy)

    def under(self, setting: SearchSetting) -> MultiFidelity:
        """Return one for another setting: models of accuracy know no objective and no machine."""
        if self._accuracy.observations:
            self._predicted()  # once for all
        other = copy(self)
        other._setting, other._elsewhere = setting, True
        return other

    def _enough(self, row: int, measured: Measured, known: Accuracies) -> bool:
        settings, slo, population = self._settings, self._setting.slo, self._setting.population
        if (
            measured.inputs < min(settings.minimum, population)
            or measured.latency_s > slo.latency_s
        ):
            return False
        z, mean = self._acquisition.z, measured.accuracy.value
        drawn = mean if self._setting.draws else None
        sure = known.sure_of(row, measured.scores, population, z, drawn)
        # Where all inputs are met the mean is known, unless another draw gives another one.
        exact = measured.inputs >= population and not self._setting.draws
        if (mean if exact else sure) < slo.accuracy:
            return False
        context, z = self._setting.context, self._acquisition.z_latency
        anywhere = np.zeros(len(context.graph.operators), dtype=np.int64)
        ratio = self._tail.upper_ratio(context, anywhere, measured.work, self._setting.runs, z)
        return measured.latency_s * ratio <= slo.latency_s

    @property
    def _limited(self) -> bool:
        """Whether no further configuration may be measured."""
        most = self._setting.context.query.limits.configurations
        return most is not None and int(self._pool.tried.sum()) >= most

    def _open(self, under_way: Sequence[Proposal] = ()) -> BoolArray:  # (C,)
        """Return where there is something left to learn that limits let one measure."""
        pool = self._pool
        left = pool.unknown & pool.tried if self._limited else pool.unknown.copy()
        left[[pool.position[proposal.number] for proposal in under_way]] = False
        return left

    def _openness(self, plans: Sequence[Plan], predictions: Predictions) -> Openness:
        setting, pool = self._setting, self._pool
        known = FrontCandidate(
            mean=predictions.accuracies.mean,
            variance=predictions.accuracies.variance,
            least_cost=least_costs(setting.context, predictions.seconds),
            allowed=np.exp(log_allowed(setting.context, predictions)),
            unknown=pool.unknown,
            met=pool.met.astype(float),
            scored=pool.scored,
            population=setting.measurable,
        )
        rows = [pool.position[setting.space.number(plan.configuration)] for plan in plans]
        costs = [hourly(setting.context, plan) for plan in plans]
        return openness(known, plans, costs, rows, setting.slo.accuracy)

    def _predicted(self, under_way: Sequence[Proposal] = ()) -> Predictions:
        if self._predictions is None:
            self._predictions = Predictions(
                met=self._pool.met,
                accuracies=self._accuracy.predict(),
                seconds=self._seconds.predict(),
                spread2=self._seconds.spread2(),
            )
        if not under_way:
            return self._predictions
        paid = self._predictions.seconds.paid
        for proposal in under_way:
            inputs = proposal.inputs or self._setting.measurable
            paid = self._seconds.paid_once(paid, self._pool.position[proposal.number], inputs)
        return replace(self._predictions, seconds=replace(self._predictions.seconds, paid=paid))

    def _next_inputs(self, row: int, wanted: int, part: int = _STEP_PART) -> int:
        settings, met = self._settings, int(self._pool.met[row])
        if not settings.fidelities:
            return max(wanted, met + 1)
        if met == 0:
            return min(wanted, settings.first)
        # Of few inputs every one may decide; fewer would take longer to weigh than to run.
        input_s = float(self._predicted().seconds.hoped_s[row].sum())
        quick = int(_DECISION_S / max(input_s, _TINY))  # inputs run while one decision is made
        least = max(1, met // _STEP_PART, quick)
        step = max(settings.step, met // part, least)
        return min(max(min(wanted, met + step), met + least), self._setting.measurable)

    def _chance(self, predictions: Predictions) -> float | None:
        """Return a bound on the chance of any other; None before every knob value was met.

        By Boole's inequality, deviations doubled: an infeasible query is worth a second look. It
        is 0 where every configuration was run and all are far too slow.
        """
        pool = self._pool
        if not pool.whole or not pool.all_values_met:
            return None
        if _all_are_slow(self._setting, pool, predictions, self._settings.minimum):
            return 0.0
        # None is ruled out by the models alone, however little they give it.
        return max(chance_of(self._setting, predictions, pool.unknown, widened=2.0), _TINY)


def _relearnt(
    model: SecondsModel, setting: SearchSetting, pool: _Pool, works: Mapping[int, Work]
) -> Seconds:
    """Return predictions of a new model that observed works, by row of the pool, in a setting."""
    configurations = [setting.space.configuration(pool.numbers[row]) for row in works]
    latencies = setting.least_latencies(configurations, list(works.values())).tolist()
    for (row, work), configuration, latency_s in zip(
        works.items(), configurations, latencies, strict=True
    ):
        model.consider(work, configuration)
        model.observe(row, work, latency_s)
    model.refit()
    return model.predict()


def _all_are_slow(
    setting: SearchSetting, pool: _Pool, predictions: Predictions, minimum: int
) -> bool:
    """Return whether every configuration was run, and none is in time on any machines.

    Only all examples show the seconds of future inputs, whatever the predictions are.
    """
    if setting.is_ahead or (pool.met < min(minimum, setting.population)).any():
        return False
    fast = np.exp(log_fast(setting.context, predictions, widened=2.0))
    return bool(fast[pool.unknown].sum() < _NEVER)


class _Pool:
    """The configurations that are chosen from, C of them, and what they have met."""

    def __init__(
        self, setting: SearchSetting, rng: np.random.Generator, limit: int, earlier: list[int]
    ) -> None:
        drawn = candidates(setting.space, rng, limit=limit)
        there = set(drawn.numbers)
        more = dict.fromkeys((*earlier, *setting.numbers))
        self.numbers = (*drawn.numbers, *(number for number in more if number not in there))
        self.whole = drawn.whole  # all that there are, but for what was added to a drawn part
        self.position = {number: i for i, number in enumerate(self.numbers)}  # row of each
        self.knobs = indices_of(setting.space, self.numbers)  # value indices, (C, knobs)
        # Rows that earlier queries measured.
        self.recalled = np.array([self.position[number] for number in earlier], dtype=np.int64)
        size = len(self.numbers)
        self.met: IndexArray = np.zeros(size, dtype=np.int64)  # inputs
        self.scored = np.zeros(size)  # sum of their scores
        self.unknown = np.ones(size, dtype=np.bool_)  # neither failed nor measured on all inputs
        self.tried = np.zeros(size, dtype=np.bool_)  # measured at all
        self._order = rng.permutation(size)
        self._measurable = setting.measurable
        self._radices = setting.space.radices

    def first(self, left: BoolArray) -> int:
        """Return the first row in a random order among those left, shape (C,), at least one."""
        return next(int(row) for row in self._order if left[row])

    def observe(self, row: int, scores: FloatArray | None) -> None:
        """Record the scores on all inputs that a row has met; None: it failed."""
        self.tried[row] = True
        self.unknown[row] = scores is not None and len(scores) < self._measurable
        if scores is not None:
            self.met[row], self.scored[row] = len(scores), scores.sum()

    @property
    def all_values_met(self) -> bool:
        """Whether every value of every knob was met."""
        columns = self.knobs[self.met > 0].T
        return all(len(set(c.tolist())) == k for c, k in zip(columns, self._radices, strict=True))
