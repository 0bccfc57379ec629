from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from circinus.api.phases import QueryPhase
from circinus.api.schemas.progress import BillView
from circinus.api.store.records import NewQuery, PlanningEnding, to_document
from circinus.api.store.store import Store
from circinus.api.use_cases.queries import earlier_bills
from circinus.planner.search.bill import Bill, Cost, Forecast
from circinus.planner.search.result import PlanningSummary
from tests.api.fakes import result, sql_store

COST = Cost(runs=7, seconds=1.5, usd=0.25)


def add(store: Store, name: str, pipeline: str, phase: QueryPhase, bill: Bill) -> None:
    spec = {"pipeline": pipeline}
    store.submit(NewQuery(id=name, spec=spec, fingerprint=name, idempotency_key=None, at=0.0))
    assert store.queue.claim("w", at=0.0) is not None
    document = to_document(PlanningSummary.of(replace(result(), bill=bill)))
    ending = PlanningEnding(phase=phase, message="", result=document, plans=())
    assert store.queue.finish(name, "w", ending, at=0.0)


def test_bills_are_those_of_queries_of_the_pipeline_that_ended_by_themselves(
    tmp_path: Path,
) -> None:
    store = sql_store(tmp_path)
    bill = Bill(paid=COST)
    add(store, "one", "a", QueryPhase.WAITING, bill)
    add(store, "two", "a", QueryPhase.INFEASIBLE, bill)
    add(store, "cancelled", "a", QueryPhase.CANCELLED, bill)
    add(store, "another pipeline", "b", QueryPhase.WAITING, bill)
    add(store, "before there were bills", "a", QueryPhase.WAITING, Bill())
    assert earlier_bills(store, "a") == (COST, COST)


def test_a_bill_is_shown_whole() -> None:
    forecast = Forecast(low=Cost(), expected=COST, high=COST, confidence=0.5, source="s")
    view = BillView.of(Bill(paid=COST, against="all", forecast=forecast))
    paid = {"runs": 7, "seconds": 1.5, "usd": 0.25, "calls_s": 0.0, "calls": []}
    assert view.model_dump(mode="json")["paid"] == paid
    assert view.forecast is not None
    assert view.forecast.expected == view.paid
    assert (view.forecast.confidence, view.forecast.source, view.against) == (0.5, "s", "all")
