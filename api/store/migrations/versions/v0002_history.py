"""What earlier queries measured; what the measurements of a query were made for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0005"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "history",
        sa.Column("serial", _SERIAL, nullable=False, autoincrement=True),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("record", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("serial", name="pk_history"),
        sa.UniqueConstraint("query", name="uq_history_query"),
    )
    op.create_index("ix_history_fingerprint_serial", "history", ["fingerprint", "serial"])
    op.create_table(
        "checkpoints",
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("query_id", name="pk_checkpoints"),
        sa.ForeignKeyConstraint(
            ["query_id"], ["queries.id"], name="fk_checkpoints_query_id", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("checkpoints")
    op.drop_table("history")
