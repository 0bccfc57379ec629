"""What calling endpoints cost the planning of a query, in the database.

Each reservation is a commit of its own, made before the call: whatever is killed then, its largest
cost stays in the bill. Reservations of one query are made one at a time, by however many
processes, so that together they stay below the limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Engine, func, select, update

from circinus.api.store.engine import insertion, one_at_a_time, reading, writing
from circinus.api.store.queue import require_claim
from circinus.api.store.tables import SpendingRow
from circinus.pipelines.execution.calling import Leave
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
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

    def reserve(self, leave: Leave, limit_usd: float) -> bool:
        """See `Ledger`."""
        each = {endpoint: reserved_usd(most) for endpoint, most in leave.most.items()}
        mine = SpendingRow.query_id == self.query_id
        with writing(self._engine) as session:
            one_at_a_time(session, f"spending of {self.query_id}")
            require_claim(session, self.query_id, self.worker)
            known = select(func.count()).where(SpendingRow.ticket == leave.ticket)
            if session.scalar(known):
                return True  # nobody knew whether it had arrived
            paid_usd = float(session.scalar(select(_PAID).where(mine)) or 0.0)
            if paid_usd + sum(each.values()) > limit_usd:
                return False
            session.add_all(
                SpendingRow(
                    ticket=leave.ticket,
                    endpoint=endpoint,
                    query_id=self.query_id,
                    operator=leave.operator,
                    reserved_usd=usd,
                )
                for endpoint, usd in each.items()
            )
        return True

    def settle(self, leave: Leave, used: Mapping[str, Usage]) -> None:
        """See `Ledger`; what was used of endpoints that nothing was reserved of is added."""
        insert = insertion(self._engine, SpendingRow).on_conflict_do_nothing()
        with writing(self._engine) as session:
            for endpoint in leave.most:
                figures = used.get(endpoint, NOTHING_USED).told._asdict()
                session.execute(
                    update(SpendingRow)
                    .where(SpendingRow.ticket == leave.ticket, SpendingRow.endpoint == endpoint)
                    .where(SpendingRow.usd.is_(None))
                    .values(**figures)
                )
            for endpoint in used.keys() - leave.most.keys():
                row = {
                    "ticket": leave.ticket,
                    "endpoint": endpoint,
                    "query_id": self.query_id,
                    "operator": leave.operator,
                    "reserved_usd": 0.0,
                    **used[endpoint].told._asdict(),
                }
                session.connection().execute(insert, row)

    def spent(self) -> Mapping[str, Spent]:
        """See `Ledger`."""
        settled = SpendingRow.usd.is_not(None)
        open_usd = func.sum(SpendingRow.reserved_usd).filter(~settled)
        wanted = select(SpendingRow.operator, open_usd, *_USED)
        wanted = wanted.where(SpendingRow.query_id == self.query_id).group_by(SpendingRow.operator)
        with reading(self._engine) as session:
            found = session.execute(wanted).all()
        return {
            operator: NOTHING_SPENT.plus(Spent(Usage(*(f or 0.0 for f in used)), usd or 0.0))
            for operator, usd, *used in found
        }
