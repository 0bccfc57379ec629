"""The first tables: queries, plans, the schedule, measurements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    _make_queries()
    op.create_table(
        "plans",
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("query_id", "id", name="pk_plans"),
        sa.ForeignKeyConstraint(
            ["query_id"], ["queries.id"], name="fk_plans_query_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_plans_id", "plans", ["id"])
    op.create_index("ix_plans_query_id_position", "plans", ["query_id", "position"])
    op.create_table(
        "schedule",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("schedule", sa.JSON, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_schedule"),
    )
    _make_measurements()


def _make_queries() -> None:
    op.create_table(
        "queries",
        sa.Column("serial", _SERIAL, nullable=False, autoincrement=True),
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
        sa.PrimaryKeyConstraint("serial", name="pk_queries"),
        sa.UniqueConstraint("id", name="uq_queries_id"),
        sa.UniqueConstraint("idempotency_key", name="uq_queries_idempotency_key"),
    )
    op.create_index("ix_queries_phase_serial", "queries", ["phase", "serial"])
    op.create_index("ix_queries_claimed_by", "queries", ["claimed_by"])


def _make_measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("configuration", sa.Text, nullable=False),
        sa.Column("input", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("score", sa.Double),
        sa.Column("operator_s", sa.LargeBinary, nullable=False),
        sa.Column("output_bytes", sa.LargeBinary, nullable=False),
        sa.Column("input_bytes", sa.Double),
        sa.Column("spent_s", sa.Double, nullable=False),
        sa.Column("saved_s", sa.Double, nullable=False),
        sa.Column("failed_operator", sa.Text),
        sa.Column("failure", sa.Text),
        sa.PrimaryKeyConstraint("query_id", "configuration", "input", name="pk_measurements"),
        sa.ForeignKeyConstraint(
            ["query_id"], ["queries.id"], name="fk_measurements_query_id", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    """Drop them all."""
    for table in ("measurements", "schedule", "plans", "queries"):
        op.drop_table(table)
