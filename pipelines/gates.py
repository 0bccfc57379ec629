"""Several gates as one: leave to call is given when all of them give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from uuid import uuid4

from circinus.pipelines.calling import Leave, LeaveGate
from circinus.pipelines.endpoints import Usage


@dataclass(eq=False, slots=True)
class GateChain:
    """Asks gates one after the other, in their order; see `all_of`."""

    gates: Sequence[LeaveGate]
    _given: dict[str, list[Leave]] = field(default_factory=dict, init=False)  # by own ticket
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Leave:
        """See `LeaveGate`. What one gate refuses is given back to those before it, as not used."""
        given: list[Leave] = []
        try:
            for gate in self.gates:
                given.append(gate.admit(operator, most))  # noqa: PERF401 - kept if one refuses
        except BaseException:
            self._settle(given, {})
            raise
        leave = Leave(operator=operator, most=most, ticket=uuid4().hex)
        with self._lock:
            self._given[leave.ticket] = given
        return leave

    def settle(self, leave: Leave, used: Mapping[str, Usage]) -> None:
        """See `LeaveGate`."""
        with self._lock:
            given = self._given.pop(leave.ticket, [])
        self._settle(given, used)

    def _settle(self, given: Sequence[Leave], used: Mapping[str, Usage]) -> None:
        """Settle with every gate, the last first, whatever one of them raises."""
        first: BaseException | None = None
        for gate, leave in reversed(list(zip(self.gates, given, strict=False))):
            try:
                gate.settle(leave, used)
            except Exception as error:  # noqa: BLE001 - raised once the others have heard of it
                first = first or error
        if first is not None:
            raise first


def all_of(gates: Sequence[LeaveGate]) -> LeaveGate:
    """Return a gate that gives leave when all do, asked in their order.

    What waits long goes first: leave of a later gate is not held while an earlier one is waited
    for, so money comes after rate limits.
    """
    return gates[0] if len(gates) == 1 else GateChain(tuple(gates))
