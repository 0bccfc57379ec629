"""What earlier queries measured, in the database: later ones on the same pipeline start from it.

Bounded: of all pipelines together the newest records are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, delete, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from api.documents import from_document, to_document
from api.store.engine import READ_ONLY, connect
from api.store.migrate import migrate
from api.store.tables import HistoryRow
from pipelines import checks
from pipelines.errors import InvalidInput, Unavailable
from planner.history import QueryRecord

MOST_RECORDS = 1_000
_FORM = 1
"""Of exported files: another number is another form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """What is kept of one version of a pipeline.

    Attributes:
        pipeline: Name.
        fingerprint: Of the version.
        queries: Number of records.
    """

    pipeline: str
    fingerprint: str
    queries: int


class SqlHistory:
    """A `planner.history.HistoryStore` on an engine whose tables exist.

    Args:
        engine: With the tables.
        most: Records kept, of all fingerprints together; the oldest go first, `>= 1`.
    """

    def __init__(self, engine: Engine, *, most: int = MOST_RECORDS) -> None:
        checks.require(most >= 1, "history.most", "must be >= 1", most)
        self._engine = engine
        self._most = most

    def record(self, query: QueryRecord) -> None:
        """See `HistoryStore.record`."""
        with Session(self._engine) as session, session.begin():
            session.execute(delete(HistoryRow).where(HistoryRow.query == query.query))
            session.add(
                HistoryRow(
                    query=query.query,
                    pipeline=query.fingerprint.split("@")[0],
                    fingerprint=query.fingerprint,
                    record=to_document(query),
                )
            )
            session.flush()
            newest = select(HistoryRow.serial).order_by(HistoryRow.serial.desc()).limit(self._most)
            session.execute(delete(HistoryRow).where(HistoryRow.serial.not_in(newest)))

    def earlier(self, fingerprint: str, most: int) -> Sequence[QueryRecord]:
        """See `HistoryStore.earlier`."""
        wanted = (
            select(HistoryRow)
            .where(HistoryRow.fingerprint == fingerprint)
            .order_by(HistoryRow.serial.desc())
            .limit(max(most, 0))
        )
        return tuple(from_document(QueryRecord, row.record) for row in self._rows(wanted))

    def summaries(self) -> tuple[HistorySummary, ...]:
        """Give what is kept, by pipeline and version."""
        wanted = (
            select(HistoryRow.pipeline, HistoryRow.fingerprint, func.count())
            .group_by(HistoryRow.pipeline, HistoryRow.fingerprint)
            .order_by(HistoryRow.pipeline, HistoryRow.fingerprint)
        )
        with self._engine.connect().execution_options(**READ_ONLY) as connection:
            return tuple(
                HistorySummary(pipeline=pipeline, fingerprint=fingerprint, queries=count)
                for pipeline, fingerprint, count in connection.execute(wanted)
            )

    def exported(self) -> dict[str, object]:
        """Give everything as one document, the oldest record first; `imported` takes it."""
        rows = self._rows(select(HistoryRow).order_by(HistoryRow.serial))
        return {"circinus_history": _FORM, "records": [row.record for row in rows]}

    def imported(self, document: object) -> int:
        """Take in what `exported` gave, all or nothing; give how many records it has.

        Raises:
            InvalidInput: If it is no such document, or a record breaks a rule.
        """
        records = _records(document)
        for record in records:
            self.record(record)
        return len(records)

    def close(self) -> None:
        """Let go of connections."""
        self._engine.dispose()

    def _rows(self, wanted: object) -> tuple[HistoryRow, ...]:
        with (
            self._engine.connect().execution_options(**READ_ONLY) as connection,
            Session(connection, expire_on_commit=False) as session,
        ):
            return tuple(session.scalars(wanted))  # type: ignore[call-overload]  # a select of rows


def open_history(url: str) -> SqlHistory:
    """Give the history in a database, brought up to date.

    Raises:
        InvalidInput: If it is no database URL.
        Unavailable: If the database cannot be opened.
    """
    try:
        engine = connect(url)
        migrate(engine)
    except (OSError, SQLAlchemyError) as error:
        reason = f"the history cannot be opened ({type(error).__name__})"
        raise Unavailable(reason, retry_after_s=1.0) from error
    return SqlHistory(engine)


def _records(document: object) -> list[QueryRecord]:
    form = document.get("circinus_history") if isinstance(document, dict) else None
    checks.require(form == _FORM, "history", f"must be an export of form {_FORM}", form)
    records = document.get("records") if isinstance(document, dict) else None
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise InvalidInput.of("history.records", "must be a list of records", records)
    return [from_document(QueryRecord, one) for one in records]
