"""How planning ended, without what is stored elsewhere, and a number that changes with a query."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_QUERIES = sa.table("queries", sa.column("serial", sa.BigInteger), sa.column("result", sa.JSON))
_MEASURED = "configurations"  # kept in the history of the pipeline, too


def upgrade() -> None:
    """Add the number; of each result keep the cheapest plan, as `best`, and count the others."""
    op.add_column("queries", sa.Column("version", sa.Integer, nullable=False, server_default="1"))
    _change(_lightened)


def downgrade() -> None:
    """Take the number away; a result has the cheapest plan alone, and nothing measured."""
    with op.batch_alter_table("queries") as table:
        table.drop_column("version")
    _change(lambda result: {**result, "plans": [best] if (best := result.get("best")) else []})


def _lightened(result: dict[str, Any]) -> dict[str, Any]:
    plans = result["plans"] if isinstance(result.get("plans"), list) else []
    kept = {name: told for name, told in result.items() if name != _MEASURED}
    return {**kept, "plans": len(plans), "best": next(iter(plans), None)}


def _change(by: Any) -> None:  # noqa: ANN401
    connection = op.get_bind()
    there = sa.select(_QUERIES.c.serial).where(_QUERIES.c.result.is_not(None))
    for serial in connection.scalars(there).all():  # one at a time: each may be large
        mine = _QUERIES.c.serial == serial
        result = connection.scalar(sa.select(_QUERIES.c.result).where(mine))
        if isinstance(result, dict):
            connection.execute(sa.update(_QUERIES).where(mine).values(result=by(result)))
