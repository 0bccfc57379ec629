"""Migrations build the tables that the code maps."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine

from circinus.api.store.tables import Base


def test_migrations_build_exactly_the_tables_that_are_mapped(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []
