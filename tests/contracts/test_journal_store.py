"""The SQL journal keeps what was measured, in every kind of database, and tells repeats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Engine

from circinus.api.store.journal import SqlJournal, edition_of, measurement_counts
from circinus.api.store.queue import ClaimLost
from circinus.api.store.records import NewQuery
from circinus.api.store.store import Store
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.profile import Failure
from circinus.profiler.journal import MeasuredInput
from tests.api.fakes import PIPELINE, WITHOUT_DATA

ONE = Configuration((("add", "by", 1),))
TRUE = Configuration((("add", "by", True),))


@pytest.fixture(autouse=True)
def queried(store: Store) -> None:
    store.submit(NewQuery(id="q-1", spec={}, fingerprint="", idempotency_key=None, at=0.0))


def measured(index: int, *, score: float = 0.5, draw: int = 0) -> MeasuredInput:
    return MeasuredInput(
        input=index,
        draw=draw,
        varied=("add", "by"),
        score=score,
        operator_s=np.array([0.1, 0.30000000000000004]),
        output_bytes=np.array([8.0, 9.0]),
        input_bytes=7.0,
        spent_s=0.4,
        saved_s=0.2,
    )


def test_a_worker_that_lost_its_query_records_nothing(store: Store, engine: Engine) -> None:
    store.queue.claim("w-1", at=1.0)
    mine = SqlJournal(engine, "q-1", "e", "w-1")
    mine.record(ONE, measured(3))
    store.queue.requeue_silent(since=2.0, at=2.0)
    with pytest.raises(ClaimLost, match="query q-1 must be held by the worker that plans it, w-1"):
        mine.record(ONE, measured(4))
    assert [one.input for one in mine.recall(ONE)] == [3]


def test_an_unknown_configuration_has_nothing(engine: Engine) -> None:
    assert SqlJournal(engine, "q-1", "e").recall(ONE) == ()


def test_a_measurement_comes_back_exactly_in_another_journal(engine: Engine) -> None:
    SqlJournal(engine, "q-1", "e").record(ONE, measured(3))
    (back,) = SqlJournal(engine, "q-1", "e").recall(ONE)
    assert (back.input, back.score, back.input_bytes) == (3, 0.5, 7.0)
    assert (back.spent_s, back.saved_s, back.failure) == (0.4, 0.2, None)
    assert back.operator_s.tolist() == [0.1, 0.30000000000000004]
    assert back.output_bytes.tolist() == [8.0, 9.0]
    assert back.varied == ("add", "by")
    assert back.waited_s is None  # as of rows from before waits were told


def test_what_operators_waited_comes_back(engine: Engine) -> None:
    waited = replace(measured(3), waited_s=np.array([0.0, 0.25]))
    SqlJournal(engine, "q-1", "e").record(ONE, waited)
    (back,) = SqlJournal(engine, "q-1", "e").recall(ONE)
    assert back.waited_s is not None
    assert back.waited_s.tolist() == [0.0, 0.25]


def test_a_failure_comes_back_as_nan_with_its_cause(engine: Engine) -> None:
    nan = np.full(2, np.nan)
    failure = Failure(input=3, operator="add", cause="TypeError: no")
    journal = SqlJournal(engine, "q-1", "e")
    journal.record(
        ONE,
        MeasuredInput(
            input=3,
            score=np.nan,
            operator_s=nan,
            output_bytes=nan,
            input_bytes=np.nan,
            failure=failure,
            spent_s=0.1,
        ),
    )
    (back,) = journal.recall(ONE)
    assert back.failure == failure
    assert np.isnan([back.score, back.input_bytes, *back.operator_s]).all()


def test_a_repeat_replaces_and_is_counted(engine: Engine) -> None:
    journal = SqlJournal(engine, "q-1", "e")
    journal.record(ONE, measured(3))
    assert measurement_counts(engine, "q-1") == (1, 0)
    journal.record(ONE, measured(3, score=0.75))
    assert measurement_counts(engine, "q-1") == (1, 1)
    assert [back.score for back in journal.recall(ONE)] == [0.75]


def test_like_configurations_queries_and_editions_are_kept_apart(engine: Engine) -> None:
    SqlJournal(engine, "q-1", "e").record(ONE, measured(3))
    assert SqlJournal(engine, "q-1", "e").recall(TRUE) == ()
    assert SqlJournal(engine, "q-2", "e").recall(ONE) == ()
    assert SqlJournal(engine, "q-1", "f").recall(ONE) == ()
    assert edition_of(PIPELINE) == edition_of(PIPELINE) != edition_of(WITHOUT_DATA)


def test_draws_of_an_input_are_kept_apart(engine: Engine) -> None:
    journal = SqlJournal(engine, "q-1", "e")
    for draw, score in ((0, 1.0), (1, 0.0), (1, 0.25)):
        journal.record(ONE, measured(3, score=score, draw=draw))
    found = sorted((one.pair, one.score) for one in journal.recall(ONE))
    assert found == [((3, 0), 1.0), ((3, 1), 0.25)]
    assert measurement_counts(engine, "q-1") == (2, 1)
