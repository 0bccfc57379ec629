"""What happens, in the order of its commits, and what each search found of its configurations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make both tables, empty: of what was there before no events are told."""
    op.create_table(
        "events",
        sa.Column("serial", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("query_id", sa.Text),
        sa.Column("words", sa.Text, nullable=False),
        sa.Column("data", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("serial", name="pk_events"),
    )
    op.create_index("ix_events_query_id_serial", "events", ["query_id", "serial"])
    op.create_table(
        "trials",
        sa.Column("serial", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("configuration", sa.Text, nullable=False),
        sa.Column("trial", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("serial", name="pk_trials"),
        sa.ForeignKeyConstraint(
            ["query_id"], ["queries.id"], name="fk_trials_query_id_queries", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("query_id", "configuration", name="uq_trials_query_id_configuration"),
    )


def downgrade() -> None:
    """Forget both."""
    op.drop_table("trials")
    op.drop_table("events")
