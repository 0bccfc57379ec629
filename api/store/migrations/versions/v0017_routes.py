"""Routes over deployment units that the service was told to serve."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "routes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("route", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_routes"),
    )


def downgrade() -> None:
    """Take it away."""
    op.drop_table("routes")
