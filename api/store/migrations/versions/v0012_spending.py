"""What calls for a query may cost, and did: reserved before each, settled after it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_USED = ("calls", "input_tokens", "cached_tokens", "output_tokens", "usd")


def upgrade() -> None:
    """Make the table."""
    used: list[sa.Column[float]] = [sa.Column(name, sa.Double(), nullable=True) for name in _USED]
    op.create_table(
        "spending",
        sa.Column("ticket", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("query_id", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("reserved_usd", sa.Double(), nullable=False),
        *used,
        sa.PrimaryKeyConstraint("ticket", "endpoint", name="pk_spending"),
        sa.ForeignKeyConstraint(
            ["query_id"], ["queries.id"], name="fk_spending_query_id_queries", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_spending_query_id", "spending", ["query_id"])


def downgrade() -> None:
    """Take it away."""
    op.drop_table("spending")
