"""Under which keys queries were submitted, for who deploys them and has no store."""

from __future__ import annotations

from sqlalchemy import Engine, select

from circinus.api.store.engine import reading
from circinus.api.store.tables import QueryRow


class SqlKeys:
    """The idempotency keys of the queries of a database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def key_of(self, query_id: str) -> str | None:
        """Return the key of a query; None: it has none, or there is no such query."""
        chosen = select(QueryRow.idempotency_key).where(QueryRow.id == query_id)
        with reading(self._engine) as session:
            return session.scalar(chosen)
