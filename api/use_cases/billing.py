"""What serving queries came to, beside what was predicted."""

from __future__ import annotations

from circinus.api.schemas.billed import ServedBillView, served_bill_view
from circinus.api.use_cases.parts import ServiceParts


def served_bills(parts: ServiceParts, query_id: str) -> list[ServedBillView]:
    """Return what the requests to each plan of a query used of endpoints; empty if none called."""
    if not parts.infrastructure.endpoints:  # nothing can be called: one look less at the store
        return []
    bills = parts.store.bills.of(query_id)
    if not bills:
        return []
    plans = {stored.id: stored.plan for stored in parts.store.plans(query_id)}
    return [served_bill_view(bill, plans.get(bill.plan_id)) for bill in bills]
