"""A restart goes on from what was measured, unless it was measured for something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from circinus.api.bootstrap.planning import data_fingerprint, pipeline_fingerprint, remembered
from circinus.api.control.planning_worker import plan_next
from circinus.api.phases import QueryPhase
from circinus.api.store.engine import connect
from circinus.api.store.journal import (
    Checkpoint,
    SqlCheckpoints,
    StaleCheckpoint,
    measurement_counts,
)
from circinus.api.store.queue import ClaimLost
from circinus.api.store.records import NewQuery
from circinus.api.use_cases.parts import ServiceParts
from circinus.pipelines.io.datasets import Dataset, Example
from tests.api.fakes import PIPELINE, SPEC, FakeCatalogue, planning_parts


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[ServiceParts]:
    made = planning_parts(tmp_path)
    yield made
    made.store.close()


def _submit(parts: ServiceParts, query_id: str) -> None:
    parts.store.submit(
        NewQuery(id=query_id, spec=SPEC, fingerprint="", idempotency_key=None, at=0.0)
    )


def _checkpoint(**parts: str) -> Checkpoint:
    every = {"query": "q", "data": "d", "pipeline": "p@1", "versions": "v"}
    return Checkpoint(parts=every | parts, history=("q-0",))


@pytest.fixture
def checkpoints(parts: ServiceParts) -> SqlCheckpoints:
    _submit(parts, "q-1")
    return SqlCheckpoints(connect(parts.settings.database_url), None)


def test_a_worker_that_lost_its_query_changes_no_checkpoint(
    parts: ServiceParts, checkpoints: SqlCheckpoints
) -> None:
    checkpoints.opened("q-1", _checkpoint())
    lost = SqlCheckpoints(connect(parts.settings.database_url), "w-1")
    for act in (lost.opened, lost.restart):
        with pytest.raises(ClaimLost, match="q-1 must be held"):
            act("q-1", _checkpoint(data="other"))
    assert checkpoints.opened("q-1", _checkpoint()) == _checkpoint()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("query", "query was q, is other"),
        ("data", "data was d, is other"),
        ("pipeline", "pipeline was p@1, is other"),
        ("versions", "versions was v, is other"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_in_words(
    checkpoints: SqlCheckpoints, part: str, words: str
) -> None:
    checkpoints.opened("q-1", _checkpoint())
    with pytest.raises(StaleCheckpoint, match=f"must be of the same query, data.*{words}"):
        checkpoints.opened("q-1", _checkpoint(**{part: "other"}))


def test_a_restart_is_told_of_the_same_earlier_queries(checkpoints: SqlCheckpoints) -> None:
    first = checkpoints.opened("q-1", _checkpoint())
    later = replace(_checkpoint(), history=("q-7", "q-0"))
    assert checkpoints.opened("q-1", later) == first


def test_a_checkpoint_that_was_replaced_counts(checkpoints: SqlCheckpoints) -> None:
    checkpoints.opened("q-1", _checkpoint())
    other = _checkpoint(data="other")
    checkpoints.restart("q-1", other)
    assert checkpoints.opened("q-1", other) == other


def test_fingerprints_tell_data_and_pipelines_apart() -> None:
    data = [
        Dataset(name="n", examples=[Example(input=i, expected=1), Example(input=2, expected=e)])
        for i, e in ((1, 1), (1, 2), (2, 1))
    ]
    assert len({data_fingerprint(one) for one in data}) == 3
    assert data_fingerprint(data[0]) == data_fingerprint(replace(data[0], name="m"))
    newer = replace(
        PIPELINE, operators=tuple(replace(op, version="2") for op in PIPELINE.operators)
    )
    assert pipeline_fingerprint(newer) != pipeline_fingerprint(PIPELINE)
    assert pipeline_fingerprint(PIPELINE).startswith("add@")


def test_a_query_whose_pipeline_changed_is_planned_anew_and_says_so(
    parts: ServiceParts,
) -> None:
    _submit(parts, "q-1")
    url = parts.settings.database_url
    # Interrupted after a first attempt with an older version: its rows and checkpoint are there.
    older = replace(
        PIPELINE, operators=tuple(replace(op, version="0") for op in PIPELINE.operators)
    )
    assert plan_next(replace(parts, catalogue=FakeCatalogue({"add": older})), "w")
    before, _ = measurement_counts(connect(url), "q-1")
    _requeue(parts)

    assert plan_next(parts, "w")

    record = parts.store.query("q-1")
    assert record.phase is QueryPhase.WAITING, record.message
    assert record.message.startswith("Planned anew: the checkpoint of q-1 must be of the same")
    assert "pipeline was add@" in record.message
    assert measurement_counts(connect(url), "q-1") == (before, 0)  # the old rows are gone


def test_a_query_that_is_planned_again_pays_for_nothing_twice(parts: ServiceParts) -> None:
    _submit(parts, "q-1")
    assert plan_next(parts, "w")
    first = parts.store.query("q-1").result
    _submit(parts, "q-2")
    assert plan_next(parts, "w")  # leaves history between the two attempts
    _requeue(parts)
    assert plan_next(parts, "w")
    again = parts.store.query("q-1").result
    assert first is not None
    assert again is not None
    assert first["plans"] == again["plans"]
    assert measurement_counts(connect(parts.settings.database_url), "q-1")[1] == 0


def test_a_finished_query_is_remembered_for_later_ones(parts: ServiceParts) -> None:
    for query_id in ("q-1", "q-2"):
        _submit(parts, query_id)
        assert plan_next(parts, "w")
    kept = remembered(PIPELINE, parts.settings.database_url).earlier()
    assert [record.query.split()[0] for record in kept] == ["q-2", "q-1"]
    assert {one.configuration.of("add")["by"] for one in kept[0].configurations} == {0, 1}


def _requeue(parts: ServiceParts) -> None:
    """Put the query back as a crash before the end would: nothing but its phase changes."""
    from sqlalchemy import update

    from circinus.api.store.query_rows import QueryRow
    from circinus.api.store.tables import PlanRow

    with connect(parts.settings.database_url).begin() as connection:
        connection.execute(PlanRow.__table__.delete().where(PlanRow.query_id == "q-1"))  # type: ignore[attr-defined]  # a table
        connection.execute(
            update(QueryRow).where(QueryRow.id == "q-1").values(phase="queued", claimed_by=None)
        )
