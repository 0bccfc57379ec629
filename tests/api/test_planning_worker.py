"""One query through a planning worker, in process; its heart beats without waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from api.bootstrap.planning import Kept, plan_offline
from api.bootstrap.serving import PlanningParts
from api.documents import from_document
from api.phases import Phase
from api.planning_worker import Heart, plan_next
from api.store.records import NewQuery
from pipelines.pipeline import Pipeline
from planner.result import PlanningResult
from tests.api.fakes import (
    PIPELINE,
    SPEC,
    FakeCatalogue,
    planning_parts,
)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[PlanningParts]:
    made = planning_parts(tmp_path)
    yield made
    made.store.close()


def submit(parts: PlanningParts, **spec: object) -> None:
    parts.store.submit(
        NewQuery(id="q-1", spec={**SPEC, **spec}, fingerprint="", idempotency_key=None, at=0.0)
    )


def test_an_empty_queue_is_no_work(parts: PlanningParts) -> None:
    assert plan_next(parts, "w") is False


def test_a_pipeline_that_breaks_fails_its_query_with_the_cause(parts: PlanningParts) -> None:
    def broken(count: int, seed: int) -> object:
        raise RuntimeError("no disk")

    pipeline: Pipeline = replace(PIPELINE, examples=broken)  # type: ignore[arg-type]  # never returns
    submit(parts)
    assert plan_next(replace(parts, catalogue=FakeCatalogue({"add": pipeline})), "w")
    record = parts.store.query("q-1")
    assert record.phase is Phase.FAILED
    assert record.message == "planning broke off: RuntimeError: no disk"


def test_a_feasible_query_waits_for_capacity_with_its_plans(parts: PlanningParts) -> None:
    submit(parts, limits={"configurations": 2})
    assert plan_next(parts, "w")
    record = parts.store.query("q-1")
    assert record.phase is Phase.WAITING, record.message
    assert record.result is not None
    stored = parts.store.plans("q-1")
    result = from_document(PlanningResult, record.result)
    assert [plan.id for plan in result.plans] == [entry.id for entry in stored]
    # Adding 1 is right on every input, adding 0 on none.
    assert {plan.configuration.of("add")["by"] for plan in result.plans} == {1}


@pytest.mark.parametrize("cold", [False, True])
def test_a_query_starts_from_earlier_ones_unless_it_is_cold(
    parts: PlanningParts, cold: bool
) -> None:
    submit(parts)
    assert plan_next(parts, "w")
    spec = {**SPEC, "data": {"examples": 12}, "cold": cold}
    parts.store.submit(
        NewQuery(id="q-2", spec=spec, fingerprint="2", idempotency_key=None, at=1.0)
    )
    told: list[int] = []

    def planned(*args: object, kept: Kept, **rest: object) -> object:
        told.append(len(kept.history))
        return plan_offline(*args, kept=kept, **rest)  # type: ignore[arg-type]  # handed through

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("api.planning_worker.plan_offline", planned)
        assert plan_next(parts, "w")
    assert told == [0 if cold else 1]
    # What it measures is kept for others in any case.
    assert len(parts.remembered(PIPELINE).earlier()) == 2


def test_a_heart_hears_of_cancelling(parts: PlanningParts) -> None:
    submit(parts)
    parts.store.claim("w", at=0.0)
    heart = Heart(parts.store, parts.clock, "q-1", "w")
    heart.beat()
    assert not heart.cancelled()
    parts.store.request_cancel("q-1", at=1.0)
    heart.beat()
    assert heart.cancelled()


def test_a_heart_that_lost_its_query_says_stop(parts: PlanningParts) -> None:
    submit(parts)
    heart = Heart(parts.store, parts.clock, "q-1", "never claimed it")
    heart.beat()
    assert heart.cancelled()
