"""How many replicas a query should have, where somebody says so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the column: replicas follow the rate of requests."""
    op.add_column("queries", sa.Column("replicas", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Take it away."""
    with op.batch_alter_table("queries") as table:
        table.drop_column("replicas")
