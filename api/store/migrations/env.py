"""Alembic's entry: runs migrations on the connection that `api.store.engine` opened."""

from __future__ import annotations

from alembic import context

from circinus.api.store.query_rows import QueryRow

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=QueryRow.metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
