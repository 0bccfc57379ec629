"""What measurements used of endpoints, and what that cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_COLUMNS = ("calls_s", "calls_usd")


def upgrade() -> None:
    """Add the columns: nothing was called until now."""
    for name in _COLUMNS:
        added: sa.Column[float] = sa.Column(name, sa.Double(), nullable=False, server_default="0")
        op.add_column("measurements", added)
    op.add_column("measurements", sa.Column("used", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Take them away."""
    with op.batch_alter_table("measurements") as table:
        for name in ("used", *_COLUMNS):
            table.drop_column(name)
