"""Migrations build the tables that the code maps, and keep what older versions stored."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import JSON, Engine, bindparam, text

from circinus.api.phases import QueryPhase
from circinus.api.store.documents import to_document
from circinus.api.store.engine import migrate
from circinus.api.store.store import Store
from circinus.api.store.tables import Base
from tests.api.fakes import SPEC, plan, result

_ROW = """
    INSERT INTO queries (id, fingerprint, spec, phase, message, history, result,
                         cancel_requested, crashes)
    VALUES ('q-old', 'f', :spec, 'waiting', '', :history, :result, false, 0)
"""


def test_migrations_build_exactly_the_tables_that_are_mapped(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []


def test_results_of_older_versions_stay_readable_and_lose_what_is_stored_elsewhere(
    engine: Engine,
) -> None:
    found = (plan(share=0.5), plan(share=0.75))
    whole = to_document(result(*found))
    assert {"plans", "configurations"} <= whole.keys()
    as_json = [bindparam(name, type_=JSON) for name in ("spec", "history", "result")]
    history = [{"phase": "waiting", "at": 1.0, "message": ""}]
    back_to(engine, "0007")
    with engine.begin() as connection:
        told = {"spec": SPEC, "history": history, "result": whole}
        connection.execute(text(_ROW).bindparams(*as_json), told)

    migrate(engine)

    record = Store(engine).query("q-old")
    assert record.planned is not None
    assert (record.planned.plans, record.planned.best) == (2, found[0])
    assert record.planned.stopped_because == "everything was measured"
    assert "configurations" not in (record.result or {})
    # It changes like any other.
    assert Store(engine).move("q-old", QueryPhase.DEPLOYING, at=2.0)
    assert Store(engine).query("q-old").version == record.version + 1


def back_to(engine: Engine, revision: str) -> None:
    """Make the tables of an older version."""
    config = Config()
    scripts = Path(__file__).parents[2] / "api" / "store" / "migrations"
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
