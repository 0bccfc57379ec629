"""Which measurements are made at once: for a cheaper plan first, and then to know the front.

Limits bound what planning may cost; nobody who has the cheapest plan expects to pay them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from circinus.planner.search.budget import Account
from circinus.planner.search.findings import Findings
from circinus.planner.strategy.protocol import Proposal, Strategy

_MOST = 100  # measurements of configurations that may belong to the front
_OWN_PART = 10  # of the response time, what choosing these may take beside running operators
_CALLS = 2.0  # times what calls cost until then, that they may cost in all


@dataclass(slots=True)
class Rounds:
    """Chooses what is measured next, until the front is known or costs too much."""

    account: Account
    because: str = ""  # why the search ends, in words; empty: nothing else was worth measuring
    _calls_usd: float | None = None  # what calls had cost when the front began; None: it has not
    _own_s: float = 0.0  # what other work than running operators had taken then
    _measurements: int = 0  # for the front

    @property
    def is_finishing(self) -> bool:
        """Whether the cheapest plan is no longer searched for."""
        return self._calls_usd is not None

    def finish(self, because: str = "") -> None:
        """Turn to the front: the cheapest plan is no longer searched for."""
        self._calls_usd, self._own_s = self.account.evaluator.calls_usd, self.account.own_s
        self.because = because

    def next(self, strategy: Strategy, findings: Findings) -> list[Proposal]:
        """Return what to measure next; none: nothing is left that is worth it."""
        limit, width = self.account.budget.limits.configurations, self.account.evaluator.width
        new = (limit or inf) - findings.count
        choose = partial(proposed, met=findings.inputs_of, width=width, new=new)
        if not (findings.plans and self.is_finishing):
            if proposals := choose(strategy.propose):
                return proposals
            self.finish()
        chosen = choose(partial(strategy.finishing, findings.plans)) if findings.plans else []
        if chosen and not self._is_worth_it():
            return []
        self._measurements += len(chosen)
        return chosen

    def _is_worth_it(self) -> bool:
        """Return whether more may be measured for the front, and note why not."""
        before, account = self._calls_usd or 0.0, self.account
        if account.evaluator.calls_usd > _CALLS * before:
            self.because = f"calls for the front have cost as much as those before, ${before:.4f}"
            return False
        response_s = account.budget.limits.response_s or inf
        if self._measurements >= _MOST or account.own_s - self._own_s > response_s / _OWN_PART:
            self.because = "what else there is of the front takes long to choose"
            return False
        return True


def proposed(
    propose: Callable[[Sequence[Proposal]], Proposal | None],  # from those under way
    met: Callable[[int], int],  # how many inputs a configuration has met, by number
    *,
    width: int,  # how many measurements are made at once, `>= 1`
    new: float,  # configurations that have met none that limits allow; the first may be one anyway
) -> list[Proposal]:
    """Return proposals to measure at once, together enough to keep all busy; none: none are left.

    What only a rule ends is measured alone: nobody knows how long it will take.
    """
    chosen: list[Proposal] = []
    while width > 0 and (proposal := propose(tuple(chosen))) is not None:
        before = met(proposal.number)
        alone = proposal.inputs is None
        if chosen and (alone or (before == 0 and new < 1)):
            break
        chosen.append(proposal)
        new -= before == 0
        width = 0 if proposal.inputs is None else width - (proposal.inputs - before)
    return chosen
