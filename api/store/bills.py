"""What serving queries used of endpoints: a row for each run of a plan, written now and then."""

from __future__ import annotations

from sqlalchemy import Engine, select

from circinus.api.store.documents import from_document, to_document
from circinus.api.store.engine import insertion, rows, writing
from circinus.api.store.tables import ServedBillRow
from circinus.deploy.runtime.served_bill import ServedBill


class SqlBills:
    """A `deploy.runtime.served_bill.BillMemory`, and what reads it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        insert = insertion(engine, ServedBillRow)
        renewed = {"bill": insert.excluded.bill}
        self._upsert = insert.on_conflict_do_update(index_elements=["run"], set_=renewed)

    def keep(self, run: str, query_id: str, bill: ServedBill) -> None:
        """See `BillMemory.keep`."""
        told = {"run": run, "query_id": query_id, "bill": to_document(bill)}
        with writing(self._engine) as session:
            session.execute(self._upsert, told)

    def of(self, query_id: str) -> tuple[ServedBill, ...]:
        """Return what each plan of a query came to, all of its runs; empty if none called."""
        wanted = select(ServedBillRow).where(ServedBillRow.query_id == query_id)
        found: dict[str, ServedBill] = {}
        for row in rows(self._engine, wanted):
            bill = from_document(ServedBill, row.bill)
            before = found.get(bill.plan_id)
            found[bill.plan_id] = bill if before is None else before.plus(bill)
        return tuple(found[plan_id] for plan_id in sorted(found))
