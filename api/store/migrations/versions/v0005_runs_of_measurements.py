"""How many operator runs a measurement made, and how many a cache saved it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0001"

_COLUMNS = ("runs", "saved_runs")


def upgrade() -> None:
    """Add the columns; what was measured before is taken to have made no runs."""
    for name in _COLUMNS:
        op.add_column(
            "measurements", sa.Column(name, sa.Integer, nullable=False, server_default="0")
        )


def downgrade() -> None:
    """Take them away."""
    with op.batch_alter_table("measurements") as table:
        for name in _COLUMNS:
            table.drop_column(name)
