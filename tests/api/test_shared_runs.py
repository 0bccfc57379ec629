"""Queries that are planned one after the other, and what the next need not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from circinus.api.bootstrap.planning import SharedRuns
from circinus.api.control.planning_worker import plan_next
from circinus.api.store.records import NewQuery
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.queries import earlier_bills
from circinus.planner.search.bill import Bill
from circinus.profiler.prefix_cache import CacheEntry
from tests.api.fakes import SPEC, TOLD, FakeCatalogue, planning_parts


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceParts]:
    # Other tests may keep processors busy: what is run beside them is not shared.
    monkeypatch.setattr("circinus.api.bootstrap.planning.OtherLoad.remarks", lambda *_: ())
    made = planning_parts(tmp_path)
    yield made
    made.store.close()


def bills(
    parts: ServiceParts, *, cold: bool = False, shared: SharedRuns | None = None
) -> list[Bill]:
    """Return the bills of two queries with the same inputs, planned one after the other."""
    each = []
    for number in (1, 2):
        spec = {**SPEC, "cold": cold, "limits": {"configurations": 2}}
        new = NewQuery(
            id=f"q-{number}", spec=spec, fingerprint="", idempotency_key=None, at=float(number)
        )
        parts.store.submit(new)
        assert plan_next(parts, "w", shared=shared)
        planned = parts.store.query(new.id).planned
        assert planned is not None
        each.append(planned.bill)
    return each


def test_operators_that_draw_run_for_each_query(parts: ServiceParts) -> None:
    drawing = FakeCatalogue({"add": TOLD}, {"add": "tests.api.fakes:TOLD"})
    first, second = bills(replace(parts, catalogue=drawing), shared=SharedRuns())
    assert (first.shared_runs, second.shared_runs) == (0, 0)
    assert second.paid.runs > 0


def test_a_cold_query_runs_everything(parts: ServiceParts) -> None:
    _, second = bills(parts, cold=True, shared=SharedRuns())
    assert second.shared_runs == 0
    assert second.paid.runs > 0


def test_without_shared_runs_nothing_is_reused(parts: ServiceParts) -> None:
    assert [bill.shared_runs for bill in bills(parts)] == [0, 0]


def test_the_second_query_of_a_pipeline_runs_nothing_again(parts: ServiceParts) -> None:
    first, second = bills(parts, shared=SharedRuns())
    assert first.paid.runs > 0 == first.shared_runs
    assert (second.paid.runs, second.paid.seconds) == (0, 0.0)
    assert second.shared_runs > 0
    # It is no measure of what the next query costs.
    assert earlier_bills(parts.store, "add") == (first.paid,)
    of_each = [{each.plan.accuracy for each in parts.store.plans(f"q-{n}")} for n in (1, 2)]
    assert of_each[0] == of_each[1]


def test_runs_are_not_shared_by_pipelines_that_call_themselves_alike() -> None:
    shared, entry = SharedRuns(), CacheEntry(output=1, seconds=1.0, output_bytes=1)
    shared.begin("first", 0.0)
    shared.put("print", "content", entry)
    assert shared.get("print", "content") is entry
    assert shared.reused == 0  # it is the query's own
    shared.begin("second", 1.0)
    assert shared.get("print", "content") is None
    shared.begin("first", 2.0)
    assert shared.get("print", "content") is entry
    assert shared.reused == 1


def test_runs_are_shared_for_ten_minutes() -> None:
    shared = SharedRuns()
    shared.begin("add", 0.0)
    shared.put("print", "content", CacheEntry(output=1, seconds=1.0, output_bytes=1))
    shared.begin("add", 599.0)
    assert shared.get("print", "content") is not None
    shared.begin("add", 601.0)
    assert shared.get("print", "content") is None


def test_what_ran_for_a_query_that_broke_off_is_not_shared(
    parts: ServiceParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedRuns()
    shared.begin("add", parts.clock.now())
    shared.put("print", "content", CacheEntry(output=1, seconds=1.0, output_bytes=1))

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr("circinus.api.control.planning_worker.plan_query", broken)
    spec = {**SPEC, "limits": {"configurations": 2}}
    parts.store.submit(NewQuery(id="q-1", spec=spec, fingerprint="", idempotency_key=None, at=0.0))
    assert plan_next(parts, "w", shared=shared)
    assert shared.get("print", "content") is None
