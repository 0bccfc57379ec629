"""What earlier planning measured, from the database."""

from __future__ import annotations

from dataclasses import dataclass

from api.bootstrap.planning import inputs_of
from api.fingerprints import pipeline_fingerprint
from api.services.knowledge import Examples, Measurements
from api.store.engine import connect
from api.store.history import SqlHistory, open_history
from api.store.journal import SqlJournal, edition_of
from deploy.planning import planner_of
from pipelines.errors import InvalidInput
from pipelines.pipeline import Pipeline
from pipelines.query import Query
from planner.history import QueryRecord
from planner.result import PlanningResult
from profiler.columns import profiles_of

MOST_EARLIER = 10
"""Earlier queries that a search is told of (Circinus 4.2: the ten most similar)."""


@dataclass(frozen=True, slots=True)
class JournalledMeasurements:
    """A `MeasurementSource` of what planning workers wrote into a database."""

    database_url: str

    def of(
        self, query_id: str, query: Query, pipeline: Pipeline, examples: Examples
    ) -> Measurements:
        """See `MeasurementSource.of`."""
        if pipeline.examples is None:
            raise InvalidInput.of("pipeline", "must bring examples", pipeline.name)
        dataset = pipeline.examples(examples.count, examples.seed)
        planner = planner_of(query.planning)
        drawing = planner.drawing(lambda: inputs_of(pipeline, dataset), len(dataset), query.seed)
        journal = SqlJournal(connect(self.database_url), query_id, edition_of(pipeline))
        operators = len(pipeline.graph.operators)
        return Measurements(
            profiles=profiles_of(journal.everything(), drawing.order, operators),
            population=len(drawing.order),
            planner=planner,
            drawing=drawing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What one version of a pipeline was found to do in earlier queries.

    Attributes:
        store: With the records of all.
        fingerprint: Of the version.
    """

    store: SqlHistory
    fingerprint: str

    def earlier(self, most: int = MOST_EARLIER) -> tuple[QueryRecord, ...]:
        """Give what the newest queries measured, the newest first."""
        return tuple(self.store.earlier(self.fingerprint, most))

    def remember(self, query_id: str, query: Query, result: PlanningResult) -> None:
        """Keep what a query measured and how it was planned; nothing when it measured nothing."""
        if result.configurations:
            self.store.record(
                QueryRecord(
                    query=query_id,
                    fingerprint=self.fingerprint,
                    slo=query.slo,
                    configurations=result.configurations,
                ),
                query.planning,
            )


def remembered(pipeline: Pipeline, database_url: str) -> Remembered:
    """Give what a database remembers of a pipeline; its tables are brought up to date.

    Raises:
        InvalidInput: If it is no database URL.
        Unavailable: If the database cannot be opened.
    """
    return Remembered(store=open_history(database_url), fingerprint=pipeline_fingerprint(pipeline))
