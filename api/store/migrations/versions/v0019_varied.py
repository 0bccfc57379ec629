"""Which operators answered a measured input differently when they ran once more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add the column; of what was measured until now it is not known."""
    with op.batch_alter_table("measurements") as table:
        table.add_column(sa.Column("varied", sa.Text(), nullable=True))


def downgrade() -> None:
    """Take it away."""
    with op.batch_alter_table("measurements") as table:
        table.drop_column("varied")
