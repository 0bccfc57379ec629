"""Who has what of the rate limits of endpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the table: nothing is leased yet."""
    figures = ("requests", "tokens", "slots", "until", "needs_requests", "needs_tokens")
    op.create_table(
        "call_leases",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("grain", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=False) for name in figures),
        sa.Column("needs_slots", sa.Double(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", "holder", "grain", name="pk_call_leases"),
    )


def downgrade() -> None:
    """Take it away."""
    op.drop_table("call_leases")
