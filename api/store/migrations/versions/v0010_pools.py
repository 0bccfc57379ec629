"""Which mix of machine types should serve a query, and whether it follows the requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the columns: queries are served by their plans' own replicas."""
    op.add_column("queries", sa.Column("pool", sa.JSON(none_as_null=True), nullable=True))
    follows: sa.Column[bool] = sa.Column(
        "pool_follows", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("queries", follows)


def downgrade() -> None:
    """Take them away."""
    with op.batch_alter_table("queries") as table:
        table.drop_column("pool_follows")
        table.drop_column("pool")
