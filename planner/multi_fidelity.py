"""The product's own strategy: chooses a configuration and on how many inputs to measure it.

Every proposal is the one with the largest chance per second: the chance that the
configuration will have been shown to meet the SLOs once it has met n' inputs, over the
seconds that this takes beyond what a prefix cache holds, n' chosen with it (`planner.looking`).
So a bad region is left after a few inputs, and only what is about to be announced is measured on
many. After the first plan the chance is weighted by what a cheaper plan would save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, log

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from pipelines.evaluation import Verdict
from pipelines.latency import Work
from pipelines.profile import FloatArray
from planner.easiness import Easiness
from planner.hearing import Hearings
from planner.knob_process import KnobKernel, KnobProcess, correlations
from planner.looking import Look, LookAhead
from planner.multi_fidelity_settings import MultiFidelitySettings
from planner.operator_seconds import SecondsModel
from planner.recalling import Recalled, recalled
from planner.scores import Increment, NoiseModel, increment, learnt, score_variance, worth
from planner.space import candidates, indices_of
from planner.spread import PooledSpread, lineage_cells
from planner.strategy import Observation, Proposal, Setting

_STEP_PART = 8  # of the inputs met: what is known well takes more to move
_OTHER_OWN, _OTHER_SHIFT, _BETWEEN = 0.05, 0.002, 0.003
"""How accuracies differ between queries: see `KnobKernel.own` and `shift`; variance of the mean of
a configuration between them."""
_HARDLY = 0.01  # chance at which the last configurations that may be measured are left
_COST_DEVIATION = 0.4  # of the log of costs: shares come in steps, and caution raises them
_UNSURE, _LEARNT_FROM = 1.3, 100
"""Times the variance of accuracies: hyper-parameters and noise are guesses that the process takes
for known. Truth lay 1.1 to 1.3 deviations about its predictions; and 1.6 costs a tenth more. Where
so many configurations are recalled, hyper-parameters are learnt from them and no guesses."""
_TINY = 1e-12
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class MultiFidelityFactory:
    """Makes `MultiFidelity` strategies with the same settings."""

    settings: MultiFidelitySettings = field(default_factory=MultiFidelitySettings)

    def __call__(self, setting: Setting, rng: np.random.Generator) -> MultiFidelity:
        """Give a strategy that has seen nothing."""
        return MultiFidelity(setting, rng, self.settings)


class MultiFidelity:
    """A `planner.strategy.Strategy`."""

    def __init__(
        self, setting: Setting, rng: np.random.Generator, settings: MultiFidelitySettings
    ) -> None:
        self._setting = setting
        self._slo = setting.slo
        self._settings = settings
        pool = candidates(setting.space, rng, limit=settings.candidates)
        earlier = recalled(setting.history, setting.space) if settings.history else ()
        drawn = set(pool.numbers)
        asked = dict.fromkeys((*(one.number for one in earlier), *setting.numbers))
        self._numbers = (*pool.numbers, *(number for number in asked if number not in drawn))
        self._whole = pool.whole
        self._position = {number: i for i, number in enumerate(self._numbers)}
        self._knobs = indices_of(setting.space, self._numbers)
        m = len(self._numbers)
        self._inputs = np.zeros(m, dtype=np.int64)
        self._unknown = np.ones(m, dtype=np.bool_)  # neither failed nor measured on all inputs
        self._tried = np.zeros(m, dtype=np.bool_)
        self._scores: dict[int, FloatArray] = {}
        self._increments: list[Increment] = []
        self._easiness = Easiness(setting.population)
        self._noise = NoiseModel() if settings.paired else NoiseModel(shared=0.0, near=0.0)
        self._accuracy = _accuracy_process(setting, self._knobs, ordered=settings.ordered)
        self._seconds = SecondsModel(
            setting.scene,
            setting.placements,
            self._knobs,
            setting.population,
            structured=settings.structured,
            heaviness=settings.heaviness,
        )
        self._hearings = Hearings(
            self._knobs,
            part=settings.hearings if settings.fidelities else 0.0,
            enough=min(settings.minimum, setting.population),
            step=settings.step,
        )
        self._prices: dict[int, tuple[float, bool]] = {}  # of what is proposed; is it a hearing
        self._recalled = [self._position[one.number] for one in earlier]
        if earlier:
            self._recall(earlier)
        self._refit_at = 2
        self._spread = PooledSpread()
        self._waiting: int | None = None  # would be announced if the scout had met enough
        self._looked: Look | None = None
        self._best_cost: float | None = None
        self._order = rng.permutation(m)
        self._ahead = LookAhead(slo=setting.slo, population=setting.population, settings=settings)
        self._values_seen = [np.zeros(r, dtype=np.bool_) for r in setting.space.radices]

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Give the configuration and the inputs with the largest value per second.

        What is under way is left out, and what it pays for is paid.
        """
        left = self._open(under_way)
        if not left.any():
            return None
        if not self._increments and not self._recalled:
            position = next(int(p) for p in self._order if left[p])
            return Proposal(number=self._numbers[position], inputs=1)
        if self._waiting is not None and self._unknown[self._waiting]:
            return None if under_way else self._scouting(self._waiting)
        look = self._look(under_way)
        weight = self._log_affordable(look) + self._log_saving(look)
        utility, inputs = self._ahead.valued(look, np.flatnonzero(left), weight)
        if self._best_cost is not None:
            utility = np.where(utility > self._log_price, utility, -inf)
        best = int(np.argmax(utility))
        if utility[best] == -inf or self._is_over(look):
            return None
        wanted = best, self._next_inputs(best, int(inputs[best]))
        in_time = look.seconds.log_latency <= log(self._slo.latency_s)
        price = partial(self._ahead.seconds, look)
        # One hearing is enough among several proposals.
        value = np.where(in_time, utility, -inf)
        hearing = None if under_way else self._hearings.due(value, price)
        row, n = hearing or wanted
        number = self._numbers[row]
        self._prices[number] = price(row, n), hearing is not None
        return Proposal(number=number, inputs=n, chance=self._chance(look))

    def observe(self, number: int, seen: Observation | None) -> None:
        """Take in a measurement; a failed one only ends the configuration's candidacy."""
        row = self._position[number]
        self._tried[row] = True
        seconds, hearing = self._prices.pop(number, (0.0, False))
        self._hearings.paid(seconds, hearing=hearing)
        if seen is None:
            self._unknown[row] = False
            return
        for knob, value in enumerate(self._knobs[row]):
            self._values_seen[knob][value] = True
        self._hearings.met(row, seen.inputs)
        self._learn(row, seen)
        self._best_cost = seen.best_cost
        if seen.inputs >= self._setting.population:
            self._unknown[row] = False

    @property
    def _limited(self) -> bool:
        """Whether no further configuration may be measured."""
        most = self._setting.scene.query.limits.configurations
        return most is not None and int(self._tried.sum()) >= most

    def _open(self, under_way: Sequence[Proposal] = ()) -> npt.NDArray[np.bool_]:  # (C,)
        """Give where there is something left to learn that limits let one measure."""
        left = self._unknown & self._tried if self._limited else self._unknown.copy()
        left[[self._position[proposal.number] for proposal in under_way]] = False
        return left

    def _recall(self, earlier: Sequence[Recalled]) -> None:
        means = np.array([one.accuracy for one in earlier])
        inputs = np.array([one.inputs for one in earlier], dtype=float)
        self._accuracy.recall(
            self._recalled,
            means,
            score_variance(means, self._noise.part) / inputs + _BETWEEN,
            own=_OTHER_OWN,
            shift=_OTHER_SHIFT,
        )
        self._seconds.recall(self._recalled, earlier)
        for row, one in zip(self._recalled, earlier, strict=True):
            self._hearings.met(row, one.inputs)

    def _learn(self, row: int, seen: Observation) -> None:
        self._looked = None
        before = self._scores.get(row, np.zeros(0))
        self._scores[row] = seen.scores
        self._inputs[row] = seen.inputs
        configuration = self._setting.space.configuration(self._numbers[row])
        self._spread.add(lineage_cells(self._setting.scene.graph, configuration), seen.work)
        if not len(before):  # more inputs seldom change where a configuration is best
            self._seconds.consider(seen.work)
        self._seconds.observe(row, seen.work, seen.latency_s)
        if seen.inputs > len(before):
            self._easiness.add(len(before), seen.scores[len(before) :])
            deviation = float(self._deviations([row], [(len(before), seen.inputs)])[0])
            population = self._setting.population
            step = increment(row, before, seen.scores, population, deviation=deviation)
            self._increments.append(step)
            apart = self._apart([row], [i.row for i in self._increments])[0]
            self._accuracy.add(row, step.value, self._noise.covariances(self._increments, apart))
        if len(self._increments) >= self._refit_at:
            self._refit_at = int(self._settings.refit_growth * self._refit_at) + 1
            self._refit()

    def _refit(self) -> None:
        rows = list(self._scores)
        means = np.asarray(self._accuracy.mean)
        noise = learnt([self._scores[row] for row in rows], means[rows], self._apart(rows, rows))
        self._noise = noise if self._settings.paired else replace(noise, shared=0.0, near=0.0)
        met = [step.row for step in self._increments]
        spans = [(step.since, step.until) for step in self._increments]
        deviations = self._deviations(met, spans).tolist()
        self._increments = [
            replace(step, deviation=deviation)
            for step, deviation in zip(self._increments, deviations, strict=True)
        ]
        self._accuracy.refit(self._noise.matrix(self._increments, self._apart(met, met)))
        self._seconds.refit()

    def _deviations(self, rows: Sequence[int], spans: Sequence[tuple[int, int]]) -> FloatArray:
        """Give how far single scores of configurations on those inputs are off, shape (n,)."""
        means = np.asarray(self._accuracy.mean)
        variance = score_variance(means[rows], self._noise.part)
        if not (self._settings.paired and self._settings.easiness):
            return np.sqrt(variance)
        met = np.flatnonzero(self._inputs)
        common = self._noise.common
        told = self._easiness.told(spans, means[rows], self._inputs[met], means[met], common)
        return np.sqrt(variance / told)

    def _apart(self, rows: Sequence[int], others: Sequence[int]) -> FloatArray:
        """Give in how many knobs configurations differ, shape (rows, others)."""
        unlike = np.zeros((len(rows), len(others)))
        for own, other in zip(self._knobs[rows].T, self._knobs[others].T, strict=True):
            unlike += own[:, None] != other
        return unlike

    def _look(self, under_way: Sequence[Proposal] = ()) -> Look:
        if self._looked is None:
            guessed = len(self._recalled) < _LEARNT_FROM
            widened = (_UNSURE if guessed else 1.0) * max(1.0, self._accuracy.surprise)
            self._looked = Look(
                met=self._inputs,
                mean=self._accuracy.mean,
                variance=self._accuracy.variance * widened,
                part=self._noise.part,
                seconds=self._seconds.predict(),
                spread2=self._seconds.spread2(),
            )
        if not under_way:
            return self._looked
        paid = self._looked.seconds.paid
        for proposal in under_way:
            inputs = proposal.inputs or self._setting.population
            paid = self._seconds.paid_once(paid, self._position[proposal.number], inputs)
        return replace(self._looked, seconds=replace(self._looked.seconds, paid=paid))

    def _log_saving(self, look: Look) -> FloatArray:  # (C,)
        """Give the log of the US dollars that a cheaper plan is expected to save; 0: none yet."""
        if self._best_cost is None:
            return np.zeros(len(look.mean))
        saved = look.seconds.expected_saving(self._best_cost)
        duration = self._setting.scene.query.duration_s or self._settings.horizon_s
        with np.errstate(divide="ignore"):
            return np.log(saved * duration / _SECONDS_PER_HOUR)

    @property
    def _log_price(self) -> float:
        """Log of US dollars per second of profiling: the dearest tier's, of 1 an hour if free."""
        tiers = self._setting.scene.infrastructure.tiers
        price = max((tier.price_usd_per_hour for tier in tiers), default=0.0) or 1.0
        return log(price / _SECONDS_PER_HOUR)

    def _next_inputs(self, row: int, wanted: int) -> int:
        settings, met = self._settings, int(self._inputs[row])
        if not settings.fidelities:
            return max(wanted, met + 1)
        step = settings.first if met == 0 else max(settings.step, met // _STEP_PART)
        return max(min(wanted, met + step), met + 1)

    def judged(self, number: int, seen: Observation) -> Verdict:
        """Give ABOVE when both the models and the configuration's own scores say so."""
        row, settings = self._position[number], self._settings
        if seen.inputs < min(settings.minimum, self._setting.population):
            return Verdict.UNDECIDED
        if not self._accurate(row, seen):
            return Verdict.UNDECIDED
        if seen.latency_s > self._slo.latency_s:
            return Verdict.UNDECIDED
        if self._spread.scouted < settings.to_scout(self._setting.population):
            self._waiting = row
            return Verdict.UNDECIDED
        upper = seen.latency_s * self._upper_ratio(seen.work)
        return Verdict.ABOVE if upper <= self._slo.latency_s else Verdict.UNDECIDED

    def _accurate(self, row: int, seen: Observation) -> bool:
        """Give whether both the models and the configuration's own scores say so."""
        if seen.inputs >= self._setting.population:  # then the mean is known
            return seen.accuracy >= self._slo.accuracy
        look = self._look()
        deviation = float(np.sqrt(look.variance[row]))
        own = score_variance(np.array(seen.accuracy), self._noise.part)
        own = own / worth(np.array(float(seen.inputs)), self._setting.population)
        return bool(
            float(look.mean[row]) - self._ahead.z * deviation >= self._slo.accuracy
            and seen.accuracy - (self._ahead.z - 0.5) * float(np.sqrt(own)) >= self._slo.accuracy
        )

    def _upper_ratio(self, work: Work) -> float:
        scene = self._setting.scene
        anywhere = np.zeros(len(scene.graph.operators), dtype=np.int64)
        population = self._setting.population
        return self._spread.upper_ratio(scene, anywhere, work, population, self._ahead.z_latency)

    def _scouting(self, waiting: int) -> Proposal:
        """Give the cheapest way to meet enough inputs; `waiting` itself once they are met."""
        scouted = self._settings.to_scout(self._setting.population)
        if self._spread.scouted >= scouted:
            self._waiting = None
            return self._again(waiting, int(self._inputs[waiting]) + 1)
        seconds = self._look().seconds
        rows = np.union1d(np.flatnonzero(self._inputs > 0), self._recalled).astype(np.int64)
        left = np.maximum(scouted - seconds.paid[rows], 0)
        best = rows[np.argmin((seconds.operator_s[rows] * left).sum(axis=1))]
        return self._again(int(best), scouted)

    def _again(self, row: int, inputs: int) -> Proposal:
        return Proposal(number=self._numbers[row], inputs=inputs)

    def _is_over(self, look: Look) -> bool:
        """Give whether the last configurations that may be measured are hardly worth it."""
        return self._limited and self._chance_of(self._open(), look, widened=1.0) < _HARDLY

    def _chance(self, look: Look) -> float | None:
        """Give a bound on the chance of any other; None before every knob value was met.

        By Boole's inequality, deviations doubled: an infeasible query is worth a second look.
        """
        if not self._whole or not all(seen.all() for seen in self._values_seen):
            return None
        return self._chance_of(self._unknown, look, widened=2.0)

    def _chance_of(self, rows: npt.NDArray[np.bool_], look: Look, *, widened: float) -> float:
        above = look.mean - self._slo.accuracy
        accurate = log_ndtr(above / (widened * np.sqrt(look.variance)))
        ahead = log(self._slo.latency_s) - look.seconds.log_latency
        fast = log_ndtr(ahead / (widened * np.sqrt(look.seconds.log_variance + _TINY)))
        cheap = self._log_affordable(look, widened=widened)
        return min(float(np.exp((accurate + fast + cheap)[rows]).sum()), 1.0)

    def _log_affordable(self, look: Look, *, widened: float = 1.0) -> FloatArray:  # (C,)
        """Give the log of the chance that the cheapest deployment meets the cost SLO."""
        bound = self._slo.cost_usd_per_hour
        cost = look.seconds.share_cost
        priced = any(t.price_usd_per_hour > 0 for t in self._setting.scene.infrastructure.tiers)
        if bound is None or not priced:
            return np.zeros(len(cost))
        # Where latency is likely missed there is no cost: the latency SLO says so already.
        known = np.isfinite(cost)
        deviation = np.sqrt(look.seconds.log_variance + _COST_DEVIATION**2)
        with np.errstate(divide="ignore"):
            ahead = np.log(bound) - np.log(np.where(known, np.maximum(cost, _TINY), 1.0))
        return np.where(known, log_ndtr(ahead / (widened * deviation)), 0.0)


def _accuracy_process(
    setting: Setting, knobs: npt.NDArray[np.int64], *, ordered: bool
) -> KnobProcess:
    slots = setting.space.graph.slots
    count = sum(radix > 1 for radix in setting.space.radices)
    kernel = KnobKernel(
        mean=0.6,
        constant=0.03,
        effects=(0.05 / max(count, 1),) * count,
        interaction=0.012,
    )
    tables = correlations(
        setting.space.radices, tuple(ordered and bool(slot.knob.ordered) for slot in slots)
    )
    return KnobProcess(knobs, tables, kernel)
