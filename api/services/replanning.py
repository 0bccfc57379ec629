"""Other plans for a query: for other objectives, other data, or a world that drifted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from api.documents import from_document, to_document
from api.services.catalogue import Catalogue, offered
from api.services.changes import Circumstances, changed_query
from api.services.examples import ExampleSource
from api.services.knowledge import Knowledge
from api.services.observing import KnownData
from api.store.records import QueryRecord, Replan, Search
from api.store.store import Conflict, Store
from pipelines.clock import Clock
from pipelines.fitting import fitted
from pipelines.infrastructure import Infrastructure
from pipelines.plan import Plan
from pipelines.query import Query
from planner.drift import Drift, Seen, as_observed, eased, parts_of
from planner.known import result_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drifted:
    """That a deployed plan drifted.

    Attributes:
        drift: What it no longer gives.
        seen: What its requests gave.
        data: Which examples known outputs came from; None: there were none.
    """

    drift: Drift
    seen: Seen
    data: KnownData | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanner:
    """Replans queries. Safe to share between threads.

    Attributes:
        store: With the queries.
        catalogue: With the pipelines.
        examples: Of the pipelines.
        knowledge: What was measured.
        infrastructure: Planned for.
        clock: Says when.
    """

    store: Store
    catalogue: Catalogue
    examples: ExampleSource
    knowledge: Knowledge
    infrastructure: Infrastructure
    clock: Clock

    def for_change(
        self, record: QueryRecord, query: Query, change: Circumstances, data: KnownData | None
    ) -> QueryRecord:
        """Give the query after a change of its SLOs or its data.

        Other SLOs are looked for among what was measured: plans that are found replace the old
        ones at once, and the old one serves until the new one does. Where none is found, and for
        other data, the query is planned anew; nothing measured on the same data is paid again.

        Args:
            record: The query as it is stored.
            query: The same, read.
            change: Of its SLOs.
            data: Examples to profile on from now on; None: the same.

        Raises:
            InvalidInput: If the change is malformed or leads to what no query can be.
            Conflict: If it is being planned, or retired.
        """
        if data is not None:
            self.examples.check(data.count, field="data.examples")
        wanted = changed_query(query, change)
        spec = _spec(record.spec, wanted, data)
        why = "its data changed" if data is not None else "its objectives changed"
        replan = Replan(
            query_id=record.id,
            spec=spec,
            why=why,
            at=self.clock.timestamp(),
            forget=data is not None,
        )
        found = None if data is not None else self._from_known(record, wanted, self.infrastructure)
        self._store(found(replan) if found is not None else replan, record)
        return self.store.query(record.id)

    def for_drift(self, record: QueryRecord, query: Query, plan: Plan, drifted: Drifted) -> str:
        """Replan a query whose deployed plan drifted; give what was done, in words.

        Where latency drifted plans are looked for on the infrastructure as it was observed: among
        what was measured, then by searching on while the old ones serve. Where accuracy did, the
        query is planned anew on the data that showed it.
        """
        drift, data = drifted.drift, drifted.data
        replan = Replan(
            query_id=record.id, spec=record.spec, why=drift.words, at=self.clock.timestamp()
        )
        if drift.accuracy and data is not None:
            anew = replace(replan, spec=_spec(record.spec, query, data), forget=True)
            self._store(anew, record)
            return "planned anew on the data that showed it"
        if record.searching is not None:
            return "it is searched on already: nothing was changed"
        observed = self._observed(record, query, plan, drifted.seen)
        if observed is None:
            return "neither tiers nor links are slower, requests wait: nothing was changed"
        # The query's own device is part of what was observed.
        found = self._from_known(record, replace(query, device=None), observed)
        if found is None:
            return f"no measured plan would do: {self._search_on(record, drift.words, observed)}"
        self._store(found(replan), record)
        return "replaced by plans that were measured earlier"

    def _search_on(self, record: QueryRecord, why: str, observed: Infrastructure) -> str:
        vain = record.search
        if vain is not None and not eased(
            observed, from_document(Infrastructure, vain.infrastructure)
        ):
            return "a search in a world no slower than this one found none, nothing was changed"
        search = Search(why=why, infrastructure=to_document(observed), at=self.clock.timestamp())
        if not self.store.search_on(record.id, search):
            return "the query changed meanwhile, nothing was changed"
        return "it is searched on while the old one serves"

    def _observed(
        self, record: QueryRecord, query: Query, plan: Plan, seen: Seen
    ) -> Infrastructure | None:
        """Give the world as requests found it; None: as it is said to be."""
        pipeline = offered(self.catalogue, query.pipeline)
        said = fitted(query, pipeline.graph, self.infrastructure).infrastructure
        work = self.knowledge.work(record, query, pipeline, plan)
        observed = as_observed(said, plan, parts_of(pipeline.graph, said, work, plan), seen)
        return None if observed is said else observed

    def _from_known(
        self, record: QueryRecord, query: Query, infrastructure: Infrastructure
    ) -> _Found | None:
        pipeline = offered(self.catalogue, query.pipeline)
        answered = self.knowledge.answer(record, query, pipeline, infrastructure)
        if not answered.plans:
            return None
        return _Found(
            result=to_document(result_of(answered)),
            plans=tuple((plan.id, to_document(plan)) for plan in answered.plans),
        )

    def _store(self, replan: Replan, record: QueryRecord) -> None:
        if not self.store.replan(replan):
            rule = "must be planned and not retired to be planned again"
            raise Conflict("phase", rule, record.phase.value)


@dataclass(frozen=True, slots=True)
class _Found:
    result: Mapping[str, object]
    plans: tuple[tuple[str, Mapping[str, object]], ...]

    def __call__(self, replan: Replan) -> Replan:
        """Give the replan with what was found."""
        return replace(replan, result=self.result, plans=self.plans)


def deployed_plan(store: Store, query_id: str, plan_id: str) -> Plan | None:
    """Give a plan of a query; None: it has no such plan (any more)."""
    stored = (entry for entry in store.plans(query_id) if entry.id == plan_id)
    found = next(stored, None)
    return None if found is None else from_document(Plan, found.plan)


def _spec(spec: Mapping[str, object], query: Query, data: KnownData | None) -> dict[str, object]:
    slo = spec.get("slo")
    asked = dict(slo) if isinstance(slo, Mapping) else {}
    asked["accuracy"] = query.slo.accuracy
    if "latency_s" in asked or query.slo.throughput_per_s is None:
        asked["latency_s"] = query.slo.latency_s
    if query.slo.cost_usd_per_hour is not None:
        asked["cost_usd_per_hour"] = query.slo.cost_usd_per_hour
    told = dict(spec) | {"slo": asked}
    if data is not None:
        told["data"] = {"examples": data.count, "seed": data.seed}
    return told
