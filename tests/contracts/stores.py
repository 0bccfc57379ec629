"""Queries in a `Store`."""

from __future__ import annotations

from circinus.api.phases import QueryPhase
from circinus.api.store.records import NewQuery, PlanningEnding
from circinus.api.store.store import Store


def new(query_id: str, *, key: str | None = None, fingerprint: str = "f") -> NewQuery:
    spec = {"pipeline": "digits", "slo": {"accuracy": 0.5}}
    return NewQuery(id=query_id, spec=spec, fingerprint=fingerprint, idempotency_key=key, at=100.0)


def planned(store: Store, query_id: str = "q-1", *, plans: int = 2) -> None:
    store.submit(new(query_id))
    claimed = store.queue.claim("w-1", at=101.0)
    assert claimed is not None
    documents = tuple((f"p-{i}", {"id": f"p-{i}", "cost": i}) for i in range(plans))
    ending = PlanningEnding(
        phase=QueryPhase.WAITING, message="planned", result={"plans": plans}, plans=documents
    )
    assert store.queue.finish(claimed.id, "w-1", ending, at=102.0)
