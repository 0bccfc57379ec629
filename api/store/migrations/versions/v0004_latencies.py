"""What was learnt of the latencies of deployed plans."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "latencies",
        sa.Column("plan_id", sa.Text, nullable=False),
        sa.Column("learnt", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("plan_id", name="pk_latencies"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("latencies")
