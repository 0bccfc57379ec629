"""What earlier queries cost, to tell beforehand what the next one will."""

from __future__ import annotations

from api.documents import from_document
from api.phases import Phase
from api.store.records import QueryRecord
from api.store.store import Store
from planner.bill import Bill, Cost

_MOST = 100
"""Of the newest queries so many are looked at: older ones were planned by other means."""

_PLANNED = frozenset(Phase) - {Phase.QUEUED, Phase.PLANNING, Phase.FAILED, Phase.CANCELLED}


def earlier_bills(store: Store, pipeline: str) -> tuple[Cost, ...]:
    """Give what planning the newest queries of a pipeline cost, those that ended by themselves."""
    records = store.queries(limit=_MOST, phases=_PLANNED)
    paid = [_paid(record) for record in records if record.spec.get("pipeline") == pipeline]
    return tuple(cost for cost in paid if cost.runs > 0)


def _paid(record: QueryRecord) -> Cost:
    bill = (record.result or {}).get("bill")
    return from_document(Bill, bill).paid if isinstance(bill, dict) else Cost()
