"""Alembic's entry: runs migrations on the connection that `api.store.engine` opened."""

from __future__ import annotations

from alembic import context

from circinus.api.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
