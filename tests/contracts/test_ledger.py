"""One contract for every ledger: what is reserved counts as paid until it is settled."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import NamedTuple

import pytest

from circinus.api.store.calls import SqlLedger
from circinus.api.store.engine import connect
from circinus.api.store.interrupted import FileLedger
from circinus.api.store.queue import ClaimLost
from circinus.api.store.records import NewQuery
from circinus.api.store.store import Store
from circinus.pipelines.execution.calling import Permit
from circinus.pipelines.model.endpoints import Usage
from circinus.profiler.spending import Ledger, MemoryLedger, Spent
from tests.contracts.databases import opened, postgres, sqlite_file, sqlite_memory

MOST = Usage(1, 1000, 0, 100, 0.25)
USED = Usage(1, 10, 4, 2, 0.125)


class Kept(NamedTuple):
    """A kind of ledger."""

    opened: Callable[[], Ledger]  # the same one again, as another process has it
    survives: bool = True  # the object that it was
    is_shared: bool = True  # between processes


def in_database(url: str, made: ExitStack) -> Kept:
    engine = opened(url)
    made.callback(engine.dispose)
    Store(engine).submit(new("q-1"))
    if url == "sqlite://":
        return Kept(lambda: SqlLedger(engine, "q-1"), is_shared=False)

    def again() -> Ledger:
        another = connect(url)
        made.callback(another.dispose)
        return SqlLedger(another, "q-1")

    engine.dispose()  # a copy of this process must not share its connections
    return Kept(again)


def memory(folder: Path) -> Kept:
    ledger = MemoryLedger()
    return Kept(lambda: ledger, survives=False, is_shared=False)


def file(folder: Path) -> Kept:
    return Kept(lambda: FileLedger(folder / "made" / "plan.paid"))


def new(query_id: str) -> NewQuery:
    return NewQuery(id=query_id, spec={}, fingerprint="", idempotency_key=None, at=0.0)


@pytest.fixture(
    params=[memory, file, sqlite_file, sqlite_memory, postgres], ids=lambda kind: kind.__name__
)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    found = request.param(tmp_path)
    with ExitStack() as made:
        yield in_database(found, made) if isinstance(found, str) else found


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    engine = opened(sqlite_file(tmp_path))
    yield Store(engine)
    engine.dispose()


@pytest.fixture
def ledger(kept: Kept) -> Ledger:
    return kept.opened()


def permit(ticket: str, operator: str = "reader", **most: Usage) -> Permit:
    return Permit(operator=operator, most=most or {"large": MOST}, ticket=ticket)


def test_nothing_is_reserved_beyond_the_limit(ledger: Ledger) -> None:
    assert ledger.reserve(permit("a"), 0.5)
    assert ledger.reserve(permit("b"), 0.5)
    assert not ledger.reserve(permit("c"), 0.5)
    assert ledger.spent() == {"reader": Spent(open_usd=0.5)}


def test_what_is_free_is_reserved_without_money(ledger: Ledger) -> None:
    assert ledger.reserve(permit("a", large=MOST._replace(usd=0.0)), 0.0)


def test_the_same_ticket_is_reserved_once(ledger: Ledger) -> None:
    assert ledger.reserve(permit("a"), 0.25)
    assert ledger.reserve(permit("a"), 0.25)
    assert ledger.spent() == {"reader": Spent(open_usd=0.25)}
    ledger.settle(permit("a"), {"large": USED})
    assert ledger.reserve(permit("a"), 0.25)
    assert ledger.spent() == {"reader": Spent(USED)}


def test_settling_gives_back_what_was_not_used(ledger: Ledger) -> None:
    assert ledger.reserve(permit("a"), 0.25)
    assert not ledger.reserve(permit("b"), 0.4)
    ledger.settle(permit("a"), {"large": USED})
    assert ledger.reserve(permit("b"), 0.4)
    assert ledger.spent() == {"reader": Spent(USED, 0.25)}


def test_what_was_settled_stays_as_it_is(ledger: Ledger) -> None:
    assert ledger.reserve(permit("a"), 1.0)
    for used in (USED, MOST):
        ledger.settle(permit("a"), {"large": used})
    assert ledger.spent() == {"reader": Spent(USED)}


def test_an_attempt_that_used_nothing_costs_nothing(ledger: Ledger) -> None:
    assert ledger.reserve(permit("a"), 1.0)
    ledger.settle(permit("a"), {})
    assert ledger.spent() == {"reader": Spent()}


def test_what_costs_more_than_was_reserved_counts_in_full(ledger: Ledger) -> None:
    assert ledger.reserve(permit("a"), 0.25)
    ledger.settle(permit("a"), {"large": MOST._replace(usd=2.0), "other": USED})
    assert ledger.spent()["reader"].usd == 2.125
    assert not ledger.reserve(permit("b"), 2.25)


def test_a_largest_cost_that_is_infinite_is_kept_as_none(ledger: Ledger) -> None:
    unbounded = Usage(1, inf, 0, inf, inf)
    assert ledger.reserve(permit("a", large=unbounded), inf)
    assert ledger.spent() == {"reader": Spent()}
    ledger.settle(permit("a"), {"large": unbounded})
    assert ledger.spent() == {"reader": Spent(Usage(1))}


def test_operators_are_told_apart_and_their_endpoints_added(ledger: Ledger) -> None:
    assert ledger.reserve(permit("a", "ranker", small=MOST, large=MOST), inf)
    assert ledger.reserve(permit("b", "reader", large=MOST), inf)
    assert ledger.spent() == {"ranker": Spent(open_usd=0.5), "reader": Spent(open_usd=0.25)}
    ledger.settle(permit("a", "ranker", small=MOST, large=MOST), {"small": USED, "large": USED})
    assert ledger.spent()["ranker"] == Spent(USED.plus(USED))


def test_what_a_dead_process_reserved_stays_paid(kept: Kept) -> None:
    if not kept.survives:
        pytest.skip("it lives as long as its object")
    first = kept.opened()
    assert first.reserve(permit("a"), 1.0)
    assert first.reserve(permit("b"), 1.0)
    first.settle(permit("b"), {"large": USED})
    second = kept.opened()
    assert second.spent() == {"reader": Spent(USED, 0.25)}
    assert not second.reserve(permit("c"), 0.6)


def test_many_threads_never_reserve_more_than_there_is(ledger: Ledger) -> None:
    with ThreadPoolExecutor(8) as threads:
        given = list(threads.map(lambda i: ledger.reserve(permit(f"t-{i}"), 2.5), range(40)))
    assert given.count(True) == 10


def _reserve(opened: Callable[[], Ledger], name: str, told: multiprocessing.SimpleQueue) -> None:  # type: ignore[type-arg]  # of int
    ledger, given = opened(), 0
    for i in range(12):
        if ledger.reserve(permit(f"{name}-{i}"), 5.0):
            given += 1
            ledger.settle(permit(f"{name}-{i}"), {"large": MOST})
    told.put(given)


def test_many_processes_never_pay_more_than_there_is(kept: Kept) -> None:
    if not kept.is_shared:
        pytest.skip("it is of one process")
    fork = multiprocessing.get_context("fork")
    told = fork.SimpleQueue()
    each = [
        fork.Process(target=_reserve, args=(kept.opened, f"p{number}", told))
        for number in range(4)
    ]
    for process in each:
        process.start()
    for process in each:
        process.join(60)
    assert sum(told.get() for _ in each) == 20
    assert kept.opened().spent()["reader"].usd == 5.0


def test_a_worker_that_lost_its_query_reserves_nothing(file_store: Store) -> None:
    store = file_store
    store.submit(new("q-1"))
    store.queue.claim("w-1", at=1.0)
    mine = store.ledger("q-1", "w-1")
    assert mine.reserve(permit("a"), 1.0)
    store.queue.requeue_silent(since=2.0, at=2.0)
    with pytest.raises(ClaimLost):
        mine.reserve(permit("b"), 1.0)
    mine.settle(permit("a"), {"large": USED})  # what it paid is known all the same
    assert mine.spent() == {"reader": Spent(USED)}


def test_queries_have_ledgers_of_their_own(file_store: Store) -> None:
    store = file_store
    for query_id in ("q-1", "q-2"):
        store.submit(new(query_id))
    assert store.ledger("q-1").reserve(permit("a"), 0.25)
    assert store.ledger("q-2").spent() == {}
    assert store.ledger("q-2").reserve(permit("b"), 0.25)


def test_a_torn_line_was_never_called_for(tmp_path: Path) -> None:
    path = tmp_path / "plan.paid"
    assert FileLedger(path).reserve(permit("a"), 1.0)
    with path.open("ab") as torn:
        torn.write(b'{"ticket": "b", "oper')
    again = FileLedger(path)
    assert again.reserve(permit("c"), 1.0)
    assert FileLedger(path).spent() == {"reader": Spent(open_usd=0.5)}


def test_a_file_that_cannot_be_written_still_caps_this_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger = FileLedger(tmp_path / "file" / "plan.paid")
    assert ledger.reserve(permit("a"), 0.4)
    assert not ledger.reserve(permit("b"), 0.4)
    assert ledger.trouble
