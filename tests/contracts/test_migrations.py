"""Migrations build the tables that the code maps, and refuse databases that they cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, text

from circinus.api.store.engine import connect, migrate, require_known
from circinus.api.store.failures import DatabaseUnfit
from circinus.api.store.tables import Base


def test_migrations_build_exactly_the_tables_that_are_mapped(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []


def test_a_database_of_before_the_first_release_must_be_made_anew(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path / 'old.db'}")
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0020'"))

    for opens in (migrate, require_known):
        with pytest.raises(DatabaseUnfit, match="first release and must be made anew"):
            opens(engine)
