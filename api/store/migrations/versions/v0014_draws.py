"""Which draw of an input was measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_KEY = ["query_id", "configuration", "input"]


def upgrade() -> None:
    """Make it part of the key: all that was measured until now were first draws."""
    added = sa.Column("draw", sa.Integer(), nullable=False, server_default="0")
    with op.batch_alter_table("measurements") as table:
        table.add_column(added)
    with op.batch_alter_table("measurements") as table:
        table.drop_constraint("pk_measurements", type_="primary")
        table.create_primary_key("pk_measurements", [*_KEY, "draw"])


def downgrade() -> None:
    """Take it away, and further draws with it."""
    op.execute("DELETE FROM measurements WHERE draw > 0")
    with op.batch_alter_table("measurements") as table:
        table.drop_constraint("pk_measurements", type_="primary")
        table.create_primary_key("pk_measurements", _KEY)
    with op.batch_alter_table("measurements") as table:
        table.drop_column("draw")
