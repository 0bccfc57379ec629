"""Learnt latencies in the database: a restarted service goes on from what it knew."""

from __future__ import annotations

import json
from typing import cast

from sqlalchemy import Engine

from circinus.api.store.engine import reading, writing
from circinus.api.store.tables import LatencyRow
from circinus.deploy.runtime.learning import Learnt


class SqlLatencies:
    """A `deploy.runtime.learning.LatencyMemory`; the last one who keeps a plan's wins."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def recall(self, plan_id: str) -> Learnt:
        """See `LatencyMemory.recall`."""
        with reading(self._engine) as session:
            row = session.get(LatencyRow, plan_id)
            return {} if row is None else cast("Learnt", row.learnt)

    def keep(self, plan_id: str, learnt: Learnt) -> None:
        """See `LatencyMemory.keep`."""
        document = json.loads(json.dumps(learnt, allow_nan=False))
        with writing(self._engine) as session:
            session.merge(LatencyRow(plan_id=plan_id, learnt=document))
