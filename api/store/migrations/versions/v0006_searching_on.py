"""What is searched for while a query's old plans serve, and how often its plans were replaced."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns: nothing is searched for, and plans count as never replaced."""
    op.add_column("queries", sa.Column("search", sa.JSON, nullable=True))
    op.add_column("queries", sa.Column("revision", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    """Take them away."""
    with op.batch_alter_table("queries") as table:
        for name in ("search", "revision"):
            table.drop_column(name)
