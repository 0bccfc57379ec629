"""What the measurements of a query were made for: a restart goes on only where nothing changed.

Journal rows tell what was measured; this tells of which query, data, pipeline and versions.
Where one differs, going on would mix figures of two things, so the checkpoint is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine, delete
from sqlalchemy.orm import Session

from api.documents import from_document, to_document
from api.store.claims import require_claim
from api.store.tables import CheckpointRow, MeasurementRow
from pipelines.errors import CircinusError


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What planning a query rests on.

    Attributes:
        parts: Part -> its fingerprint: `query`, `data`, `pipeline`, `versions`.
        history: Ids of the earlier queries that the search was told of, so that a restart is told
            of the same ones.
    """

    parts: Mapping[str, str]
    history: tuple[str, ...] = ()


class StaleCheckpoint(CircinusError):
    """Measurements were made for something else; the message says what changed."""

    def __init__(self, query_id: str, kept: Checkpoint, now: Checkpoint) -> None:
        changed = [
            f"{part} was {kept.parts.get(part, 'unknown')}, is {value}"
            for part, value in now.parts.items()
            if kept.parts.get(part) != value
        ]
        super().__init__(
            f"the checkpoint of {query_id} must be of the same query, data, pipeline and "
            f"versions, got a stale one: {'; '.join(changed)}."
        )


class SqlCheckpoints:
    """The checkpoints of all queries, on an engine whose tables exist.

    Attributes:
        worker: That must hold a query; None: nobody has to.
    """

    def __init__(self, engine: Engine, worker: str | None = None) -> None:
        self.worker = worker
        self._engine = engine

    def opened(self, query_id: str, now: Checkpoint) -> Checkpoint:
        """Give the checkpoint to go on from: the one that is kept, else `now`, kept from here on.

        Raises:
            StaleCheckpoint: If one is kept for something else; nothing was changed.
            ClaimLost: If the worker does not hold the query.
        """
        with Session(self._engine) as session, session.begin():
            require_claim(session, query_id, self.worker)
            row = session.get(CheckpointRow, query_id)
            if row is None:
                session.add(CheckpointRow(query_id=query_id, document=to_document(now)))
                return now
            kept = from_document(Checkpoint, row.document)
        if dict(kept.parts) != dict(now.parts):
            raise StaleCheckpoint(query_id, kept, now)
        return kept

    def restart(self, query_id: str, now: Checkpoint) -> None:
        """Forget what was measured of a query, and keep another checkpoint from here on.

        Raises:
            ClaimLost: If the worker does not hold the query.
        """
        with Session(self._engine) as session, session.begin():
            require_claim(session, query_id, self.worker)
            session.execute(delete(MeasurementRow).where(MeasurementRow.query_id == query_id))
            session.merge(CheckpointRow(query_id=query_id, document=to_document(now)))
