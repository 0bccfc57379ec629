"""All tables of the first release. What comes after it is added by further migrations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1001"  # 0001 to 0020 were of databases before the first release
down_revision = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    _make_queries()
    _make_what_belongs_to_a_query()
    _make_measurements()
    _make_what_belongs_to_the_service()


def _serial() -> sa.Column[int]:
    return sa.Column("serial", _SERIAL, nullable=False, autoincrement=True)


def _of_query(table: str) -> sa.ForeignKeyConstraint:
    """Return what removes rows of a table with their query."""
    name = f"fk_{table}_query_id"
    return sa.ForeignKeyConstraint(["query_id"], ["queries.id"], name=name, ondelete="CASCADE")


def _make_queries() -> None:
    op.create_table(
        "queries",
        _serial(),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("history", sa.JSON, nullable=False),
        sa.Column("progress", sa.JSON),
        sa.Column("result", sa.JSON),
        sa.Column("claimed_by", sa.Text),
        sa.Column("heartbeat_at", sa.Double),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("crashes", sa.Integer, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False, server_default=""),
        sa.Column("search", sa.JSON),
        sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
        sa.Column("pool", sa.JSON),
        sa.Column("pool_follows", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("replicas", sa.Integer),
        sa.Column("version", sa.Integer, nullable=False, server_default="1"),
        sa.PrimaryKeyConstraint("serial", name="pk_queries"),
        sa.UniqueConstraint("id", name="uq_queries_id"),
        sa.UniqueConstraint("idempotency_key", name="uq_queries_idempotency_key"),
    )
    op.create_index("ix_queries_phase_serial", "queries", ["phase", "serial"])
    op.create_index("ix_queries_tenant_serial", "queries", ["tenant", "serial"])
    op.create_index("ix_queries_claimed_by", "queries", ["claimed_by"])


def _make_what_belongs_to_a_query() -> None:
    op.create_table(
        "plans",
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("superseded_at", sa.Double),
        sa.PrimaryKeyConstraint("query_id", "id", name="pk_plans"),
        _of_query("plans"),
    )
    op.create_index("ix_plans_id", "plans", ["id"])
    op.create_index("ix_plans_query_id_position", "plans", ["query_id", "position"])
    op.create_table(
        "displacements",
        _serial(),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("by", sa.Text),
        sa.Column("moved", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("serial", name="pk_displacements"),
        _of_query("displacements"),
    )
    op.create_index("ix_displacements_query_id", "displacements", ["query_id"])
    op.create_index("ix_displacements_by", "displacements", ["by"])
    op.create_table(
        "checkpoints",
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("query_id", name="pk_checkpoints"),
        _of_query("checkpoints"),
    )
    op.create_table(
        "trials",
        _serial(),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("configuration", sa.Text, nullable=False),
        sa.Column("trial", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("serial", name="pk_trials"),
        sa.UniqueConstraint("query_id", "configuration", name="uq_trials_query_id_configuration"),
        _of_query("trials"),
    )
    op.create_table(
        "served_bills",
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("bill", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_served_bills"),
        _of_query("served_bills"),
    )
    op.create_index("ix_served_bills_query_id", "served_bills", ["query_id"])


def _make_measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("configuration", sa.Text, nullable=False),
        sa.Column("input", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("draw", sa.Integer, nullable=False, autoincrement=False, server_default="0"),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("score", sa.Double),
        sa.Column("operator_s", sa.LargeBinary, nullable=False),
        sa.Column("waited_s", sa.LargeBinary),
        sa.Column("output_bytes", sa.LargeBinary, nullable=False),
        sa.Column("input_bytes", sa.Double),
        sa.Column("spent_s", sa.Double, nullable=False),
        sa.Column("saved_s", sa.Double, nullable=False),
        sa.Column("runs", sa.Integer, nullable=False, server_default="0"),
        sa.Column("saved_runs", sa.Integer, nullable=False, server_default="0"),
        sa.Column("calls_s", sa.Double, nullable=False, server_default="0"),
        sa.Column("calls_usd", sa.Double, nullable=False, server_default="0"),
        sa.Column("used", sa.LargeBinary),
        sa.Column("varied", sa.Text),
        sa.Column("failed_operator", sa.Text),
        sa.Column("failure", sa.Text),
        sa.PrimaryKeyConstraint(
            "query_id", "configuration", "input", "draw", name="pk_measurements"
        ),
        _of_query("measurements"),
    )
    op.create_table(
        "spending",
        sa.Column("ticket", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("operator", sa.Text, nullable=False),
        sa.Column("reserved_usd", sa.Double, nullable=False),
        sa.Column("calls", sa.Double),
        sa.Column("input_tokens", sa.Double),
        sa.Column("cached_tokens", sa.Double),
        sa.Column("output_tokens", sa.Double),
        sa.Column("usd", sa.Double),
        sa.PrimaryKeyConstraint("ticket", "endpoint", name="pk_spending"),
        _of_query("spending"),
    )
    op.create_index("ix_spending_query_id", "spending", ["query_id"])


def _make_what_belongs_to_the_service() -> None:
    op.create_table(
        "schedule",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("schedule", sa.JSON, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False, server_default="1"),
        sa.PrimaryKeyConstraint("id", name="pk_schedule"),
    )
    op.create_table(
        "machines",
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("machines", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tier", name="pk_machines"),
    )
    op.create_table(
        "events",
        _serial(),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("query_id", sa.Text),
        sa.Column("words", sa.Text, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("serial", name="pk_events"),
    )
    op.create_index("ix_events_query_id_serial", "events", ["query_id", "serial"])
    op.create_table(
        "history",
        _serial(),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("record", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("serial", name="pk_history"),
        sa.UniqueConstraint("query", name="uq_history_query"),
    )
    op.create_index("ix_history_fingerprint_serial", "history", ["fingerprint", "serial"])
    op.create_table(
        "datasets",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("inputs", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_datasets"),
    )
    op.create_table(
        "routes",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("route", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_routes"),
    )
    op.create_table(
        "latencies",
        sa.Column("plan_id", sa.Text, nullable=False),
        sa.Column("learnt", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("plan_id", name="pk_latencies"),
    )
    _make_call_leases()


def _make_call_leases() -> None:
    figures = ("requests", "tokens", "slots", "until")
    needs = ("needs_requests", "needs_tokens", "needs_slots", "since")
    op.create_table(
        "call_leases",
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("grain", sa.BigInteger, nullable=False, autoincrement=False),
        *(sa.Column(name, sa.Double, nullable=False) for name in (*figures, *needs)),
        sa.PrimaryKeyConstraint("endpoint", "holder", "grain", name="pk_call_leases"),
    )
