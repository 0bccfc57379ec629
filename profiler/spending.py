"""Money for calls: reserved before one is made, settled after it, never more than there is.

The one rule: what is reserved and not settled counts as paid, at its largest cost. So whatever
dies between the two, and however often, the dollars charged stay below the cap, as long as calls
keep to the bounds of their endpoints.

| | counts as |
| --- | --- |
| reserved | the most that the attempt may cost |
| settled | what it cost |
| reserved by a process that died | the most that it may have cost, for good |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from threading import Condition, Lock
from typing import NamedTuple, Protocol
from uuid import uuid4

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput, Stopped, Unaffordable, Violation
from circinus.pipelines.execution.calling import Permit
from circinus.pipelines.model.endpoints import NOTHING_USED, Endpoint, Usage
from circinus.pipelines.model.operators import OperatorSpec

_LOOK_S = 0.1  # between two looks at whether it is over
_SECONDS_PER_HOUR = 3600.0


class Spent(NamedTuple):
    """What an operator's calls cost."""

    used: Usage = NOTHING_USED  # by attempts that were settled
    open_usd: float = 0.0  # dollars of those that were not: the most that they may cost, `>= 0`

    @property
    def usd(self) -> float:
        """Dollars that count as paid."""
        return self.used.usd + self.open_usd

    def plus(self, other: Spent) -> Spent:
        """Return what both cost together."""
        return Spent(self.used.plus(other.used), self.open_usd + other.open_usd)


NOTHING_SPENT = Spent()


class Ledger(Protocol):
    """Keeps what calling endpoints cost one query, over all processes that ever call for it.

    Safe to share between threads and processes. A largest cost that is infinite is stored as none:
    it can be reserved only where nothing is capped.
    """

    def reserve(self, permit: Permit, limit_usd: float) -> bool:
        """Reserve the most that an attempt may cost, durably, before this returns.

        False, and nothing is reserved, if more than `limit_usd` dollars would then be paid, in
        `[0, inf]`. A second time with the same ticket it changes nothing and gives True.
        """

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Put what an attempt used, by endpoint, in place of what was reserved, durably.

        What is reserved of other endpoints was not used. What was settled stays as it is.
        """

    def spent(self) -> Mapping[str, Spent]:
        """Return what was spent until now, by operator."""


@dataclass(slots=True)
class MemoryLedger:
    """A ledger that lives as long as this object."""

    _open: dict[str, Permit] = field(default_factory=dict, init=False)
    _settled: dict[str, Spent] = field(default_factory=dict, init=False)  # by operator
    _done: set[str] = field(default_factory=set, init=False)  # tickets that were settled
    _paid_usd: float = field(default=0.0, init=False)  # settled
    _open_usd: float = field(default=0.0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def reserve(self, permit: Permit, limit_usd: float) -> bool:
        """Reserve the most that an attempt may cost, see `Ledger.reserve`."""
        most_usd = largest_usd(permit)
        with self._lock:
            if permit.ticket in self._open or permit.ticket in self._done:
                return True
            if self._paid_usd + self._open_usd + most_usd > limit_usd:
                return False
            self._open[permit.ticket] = permit
            self._open_usd += most_usd
            return True

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Replace a reservation by what was used, see `Ledger.settle`."""
        together = all_used(used.values())
        with self._lock:
            if permit.ticket in self._done:
                return
            if self._open.pop(permit.ticket, None) is not None:
                self._open_usd -= largest_usd(permit)
            self._open_usd = self._open_usd if self._open else 0.0  # sums are rounded
            self._done.add(permit.ticket)
            self._paid_usd += together.usd
            before = self._settled.get(permit.operator, NOTHING_SPENT)
            self._settled[permit.operator] = before.plus(Spent(together))

    def spent(self) -> Mapping[str, Spent]:
        """Return what was spent until now, by operator."""
        with self._lock:
            spent = dict(self._settled)
            for permit in self._open.values():
                before = spent.get(permit.operator, NOTHING_SPENT)
                spent[permit.operator] = before.plus(Spent(open_usd=largest_usd(permit)))
        return spent


def largest_usd(permit: Permit) -> float:
    """Return the most dollars that an attempt may cost, as a ledger keeps them."""
    return sum(reserved_usd(most) for most in permit.most.values())


def reserved_usd(most: Usage) -> float:
    """Return the dollars of a reservation: none where they are not bounded."""
    return most.finite.usd


def all_used(each: Iterable[Usage]) -> Usage:
    """Return what was used together, as far as it is bounded."""
    return reduce(Usage.plus, (one.finite for one in each), NOTHING_USED)


class SpendingGate:
    """A `PermitGate` that permits calls as long as there is money, over a ledger.

    What machines cost is part of it, see `ran`: `limit_usd` holds over both together. Where money
    is short only because of what is reserved for attempts under way here, it waits for those.
    """

    def __init__(
        self,
        ledger: Ledger,
        limit_usd: float | None = None,  # dollars, `>= 0`; None: any
        *,
        price_usd_per_hour: float = 0.0,  # of a machine on which operators run that do not call
    ) -> None:
        checks.non_negative("limit_usd", limit_usd)
        self._ledger = ledger
        self._limit_usd = inf if limit_usd is None else limit_usd
        self._price = price_usd_per_hour
        self._machine_s = 0.0
        self._changed = Condition()
        self._under_way = 0  # attempts of this process
        self._settlements = 0
        self._over: Callable[[], bool] = lambda: False

    def stop_when(self, over: Callable[[], bool]) -> None:
        """Raise Stopped, in place of granting a permit, once `over` is true."""
        self._over = over

    def ran(self, seconds: float) -> None:
        """Charge seconds of machines: their dollars are not there for calls."""
        with self._changed:
            self._machine_s += seconds

    def spent(self) -> Mapping[str, Spent]:
        """Return what calls cost until now, by operator, earlier processes' ones included."""
        return self._ledger.spent()

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """Reserve what an attempt may cost and return its leave; Unaffordable: it is too much."""
        permit = Permit(operator=operator, most=most, ticket=uuid4().hex)
        unbounded = self._limit_usd < inf and any(each.usd == inf for each in most.values())
        with self._changed:
            while True:
                if self._over():
                    raise Stopped(f"{operator} was not run any more")
                if not unbounded and self._ledger.reserve(permit, self._left_for_calls_usd):
                    self._under_way += 1
                    return permit
                if unbounded or not self._under_way:
                    raise Unaffordable(self._refusal(operator, most))
                before = self._settlements
                while self._settlements == before and not self._over():
                    self._changed.wait(_LOOK_S)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Pay what an attempt used."""
        try:
            self._ledger.settle(permit, used)
        finally:
            with self._changed:
                self._under_way -= 1
                self._settlements += 1
                self._changed.notify_all()

    @property
    def _left_for_calls_usd(self) -> float:
        machines_usd = self._machine_s * self._price / _SECONDS_PER_HOUR
        return max(self._limit_usd - machines_usd, 0.0)

    def _refusal(self, operator: str, most: Mapping[str, Usage]) -> str:
        paid_usd = sum(spent.usd for spent in self._ledger.spent().values())
        left_usd = max(self._left_for_calls_usd - paid_usd, 0.0)
        most_usd = sum(each.usd for each in most.values())
        return f"a call of {operator} may cost {most_usd:.4g} USD, {left_usd:.4g} USD are left"


def require_bounded(
    operators: Iterable[OperatorSpec], endpoints: Iterable[Endpoint], limit_usd: float | None
) -> None:
    """Raise InvalidInput, with every violation, where money is capped and a call is not bounded.

    Or where an operator calls an endpoint that is not there; the operators are those of the
    planned pipeline, their knobs without values that are ruled out.
    """
    by_name, violations = {endpoint.name: endpoint for endpoint in endpoints}, list[Violation]()
    for name, operator in called_by(operators).items():
        endpoint = by_name.get(name)
        if endpoint is None:
            rule = f"must be an endpoint of a remote tier ({', '.join(by_name) or 'none'})"
            violations.append(Violation.of(f"operator {operator}.calls", rule, name))
        elif limit_usd is not None and endpoint.largest.usd == inf:
            rule = f"must be given while limits.profiling_usd is: {operator} calls it"
            missing = (each for each in _BOUNDS if _is_unbounded(endpoint, each))
            violations += [Violation.of(f"endpoint {name}.{each}", rule, None) for each in missing]
    if violations:
        raise InvalidInput(violations)


_BOUNDS = ("most_input_tokens", "most_output_tokens")


def _is_unbounded(endpoint: Endpoint, bound: str) -> bool:
    read, price = bound == "most_input_tokens", endpoint.price
    dear = max(price.input_usd_per_million, price.cached_usd_per_million or 0.0)
    costs = dear if read else price.output_usd_per_million
    return costs > 0 and getattr(endpoint, bound) is None


def called_by(operators: Iterable[OperatorSpec]) -> dict[str, str]:
    """Return the endpoints that may be called, each with the first operator that may call it."""
    callers: dict[str, str] = {}
    for operator in operators:
        values = {knob.name: knob.values for knob in operator.knobs}
        for call in operator.all_calls:
            if all(value in values[knob] for knob, value in call.when.items()):
                callers.setdefault(call.endpoint, operator.name)
    return callers
