"""Leases of rate limits in the database, for all processes that call the same endpoints.

What an exchange comes to is worked out in `profiler.leases`. The one rule: between reading what is
kept of an endpoint and storing what becomes of it nobody else does either; and it is dated by one
clock, the database's own, because clocks of hosts differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import ColumnClause, Engine, Row, delete, insert, literal_column, select
from sqlalchemy.orm import Session

from circinus.api.store.engine import one_at_a_time, reading, writing
from circinus.api.store.tables import CallLeaseRow
from circinus.pipelines.clock import Clock
from circinus.profiler.leases import (
    NO_ALLOWANCE,
    Allowance,
    LeaseRecord,
    LeaseRecords,
    LeaseReply,
    LeaseReport,
    LeaseTimes,
    exchanged,
)

_TABLE = CallLeaseRow.__table__
_POSTGRES_NOW: ColumnClause[float] = literal_column(
    "extract(epoch from clock_timestamp())::double precision"
)
_SQLITE_NOW: ColumnClause[float] = literal_column("(julianday('now') - 2440587.5) * 86400.0")


class StoreLeases:
    """Keeps who has what of the limits, see `Leases`. Safe to share between processes.

    Without a clock the database tells the time. Unavailable as `DatabaseFailed`.
    """

    def __init__(
        self, engine: Engine, *, times: LeaseTimes | None = None, clock: Clock | None = None
    ) -> None:
        self._engine = engine
        self._times = times or LeaseTimes()
        self._clock = clock

    @property
    def times(self) -> LeaseTimes:
        """Return the times by which it counts."""
        return self._times

    def exchange(self, report: LeaseReport) -> LeaseReply:
        """See `Leases`."""
        looked = self._looked(report)
        if looked is not None:
            return looked
        with writing(self._engine) as session:
            one_at_a_time(session, f"leases of {report.endpoint}")
            now, kept = self._now(session), _kept(session, report.endpoint)
            after, reply = exchanged(kept, report, now, self._times)
            _keep(session, report.endpoint, kept, after)
        return reply

    def _looked(self, report: LeaseReport) -> LeaseReply | None:
        """Return the reply to a holder that waits on and is known to; None: there is more to it.

        Who waits looks often, and locks nothing.
        """
        if report.ended or report.needs == NO_ALLOWANCE:
            return None
        with reading(self._engine) as session:
            now, kept = self._now(session), _kept(session, report.endpoint)
        after, reply = exchanged(kept, report, now, self._times)
        before, own = (each.get((report.holder, 0)) for each in (kept, after))
        if before is None or own is None or reply.granted != NO_ALLOWANCE:
            return None
        left_s = before.until - now
        if replace(own, until=before.until, since=before.since) != before:
            return None
        return replace(reply, good_s=left_s) if left_s > self._times.lapse_s / 2 else None

    def _now(self, session: Session) -> float:
        if self._clock is not None:
            return self._clock.timestamp()
        is_postgres = self._engine.dialect.name == "postgresql"
        return float(
            session.execute(select(_POSTGRES_NOW if is_postgres else _SQLITE_NOW)).scalar_one()
        )


def _kept(session: Session, endpoint: str) -> LeaseRecords:
    found = session.execute(select(_TABLE).where(_TABLE.c.endpoint == endpoint))
    return {record.key: record for record in map(_record, found)}


def _record(row: Row[tuple[object, ...]]) -> LeaseRecord:
    told = row._mapping
    return LeaseRecord(
        holder=told["holder"],
        grain=told["grain"],
        counted=Allowance(*(told[name] for name in Allowance._fields)),
        until=told["until"],
        needs=Allowance(*(told[f"needs_{name}"] for name in Allowance._fields)),
        since=told["since"],
    )


def _columns(endpoint: str, record: LeaseRecord) -> Mapping[str, str | float]:
    needs = {f"needs_{name}": value for name, value in record.needs._asdict().items()}
    keys = {"endpoint": endpoint, "holder": record.holder, "grain": record.grain}
    dates = {"until": record.until, "since": record.since}
    return {**keys, **record.counted._asdict(), **dates, **needs}


def _keep(session: Session, endpoint: str, before: LeaseRecords, after: LeaseRecords) -> None:
    """Store what became of the records of an endpoint."""
    gone = [key for key, record in before.items() if after.get(key) != record]
    new = [record for key, record in after.items() if before.get(key) != record]
    _forget(session, endpoint, gone)
    if new:
        session.execute(insert(CallLeaseRow), [_columns(endpoint, each) for each in new])


def _forget(session: Session, endpoint: str, keys: Sequence[tuple[str, int]]) -> None:
    of_endpoint = _TABLE.c.endpoint == endpoint
    grains = [grain for holder, grain in keys if not holder]
    holders = [holder for holder, _ in keys if holder]
    if grains:
        used_up = (_TABLE.c.holder == "") & _TABLE.c.grain.in_(grains)
        session.execute(delete(CallLeaseRow).where(of_endpoint, used_up))
    if holders:
        session.execute(delete(CallLeaseRow).where(of_endpoint, _TABLE.c.holder.in_(holders)))
