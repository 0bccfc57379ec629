"""When other plans of its query took the place of a plan."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the column: all plans that are stored are plans of now."""
    op.add_column("plans", sa.Column("superseded_at", sa.Double(), nullable=True))


def downgrade() -> None:
    """Take it away, with the plans that were superseded."""
    op.execute("DELETE FROM plans WHERE superseded_at IS NOT NULL")
    with op.batch_alter_table("plans") as table:
        table.drop_column("superseded_at")
