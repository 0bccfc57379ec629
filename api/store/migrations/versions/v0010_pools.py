"""Which mix of machine types should serve a query."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column: queries are served by their plans' own replicas."""
    op.add_column("queries", sa.Column("pool", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Take it away."""
    with op.batch_alter_table("queries") as table:
        table.drop_column("pool")
