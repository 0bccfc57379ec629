"""Who holds a query: what a worker finds out about one that it lost is not stored.

A query is taken from its worker while that still measures, because it fell silent, its data
changed or nobody wants the search any more. Figures of the old data must not get among the new.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.orm import Session

from api.store.tables import QueryRow
from pipelines.errors import CircinusError

# Made once: it is asked before every measurement that is stored.
_HELD = (
    select(QueryRow.serial)
    .where(QueryRow.id == bindparam("query_id"), QueryRow.claimed_by == bindparam("worker"))
    .with_for_update(read=True)
)


class ClaimLost(CircinusError):
    """A worker would store something of a query that it holds no longer."""

    def __init__(self, query_id: str, worker: str) -> None:
        super().__init__(f"query {query_id} must be held by the worker that plans it, {worker}.")


def require_claim(transaction: Connection | Session, query_id: str, worker: str | None) -> None:
    """Make sure that a worker holds a query until the transaction ends; None: nobody has to.

    Raises:
        ClaimLost: If it does not.
    """
    if worker is None:
        return
    if transaction.scalar(_HELD, {"query_id": query_id, "worker": worker}) is None:
        raise ClaimLost(query_id, worker)
