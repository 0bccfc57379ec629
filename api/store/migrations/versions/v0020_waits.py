"""Seconds of operators in which they did not compute; of older measurements none are known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Make the column."""
    op.add_column("measurements", sa.Column("waited_s", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Take it away."""
    op.drop_column("measurements", "waited_s")
