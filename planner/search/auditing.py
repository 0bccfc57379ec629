"""Searching by scores that may be wrong, and promising what labels confirm.

A judge's scores lead a search; labels decide the accuracy of a plan. So a strategy observes
scores corrected by all labels so far. What it takes to be accurate enough is measured on all
inputs and audited: labels are requested until they decide, or none are left. A few come first,
or a judge that is too strict would leave nothing to audit. The one rule: no word of the strategy's
on an accuracy goes further than here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Protocol

import numpy as np

from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import BoolArray, FloatArray, Profile
from circinus.pipelines.model.slo import Estimate
from circinus.planner.search.failing import standing
from circinus.planner.strategy.protocol import (
    Ending,
    Judgement,
    Measured,
    Proposal,
    SearchSetting,
    Strategy,
)

_PILOTED = 16  # inputs that a configuration has met whose scores are looked into first
_LAST_CHANCE = (
    0.05  # chance of any other configuration below which the best one is looked at closely
)
_LOOKS = ((0.0, 1.0), (0.0, 1.0, 1.0, 1.0))  # scores by whose worth corrections are compared
_MOVED = 0.02  # of that worth: the strategy observes scores anew when it moved further


class Audit(Protocol):
    """Knows better than scores what an accuracy is."""

    @property
    def left(self) -> int:
        """How much more it may find out, `>= 0`; 0: nothing."""

    def accuracy(
        self, profile: Profile, included: BoolArray, *, population: int, bound: float | None
    ) -> Estimate:
        """Return the accuracy of a configuration over a population, with an interval of 95 %.

        Of the profile's inputs, in the order drawn, the included ones count, shape (n,); a
        failed one among them scores 0. With a bound it may find out more, which may take long,
        until the interval is on one side of it.
        """

    def pilot(self, profile: Profile, included: BoolArray) -> None:
        """Find out a little of how far the scores of a first configuration are off."""

    def corrected(self, scores: FloatArray) -> FloatArray:
        """Return what scores, shape (n,), are worth by what is known so far: in [0, 1] as well."""


def audited(audit: Audit, profile: Profile, population: int, bound: float | None) -> Estimate:
    """Return the accuracy of a counted profile: inputs that were left out are no part of it."""
    included = standing(profile)
    count = population - int((~included).sum())
    return audit.accuracy(profile, included, population=count, bound=bound)


# deviates: judged-scores
class Audited:
    """A strategy whose word on accuracies is an audit's, see `Strategy`."""

    def __init__(
        self,
        make: Callable[[], Strategy],  # a new one, without observations; equal every time
        audit: Audit,
        setting: SearchSetting,
    ) -> None:
        self._make, self._audit, self._setting = make, audit, setting
        self._strategy, self._worth = make(), self._worth_of_looks()
        self._observed: dict[int, Measured | None] = {}
        self._pending: dict[int, None] = {}  # to be measured on all inputs
        self._asks = self._pilots = True
        self._good: set[int] = set()  # accurate enough when they were judged last
        self._looked: set[int] = set()  # audited when the strategy gave up

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        """Return what is to be audited, on all inputs, then what the strategy proposes."""
        busy = {proposal.number for proposal in under_way}
        while True:
            self._renew()
            for number in self._pending:
                if number not in busy:
                    return Proposal(number=number, inputs=self._setting.population)
            proposal = self._strategy.propose(under_way)
            chance = 0.0 if proposal is None else proposal.chance
            gives_up = chance is not None and chance < _LAST_CHANCE
            if under_way or not gives_up or not self._looks_closer():
                return proposal

    def observe(self, number: int, measured: Measured | None) -> None:
        """Observe a measurement, its scores corrected; None: it failed."""
        self._pending.pop(number, None)
        self._observed[number] = measured
        self._strategy.observe(number, None if measured is None else self._corrected(measured))

    def judged(self, number: int, measured: Measured) -> Judgement:
        """Return the audit's judgement, by more labels where the strategy finds them worth it."""
        bound, population = self._setting.slo.accuracy, self._setting.population
        if self._asks and self._pilots and measured.inputs >= min(_PILOTED, population):
            self._pilots = False
            self._audit.pilot(measured.profile, standing(measured.profile))
        worth = self._strategy.judged(number, self._corrected(measured)).enough
        asks = self._asks and worth
        # A measurement that a limit cut off will see no more inputs.
        whole = measured.inputs >= population or measured.ending is Ending.CUT_OFF
        known = audited(
            self._audit, measured.profile, population, bound if asks and whole else None
        )
        if asks and not whole and self._audit.left and known.low < bound <= known.high:
            self._pending[number] = None
        good = known.low >= bound or (worth and known.value >= bound)
        (self._good.add if good else self._good.discard)(number)
        return Judgement(enough=good, accuracy=known)

    def finishing(
        self, plans: Sequence[Plan], under_way: Sequence[Proposal] = ()
    ) -> Proposal | None:
        """Return None: labels are people's work, so the front is not finished."""
        return None

    def undecided(self, plans: Sequence[Plan]) -> int | None:
        """Return how many configurations may belong to the front."""
        return self._strategy.undecided(plans)

    def under(self, setting: SearchSetting) -> Audited:
        """Return one that judges by another setting and asks for no further labels."""
        other = copy(self)
        other._strategy, other._setting = self._strategy.under(setting), setting
        other._asks = False
        return other

    def _looks_closer(self) -> bool:
        """Audit the best measured one, as the strategy gives up; False: there is none.

        Its scores were corrected by the labels of others, which may have been unlucky.
        """
        population, bound = self._setting.population, self._setting.slo.accuracy
        measured = [
            s for n, s in self._observed.items() if s is not None and n not in self._looked
        ]
        quick = [one for one in measured if one.latency_s <= self._setting.slo.latency_s]
        if self._good or not self._audit.left or not quick:
            return False
        best = max(quick, key=lambda one: float(self._audit.corrected(one.scores).mean()))
        if best.inputs < population:
            self._pending[best.number] = None
        else:
            self._looked.add(best.number)
            audited(self._audit, best.profile, population, bound)
        return True

    def _corrected(self, measured: Measured) -> Measured:
        return replace(measured, scores=self._audit.corrected(measured.scores))

    def _worth_of_looks(self) -> FloatArray:
        return np.array([self._audit.corrected(np.array(scores)).mean() for scores in _LOOKS])

    def _renew(self) -> None:
        """Start a new strategy on all observations, once labels correct scores otherwise."""
        worth = self._worth_of_looks()
        if np.abs(worth - self._worth).max() <= _MOVED:
            return
        self._strategy, self._worth = self._make(), worth
        for number, measured in self._observed.items():
            self._strategy.observe(number, None if measured is None else self._corrected(measured))
