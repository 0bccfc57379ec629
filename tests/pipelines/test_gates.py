"""Several gates as one: what one refuses, none holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from circinus.pipelines.errors import Stopped
from circinus.pipelines.execution.calling import Permit, all_of
from circinus.pipelines.model.endpoints import Usage

MOST = {"large": Usage(1, 10, 0, 10, 0.5)}
USED = {"large": Usage(1, 5, 0, 1, 0.1)}


@dataclass
class Noting:
    """A gate that tells what it is asked, into a list shared with others."""

    name: str
    told: list[tuple[str, str, object]]
    refuses: bool = False
    fails: bool = False
    open: set[str] = field(default_factory=set)

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        if self.refuses:
            raise Stopped(self.name)
        self.told.append((self.name, "admit", most))
        self.open.add(self.name)
        return Permit(operator=operator, most=most, ticket=self.name)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        self.open.remove(permit.ticket)
        self.told.append((self.name, "settle", used))
        if self.fails:
            raise Stopped(self.name)


def test_what_a_later_gate_refuses_is_given_back_as_not_used() -> None:
    told: list[tuple[str, str, object]] = []
    gates = [Noting("rate", told), Noting("money", told), Noting("last", told, refuses=True)]
    with pytest.raises(Stopped, match="last"):
        all_of(gates).admit("reader", MOST)
    assert told[2:] == [("money", "settle", {}), ("rate", "settle", {})]
    assert not any(gate.open for gate in gates)


def test_a_gate_that_fails_to_settle_keeps_no_other_from_it() -> None:
    told: list[tuple[str, str, object]] = []
    gates = [Noting("rate", told), Noting("money", told, fails=True)]
    both = all_of(gates)
    permit = both.admit("reader", MOST)
    with pytest.raises(Stopped, match="money"):
        both.settle(permit, USED)
    assert not any(gate.open for gate in gates)


def test_all_are_asked_in_order_and_told_what_was_used() -> None:
    told: list[tuple[str, str, object]] = []
    both = all_of([Noting("rate", told), Noting("money", told)])
    permit = both.admit("reader", MOST)
    both.settle(permit, USED)
    assert told == [
        ("rate", "admit", MOST),
        ("money", "admit", MOST),
        ("money", "settle", USED),
        ("rate", "settle", USED),
    ]


def test_one_gate_is_itself() -> None:
    alone = Noting("rate", [])
    assert all_of([alone]) is alone
