"""The contract of `BillMemory`, over every kind of database, and what is read of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from circinus.api.store.history import SqlBills
from circinus.api.store.store import Store
from circinus.deploy.runtime.report import ServedBill, used_together
from circinus.pipelines.model.endpoints import Usage
from tests.contracts.stores import new

ONE = Usage(calls=3, input_tokens=100, cached_tokens=20, output_tokens=7, usd=1 / 3)


def submitted(store: Store, query_id: str = "q-1") -> str:
    store.submit(new(query_id))
    return query_id


def bill(plan_id: str = "p-1", answered: int = 3, **used: Usage) -> ServedBill:
    return ServedBill(plan_id=plan_id, answered=answered, used={"read": used}, failed=1, unsure=2)


def test_nothing_was_billed_of_a_new_query(engine: Engine, store: Store) -> None:
    assert SqlBills(engine).of(submitted(store)) == ()


def test_the_last_bill_of_a_run_is_the_one(engine: Engine, store: Store) -> None:
    query_id = submitted(store)
    bills = SqlBills(engine)
    bills.keep("run", query_id, bill(answered=1, small=Usage(calls=1)))
    bills.keep("run", query_id, bill(small=ONE, large=Usage(calls=1)))
    assert SqlBills(engine).of(query_id) == (bill(small=ONE, large=Usage(calls=1)),)


def test_runs_of_a_plan_are_billed_together_and_plans_apart(engine: Engine, store: Store) -> None:
    query_id, other = submitted(store), submitted(store, "q-2")
    bills = SqlBills(engine)
    bills.keep("a", query_id, bill(small=ONE))
    bills.keep("b", query_id, bill(answered=4, small=ONE))
    bills.keep("c", query_id, bill("p-2", small=ONE))
    bills.keep("d", other, bill(small=ONE))
    first, second = bills.of(query_id)
    assert first == ServedBill(
        plan_id="p-1", answered=7, failed=2, unsure=4, used={"read": {"small": ONE.plus(ONE)}}
    )
    assert second == bill("p-2", small=ONE)


def test_runs_that_are_kept_at_the_same_time_are_all_there(engine: Engine, store: Store) -> None:
    query_id, bills = submitted(store), SqlBills(engine)
    with ThreadPoolExecutor(4) as threads:
        keep = [threads.submit(bills.keep, f"r{i % 5}", query_id, bill(s=ONE)) for i in range(40)]
        for each in keep:
            each.result()
    (found,) = bills.of(query_id)
    assert found.answered == 15  # five runs of three


def test_dollars_for_a_thousand_are_of_those_answered() -> None:
    found = ServedBill(plan_id="p", answered=4, failed=1, used={"a": {"x": Usage(usd=0.02)}})
    assert found.usd_per_1000_requests == pytest.approx(5.0)
    assert ServedBill(plan_id="p").usd_per_1000_requests is None


def test_used_together_leaves_both_as_they_were() -> None:
    one, other = {"a": {"x": ONE}}, {"a": {"x": ONE, "y": ONE}, "b": {"x": ONE}}
    both = used_together(one, other)
    assert both == {"a": {"x": ONE.plus(ONE), "y": ONE}, "b": {"x": ONE}}
    assert one == {"a": {"x": ONE}}
    assert other["a"]["x"] == ONE
