"""Learnt latencies in the database: a restarted service goes on from what it knew."""

from __future__ import annotations

import json
from typing import cast

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.store.engine import READ_ONLY
from api.store.tables import LatencyRow
from deploy.latency_memory import Learnt


class SqlLatencies:
    """A `deploy.latency_memory.LatencyMemory`; the last one who keeps a plan's wins."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def recall(self, plan_id: str) -> Learnt:
        """See `LatencyMemory.recall`."""
        with (
            self._engine.connect().execution_options(**READ_ONLY) as connection,
            Session(bind=connection) as session,
        ):
            row = session.get(LatencyRow, plan_id)
            return {} if row is None else cast("Learnt", row.learnt)

    def keep(self, plan_id: str, learnt: Learnt) -> None:
        """See `LatencyMemory.keep`."""
        document = json.loads(json.dumps(learnt, allow_nan=False))
        with Session(self._engine) as session, session.begin():
            session.merge(LatencyRow(plan_id=plan_id, learnt=document))
