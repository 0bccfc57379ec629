"""All tables of the first release. Further migrations add later tables and columns.

Names of keys and indices follow the convention of `api.store.tables`.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "1001"  # 0001 to 0020 were of databases before the first release
down_revision = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_Type = type[TypeEngine[Any]]


def upgrade() -> None:
    """Make the tables."""
    _make_queries()
    _make_what_belongs_to_a_query()
    _make_measurements()
    _make_what_belongs_to_the_service()


def _serial() -> sa.Column[int]:
    return sa.Column("serial", _SERIAL, primary_key=True, autoincrement=True)


def _key(name: str, kind: _Type = sa.Text) -> sa.Column[object]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _needed(kind: _Type, *names: str, default: str | None = None) -> list[sa.Column[object]]:
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names]


def _optional(kind: _Type, *names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, kind) for name in names]


def _query_id(*, key: bool = False, index: bool = False) -> sa.Column[str]:
    """Return a column whose rows are removed with their query."""
    query = sa.ForeignKey("queries.id", ondelete="CASCADE")
    return sa.Column("query_id", sa.Text, query, primary_key=key, nullable=False, index=index)


def _make_queries() -> None:
    op.create_table(
        "queries",
        _serial(),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("idempotency_key", sa.Text, unique=True),
        *_needed(sa.Text, "fingerprint"),
        *_needed(sa.JSON, "spec"),
        *_needed(sa.Text, "phase", "message"),
        *_needed(sa.JSON, "history"),
        *_optional(sa.JSON, "progress", "result"),
        sa.Column("claimed_by", sa.Text, index=True),
        *_optional(sa.Double, "heartbeat_at"),
        *_needed(sa.Boolean, "cancel_requested"),
        *_needed(sa.Integer, "crashes"),
        *_needed(sa.Text, "tenant", default=""),
        *_optional(sa.JSON, "search"),
        *_needed(sa.Integer, "revision", default="0"),
        *_optional(sa.JSON, "pool"),
        sa.Column("pool_follows", sa.Boolean, nullable=False, server_default=sa.false()),
        *_optional(sa.Integer, "replicas"),
        *_needed(sa.Integer, "version", default="1"),
        sa.Index(None, "phase", "serial"),
        sa.Index(None, "tenant", "serial"),
    )


def _make_what_belongs_to_a_query() -> None:
    op.create_table(
        "plans",
        _query_id(key=True),
        sa.Column("id", sa.Text, primary_key=True, index=True),
        *_needed(sa.Integer, "position"),
        *_needed(sa.JSON, "plan"),
        *_optional(sa.Double, "superseded_at"),
        sa.Index(None, "query_id", "position"),
    )
    op.create_table(
        "displacements",
        _serial(),
        *_needed(sa.Double, "at"),
        _query_id(index=True),
        sa.Column("by", sa.Text, index=True),
        *_needed(sa.Boolean, "moved"),
    )
    op.create_table("checkpoints", _query_id(key=True), *_needed(sa.JSON, "document"))
    op.create_table(
        "trials",
        _serial(),
        _query_id(),
        *_needed(sa.Text, "configuration"),
        *_needed(sa.JSON, "trial"),
        sa.UniqueConstraint("query_id", "configuration"),
    )
    op.create_table("served_bills", _key("run"), _query_id(index=True), *_needed(sa.JSON, "bill"))


def _make_measurements() -> None:
    op.create_table(
        "measurements",
        _query_id(key=True),
        _key("configuration"),
        _key("input", sa.Integer),
        sa.Column("draw", sa.Integer, primary_key=True, autoincrement=False, server_default="0"),
        *_needed(sa.Integer, "times"),
        *_optional(sa.Double, "score"),
        *_needed(sa.LargeBinary, "operator_s"),
        *_optional(sa.LargeBinary, "waited_s"),
        *_needed(sa.LargeBinary, "output_bytes"),
        *_optional(sa.Double, "input_bytes"),
        *_needed(sa.Double, "spent_s", "saved_s"),
        *_needed(sa.Integer, "runs", "saved_runs", default="0"),
        *_needed(sa.Double, "calls_s", "calls_usd", default="0"),
        *_optional(sa.LargeBinary, "used"),
        *_optional(sa.Text, "varied", "failed_operator", "failure"),
    )
    op.create_table(
        "spending",
        _key("ticket"),
        _key("endpoint"),
        _query_id(index=True),
        *_needed(sa.Text, "operator"),
        *_needed(sa.Double, "reserved_usd"),
        *_optional(sa.Double, "calls", "input_tokens", "cached_tokens", "output_tokens", "usd"),
    )


def _make_what_belongs_to_the_service() -> None:
    op.create_table(
        "schedule",
        _key("id", sa.Integer),
        *_needed(sa.JSON, "schedule"),
        *_needed(sa.Double, "at"),
        *_needed(sa.Integer, "revision", default="1"),
    )
    op.create_table(
        "machines", _key("tier"), *_needed(sa.Integer, "machines"), *_needed(sa.Double, "at")
    )
    op.create_table(
        "events",
        _serial(),
        *_needed(sa.Double, "at"),
        *_needed(sa.Text, "kind"),
        *_optional(sa.Text, "query_id"),
        *_needed(sa.Text, "words"),
        *_needed(sa.JSON, "data"),
        sa.Index(None, "query_id", "serial"),
    )
    op.create_table(
        "history",
        _serial(),
        sa.Column("query", sa.Text, nullable=False, unique=True),
        *_needed(sa.Text, "pipeline", "fingerprint"),
        *_needed(sa.JSON, "record"),
        sa.Index(None, "fingerprint", "serial"),
    )
    op.create_table(
        "datasets",
        _key("id"),
        *_needed(sa.Text, "kind"),
        *_needed(sa.BigInteger, "size_bytes"),
        *_needed(sa.Integer, "inputs"),
        *_needed(sa.Double, "created_at"),
        *_needed(sa.LargeBinary, "content"),
    )
    op.create_table("routes", _key("name"), *_needed(sa.JSON, "route"))
    op.create_table("latencies", _key("plan_id"), *_needed(sa.JSON, "learnt"))
    op.create_table(
        "call_leases",
        *(_key("endpoint"), _key("holder"), _key("grain", sa.BigInteger)),
        *_needed(sa.Double, "requests", "tokens", "slots", "until"),
        *_needed(sa.Double, "needs_requests", "needs_tokens", "needs_slots", "since"),
    )
