"""What serving queries used of endpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_TABLE = "served_bills"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        _TABLE,
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("query_id", sa.Text(), nullable=False),
        sa.Column("bill", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["query_id"],
            ["queries.id"],
            name="fk_served_bills_query_id_queries",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run", name="pk_served_bills"),
    )
    op.create_index("ix_served_bills_query_id", _TABLE, ["query_id"])


def downgrade() -> None:
    """Take it away."""
    op.drop_table(_TABLE)
