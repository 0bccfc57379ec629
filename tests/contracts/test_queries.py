"""Under which key a query was submitted, over every kind of database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine

from circinus.api.store.history import SqlBills, SqlKeys, SqlLatencies
from circinus.api.store.records import DisplacedRecord, InForce, NewQuery
from circinus.api.store.schedules import ScheduleStore
from circinus.api.store.store import Store
from circinus.deploy.runtime.report import ServedBill, used_together
from circinus.pipelines.model.endpoints import Usage
from circinus.scheduler.dispatch.learnt_latency import LatencyLine, LearntLatency
from tests.contracts.stores import new


def test_a_query_has_the_key_that_it_came_with_and_others_have_none(engine: Engine) -> None:
    store, keys = Store(engine), SqlKeys(engine)
    for query_id, key in (("q-1", "uid/1"), ("q-2", None)):
        store.submit(NewQuery(id=query_id, spec={}, fingerprint="", idempotency_key=key, at=0.0))
    assert [keys.key_of(query_id) for query_id in ("q-1", "q-2", "q-3")] == ["uid/1", None, None]


def test_nothing_is_known_of_a_new_plan(engine: Engine) -> None:
    assert SqlLatencies(engine).recall("p") == {}


def test_the_last_that_was_kept_is_recalled_by_the_next_service(engine: Engine) -> None:
    learnt = LearntLatency(LatencyLine(prior_s=0.1))
    for size in range(1, 40):
        learnt.observe(0.01 * size + 1 / 3, float(size))
    first = SqlLatencies(engine)
    first.keep("p", {"edge": {}})
    first.keep("p", {"edge": {"serve at replica 0": learnt.dump()}})
    recalled = SqlLatencies(engine).recall("p")["edge"]["serve at replica 0"]
    again = LearntLatency.load(recalled)
    assert again.dump() == learnt.dump()
    assert again.quantile(0.9, 25.0) == learnt.quantile(0.9, 25.0)
    assert SqlLatencies(engine).recall("other") == {}


def test_two_who_keep_a_new_plan_at_the_same_time_both_do(engine: Engine) -> None:
    together, latencies = Barrier(2), SqlLatencies(engine)

    def keep(plan_id: str) -> None:
        together.wait()
        latencies.keep(plan_id, {"edge": {}})

    with ThreadPoolExecutor(2) as threads:
        for plan_id in map(str, range(20)):
            list(threads.map(keep, [plan_id, plan_id]))
            assert latencies.recall(plan_id) == {"edge": {}}


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


@pytest.fixture
def schedules(engine: Engine) -> ScheduleStore:
    queries = Store(engine)
    for query_id in ("q-1", "q-2", "q-3"):
        queries.submit(
            NewQuery(id=query_id, spec={}, fingerprint="", idempotency_key=None, at=0.0)
        )
    return queries.schedules


def displaced(query_id: str, by: str | None = None, *, at: float = 1.0) -> DisplacedRecord:
    return DisplacedRecord(at=at, query_id=query_id, by=by, moved=False)


def test_the_schedule_is_replaced_and_counted(schedules: ScheduleStore) -> None:
    assert schedules.read() == (0, InForce())
    first = InForce(made_at=1.0, machines={"edge": 2}, overdue=("q-1",))
    schedules.replace(first)
    assert schedules.read() == schedules.read() == (1, first)
    schedules.replace(InForce(made_at=1.0))
    assert schedules.read() == (2, InForce(made_at=1.0))


def test_a_schedule_that_another_process_replaced_is_read_again(engine: Engine) -> None:
    here, there = ScheduleStore(engine), ScheduleStore(engine)
    for number in (1, 2):
        there.replace(InForce(made_at=float(number)))
        assert here.read() == (number, InForce(made_at=float(number)))


def test_the_displaced_are_remembered_the_latest_first(schedules: ScheduleStore) -> None:
    assert schedules.displaced(limit=9) == ()
    first = (displaced("q-1", "q-2"), displaced("q-3"))
    schedules.replace(InForce(), first)
    last = displaced("q-2", "q-3", at=2.0)
    schedules.replace(InForce(), (last,))
    assert schedules.displaced(limit=9) == (last, first[1], first[0])
    assert schedules.displaced(limit=1) == (last,)
    assert schedules.displaced(limit=9, query_id="q-2") == (last, first[0])
    assert schedules.displaced(limit=9, query_id="q-9") == ()


def test_a_schedule_that_names_an_unknown_query_as_displaced_changes_nothing(
    schedules: ScheduleStore,
) -> None:
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        schedules.replace(InForce(made_at=1.0), (displaced("q-9"),))
    assert schedules.read() == (0, InForce())


def test_machines_are_set_and_forgotten_again(schedules: ScheduleStore) -> None:
    assert schedules.machines() == {}
    schedules.set_machines({"edge": 3, "cloud": 0}, at=1.0)
    schedules.set_machines({"edge": 4}, at=2.0)
    assert schedules.machines() == {"edge": 4, "cloud": 0}
    schedules.set_machines({"cloud": None, "moon": None}, at=3.0)
    assert schedules.machines() == {"edge": 4}
