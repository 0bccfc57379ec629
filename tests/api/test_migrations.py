"""Migrations build the tables that the code maps."""

from __future__ import annotations

from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from circinus.api.store.engine import connect, migrate
from circinus.api.store.tables import Base


def test_migrations_build_exactly_the_tables_that_are_mapped(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path}/circinus.db")
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()
