"""What calling endpoints cost the planning of a query, in the database.

Each reservation is a commit of its own, made before the call: whatever is killed then, its largest
cost stays in the bill. Reservations of one query are made one at a time, by however many
processes, so that together they stay below the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import (
    ColumnClause,
    Engine,
    Row,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.orm import Session

from circinus.api.store.engine import insertion, one_at_a_time, reading, writing
from circinus.api.store.queue import require_claim
from circinus.api.store.tables import CallLeaseRow, SpendingRow
from circinus.pipelines.clock import Clock
from circinus.pipelines.execution.calling import Permit
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
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
from circinus.profiler.spending import NOTHING_SPENT, Spent, reserved_usd

_PAID = func.coalesce(func.sum(func.coalesce(SpendingRow.usd, SpendingRow.reserved_usd)), 0.0)
_USED = tuple(func.sum(getattr(SpendingRow, name)) for name in Usage._fields)


class SqlLedger:
    """A `profiler.spending.Ledger` of one query, which must be stored.

    To reserve, `worker` must hold the query, else ClaimLost; None: anybody may.
    """

    def __init__(self, engine: Engine, query_id: str, worker: str | None = None) -> None:
        self.query_id, self.worker = query_id, worker
        self._engine = engine

    def reserve(self, permit: Permit, limit_usd: float) -> bool:
        """Reserve the largest cost of a call; return whether the limit allows it."""
        each = {endpoint: reserved_usd(most) for endpoint, most in permit.most.items()}
        mine = SpendingRow.query_id == self.query_id
        with writing(self._engine) as session:
            one_at_a_time(session, f"spending of {self.query_id}")
            require_claim(session, self.query_id, self.worker)
            known = select(func.count()).where(SpendingRow.ticket == permit.ticket)
            if session.scalar(known):
                return True  # it was unknown whether it had arrived
            paid_usd = float(session.scalar(select(_PAID).where(mine)) or 0.0)
            if paid_usd + sum(each.values()) > limit_usd:
                return False
            session.add_all(
                SpendingRow(
                    ticket=permit.ticket,
                    endpoint=endpoint,
                    query_id=self.query_id,
                    operator=permit.operator,
                    reserved_usd=usd,
                )
                for endpoint, usd in each.items()
            )
        return True

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Replace what a call reserved by what it used; other endpoints that it used are added."""
        insert = insertion(self._engine, SpendingRow).on_conflict_do_nothing()
        with writing(self._engine) as session:
            for endpoint in permit.most:
                figures = used.get(endpoint, NOTHING_USED).finite._asdict()
                session.execute(
                    update(SpendingRow)
                    .where(SpendingRow.ticket == permit.ticket, SpendingRow.endpoint == endpoint)
                    .where(SpendingRow.usd.is_(None))
                    .values(**figures)
                )
            for endpoint in used.keys() - permit.most.keys():
                row = {
                    "ticket": permit.ticket,
                    "endpoint": endpoint,
                    "query_id": self.query_id,
                    "operator": permit.operator,
                    "reserved_usd": 0.0,
                    **used[endpoint].finite._asdict(),
                }
                session.connection().execute(insert, row)

    def spent(self) -> Mapping[str, Spent]:
        """Return what calls cost, by operator."""
        settled = SpendingRow.usd.is_not(None)
        open_usd = func.sum(SpendingRow.reserved_usd).filter(~settled)
        wanted = select(SpendingRow.operator, open_usd, *_USED)
        wanted = wanted.where(SpendingRow.query_id == self.query_id).group_by(SpendingRow.operator)
        with reading(self._engine) as session:
            rows = session.execute(wanted).all()
        return {
            operator: NOTHING_SPENT.plus(Spent(Usage(*(f or 0.0 for f in used)), usd or 0.0))
            for operator, usd, *used in rows
        }


_TABLE = CallLeaseRow.__table__
_POSTGRES_NOW: ColumnClause[float] = literal_column(
    "extract(epoch from clock_timestamp())::double precision"
)
_SQLITE_NOW: ColumnClause[float] = literal_column("(julianday('now') - 2440587.5) * 86400.0")


class StoreLeases:
    """Stores the leases on limits, see `Leases`. Safe to share between processes.

    Without a clock it uses the database's time. Unavailable as `DatabaseFailed`.
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
        """Count what a holder used, and lease it what it needs."""
        reply = self._reply_without_change(report)
        if reply is not None:
            return reply
        with writing(self._engine) as session:
            one_at_a_time(session, f"leases of {report.endpoint}")
            now, records = self._now(session), _records(session, report.endpoint)
            after, reply = exchanged(records, report, now, self._times)
            _keep(session, report.endpoint, records, after)
        return reply

    def _reply_without_change(self, report: LeaseReport) -> LeaseReply | None:
        """Return the reply to a holder that waits on and is known to; None: there is more to it.

        Who waits looks often, and locks nothing.
        """
        if report.ended or report.needs == NO_ALLOWANCE:
            return None
        with reading(self._engine) as session:
            now, records = self._now(session), _records(session, report.endpoint)
        after, reply = exchanged(records, report, now, self._times)
        before, own = (each.get((report.holder, 0)) for each in (records, after))
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


def _records(session: Session, endpoint: str) -> LeaseRecords:
    leases = session.execute(select(_TABLE).where(_TABLE.c.endpoint == endpoint))
    return {record.key: record for record in map(_record, leases)}


def _record(row: Row[tuple[object, ...]]) -> LeaseRecord:
    columns = row._mapping
    return LeaseRecord(
        holder=columns["holder"],
        grain=columns["grain"],
        counted=Allowance(*(columns[name] for name in Allowance._fields)),
        until=columns["until"],
        needs=Allowance(*(columns[f"needs_{name}"] for name in Allowance._fields)),
        since=columns["since"],
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
