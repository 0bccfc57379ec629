"""Tenants of queries, machines set while the service runs, who displaced whom."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_SCHEDULE = sa.table("schedule", sa.column("schedule", sa.JSON), sa.column("at", sa.Double))


def upgrade() -> None:
    """Make the tables, and let the stored schedule say when and on what it was made."""
    op.add_column("queries", sa.Column("tenant", sa.Text, nullable=False, server_default=""))
    op.create_index("ix_queries_tenant_serial", "queries", ["tenant", "serial"])
    op.add_column(
        "schedule", sa.Column("revision", sa.Integer, nullable=False, server_default="1")
    )
    op.create_table(
        "machines",
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("machines", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tier", name="pk_machines"),
    )
    op.create_table(
        "displacements",
        sa.Column("serial", _SERIAL, nullable=False, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("by", sa.Text),
        sa.Column("moved", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("serial", name="pk_displacements"),
        sa.ForeignKeyConstraint(
            ["query_id"], ["queries.id"], name="fk_displacements_query_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_displacements_query_id", "displacements", ["query_id"])
    op.create_index("ix_displacements_by", "displacements", ["by"])
    _wrap_schedule()


def _wrap_schedule() -> None:
    connection = op.get_bind()
    for old, at in connection.execute(sa.select(_SCHEDULE.c.schedule, _SCHEDULE.c.at)).all():
        new = {"schedule": old, "made_at": at, "machines": {}, "since": {}, "overdue": []}
        connection.execute(sa.update(_SCHEDULE).values(schedule=new))


def downgrade() -> None:
    """Drop them, and what the stored schedule says beside who is served."""
    connection = op.get_bind()
    for new in connection.scalars(sa.select(_SCHEDULE.c.schedule)).all():
        connection.execute(sa.update(_SCHEDULE).values(schedule=new["schedule"]))
    op.drop_table("displacements")
    op.drop_table("machines")
    op.drop_column("schedule", "revision")
    op.drop_index("ix_queries_tenant_serial", "queries")
    op.drop_column("queries", "tenant")
