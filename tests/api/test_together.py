"""Threads that store at the same time share a transaction, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from circinus.api.store.failures import DatabaseAway, DatabaseFailed
from circinus.api.store.queue import Together
from circinus.api.store.records import Conflict, NewQuery
from tests.api.fakes import SPEC, sql_store


class Shelf:
    """Keeps numbers, the first only when it is let to; refuses some, breaks over others."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = Event()
        self.away = False

    def __call__(self, asked: Sequence[int]) -> list[str | Exception]:
        if 0 in asked:
            assert self.open.wait(10)
        if self.away:
            raise DatabaseAway("away")
        if any(number == 13 for number in asked):
            raise ZeroDivisionError(str(asked))
        self.batches.append(list(asked))
        return [KeyError(number) if number < 0 else str(number) for number in asked]


def all_at_once(shelf: Shelf, asked: Sequence[int]) -> list[object]:
    """Ask for all while the first of them, 0, is held up; give what each thread got."""
    together = Together(shelf)

    def outcome(number: int) -> object:
        try:
            return together(number)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            return error

    with ThreadPoolExecutor(1 + len(asked)) as threads:
        first = threads.submit(outcome, 0)
        while not together._turn.locked():
            pass
        others = [threads.submit(outcome, number) for number in asked]
        while len(together._waiting) < len(asked):
            pass
        shelf.open.set()
        return [first.result(10), *(each.result(10) for each in others)]


def test_those_who_wait_are_stored_in_one_go_and_hear_of_their_own_alone() -> None:
    shelf = Shelf()
    found = all_at_once(shelf, [1, -2, 3])
    assert len(shelf.batches) == 2
    assert sorted(shelf.batches[1]) == [-2, 1, 3]
    assert [found[0], found[1], found[3]] == ["0", "1", "3"]
    assert isinstance(found[2], KeyError)


def test_one_that_breaks_the_transaction_breaks_its_own_alone() -> None:
    found = all_at_once(Shelf(), [1, 13, 3])
    assert [found[0], found[1], found[3]] == ["0", "1", "3"]
    assert isinstance(found[2], ZeroDivisionError)
    assert str(found[2]) == "[13]"


def test_where_the_database_fails_all_hear_of_it() -> None:
    shelf = Shelf()
    shelf.away = True
    assert all(isinstance(each, DatabaseFailed) for each in all_at_once(shelf, [1, 2]))


def test_queries_that_come_at_once_are_each_stored_or_refused(tmp_path: Path) -> None:
    store = sql_store(tmp_path)

    def submitted(number: int) -> str:
        key = "mine" if number % 2 else None  # of all with the key only one can be the first
        told = NewQuery(
            id=f"q-{number}", spec=SPEC, fingerprint=str(number), idempotency_key=key, at=1.0
        )
        try:
            record, new = store.submit(told, queue_limit=1000)
        except Conflict:
            return "refused"
        assert (record.id, new) == (told.id, True)
        return "stored"

    with ThreadPoolExecutor(20) as threads:
        found = list(threads.map(submitted, range(40)))
    assert found[::2] == ["stored"] * 20
    assert sorted(found[1::2]) == ["refused"] * 19 + ["stored"]
    assert len(store.queries(limit=99)) == 21
    store.close()


def test_an_error_that_is_raised_leaves_the_turn_to_others() -> None:
    together = Together(Shelf())
    with pytest.raises(ZeroDivisionError):
        together(13)
    assert together(7) == "7"
