"""Data sets that users handed over, in the database: every process of a service reaches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Engine, delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from circinus.api.phases import REPLANNABLE, UNFINISHED
from circinus.api.store.engine import reading, rows, writing
from circinus.api.store.query_rows import QueryRow
from circinus.api.store.records import Conflict, NotFound, record_of
from circinus.api.store.tables import DatasetRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDataset:
    """The metadata of a data set."""

    id: str  # of its content: the same content has the same id
    kind: str  # `jsonl`, or `zip` of a folder
    size_bytes: int  # of the content as it was handed over
    inputs: int
    created_at: float  # seconds since the epoch


class SqlDatasets:
    """Stores data sets on an engine whose tables exist. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, dataset: StoredDataset, content: bytes) -> tuple[StoredDataset, bool]:
        """Store a data set; return it, as stored first, and whether it is new."""
        try:
            with writing(self._engine) as session:
                session.add(DatasetRow(**asdict(dataset), content=content))
        except IntegrityError:  # it is there already
            return self.get(dataset.id), False
        return dataset, True

    def get(self, dataset_id: str) -> StoredDataset:
        """Return the metadata of one; NotFound if there is none of that id."""
        wanted = select(DatasetRow).where(DatasetRow.id == dataset_id)
        if not (stored := rows(self._engine, wanted)):
            raise NotFound("dataset", dataset_id)
        return record_of(StoredDataset, stored[0])

    def content(self, dataset_id: str) -> bytes:
        """Return the content as it was handed over; NotFound if there is none of that id."""
        with reading(self._engine) as session:
            wanted = select(DatasetRow.content).where(DatasetRow.id == dataset_id)
            content = session.scalar(wanted)
        if content is None:
            raise NotFound("dataset", dataset_id)
        return bytes(content)

    def all(self) -> tuple[StoredDataset, ...]:
        """Return all of them, the newest first."""
        newest = select(DatasetRow).order_by(DatasetRow.created_at.desc(), DatasetRow.id)
        return tuple(record_of(StoredDataset, row) for row in rows(self._engine, newest))

    def users(self) -> Mapping[str, Sequence[str]]:
        """Return the queries, newest first, that may yet be planned on a data set, by its id."""
        with reading(self._engine) as session:
            return _users(session)

    def delete(self, dataset_id: str) -> None:
        """Delete one; Conflict while a query uses it, NotFound if there is none of that id."""
        forgets = delete(DatasetRow).where(DatasetRow.id == dataset_id).returning(DatasetRow.id)
        with writing(self._engine) as session:
            if users := _users(session).get(dataset_id):
                raise Conflict("dataset", f"must not be used by {', '.join(users)}", dataset_id)
            if session.scalar(forgets) is None:
                raise NotFound("dataset", dataset_id)


def _users(session: Session) -> Mapping[str, Sequence[str]]:
    named = QueryRow.spec["data"]["dataset"].as_string()
    using = select(named, QueryRow.id).where(QueryRow.phase.in_(UNFINISHED | REPLANNABLE))
    users: dict[str, list[str]] = {}
    for dataset_id, query_id in session.execute(using.order_by(QueryRow.serial.desc())):
        users.setdefault(dataset_id, []).append(query_id)
    return users
