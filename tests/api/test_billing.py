from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from api.documents import to_document
from api.phases import Phase
from api.schemas import bill_view
from api.services.billing import earlier_bills
from api.store.records import Ending, NewQuery
from api.store.sql import SqlStore
from planner.bill import Bill, Cost, Forecast
from tests.api.fakes import result, sql_store

COST = Cost(runs=7, seconds=1.5, usd=0.25)


def add(store: SqlStore, name: str, pipeline: str, phase: Phase, bill: Bill) -> None:
    spec = {"pipeline": pipeline}
    store.submit(NewQuery(id=name, spec=spec, fingerprint=name, idempotency_key=None, at=0.0))
    assert store.claim("w", at=0.0) is not None
    document = to_document(replace(result(), bill=bill))
    ending = Ending(phase=phase, message="", result=document, plans=())
    assert store.finish(name, "w", ending, at=0.0)


def test_bills_are_those_of_queries_of_the_pipeline_that_ended_by_themselves(
    tmp_path: Path,
) -> None:
    store = sql_store(tmp_path)
    bill = Bill(paid=COST)
    add(store, "one", "a", Phase.WAITING, bill)
    add(store, "two", "a", Phase.INFEASIBLE, bill)
    add(store, "cancelled", "a", Phase.CANCELLED, bill)
    add(store, "another pipeline", "b", Phase.WAITING, bill)
    add(store, "before there were bills", "a", Phase.WAITING, Bill())
    assert earlier_bills(store, "a") == (COST, COST)


def test_a_bill_is_shown_whole() -> None:
    forecast = Forecast(low=Cost(), expected=COST, high=COST, confidence=0.5, source="s")
    view = bill_view(Bill(paid=COST, against="all", forecast=forecast))
    assert view.paid.model_dump() == {"runs": 7, "seconds": 1.5, "usd": 0.25}
    assert view.forecast is not None
    assert view.forecast.expected == view.paid
    assert (view.forecast.confidence, view.forecast.source, view.against) == (0.5, "s", "all")
