"""What the history of earlier queries keeps, and in which order."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine

from circinus.api.store.history import SqlHistory, open_history
from circinus.api.store.records import to_document
from circinus.deploy.methods import DEFAULT, PUBLISHED
from circinus.pipelines.errors import InvalidInput, Unavailable
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.slo import Slo
from circinus.planner.models.history import ConfigurationRecord, QueryRecord


@pytest.fixture
def make(engine: Engine) -> Callable[[int], SqlHistory]:
    return lambda most: SqlHistory(engine, most=most)


def _record(query: str, fingerprint: str = "digits@1", accuracy: float = 0.5) -> QueryRecord:
    one = ConfigurationRecord(
        configuration=Configuration((("a", "k", 1), ("b", "m", "x"), ("b", "flag", True))),
        inputs=7,
        accuracy=accuracy,
        deviation=0.25,
        operator_s=(0.1, 0.2),
        operator_deviation_s=(0.0, 0.01),
        output_bytes=(10.0, 20.0),
        input_bytes=5.0,
    )
    slo = Slo(accuracy=0.9, latency_s=0.25)
    return QueryRecord(query=query, fingerprint=fingerprint, slo=slo, configurations=(one,))


def test_a_history_without_room_is_refused(make: Callable[[int], SqlHistory]) -> None:
    with pytest.raises(InvalidInput, match=r"history\.most must be >= 1, got 0"):
        make(0)


def test_records_come_back_as_they_were_the_newest_first(
    make: Callable[[int], SqlHistory],
) -> None:
    history = make(10)
    for name in "abc":
        history.record(_record(name))
    assert list(history.earlier("digits@1", 2)) == [_record("c"), _record("b")]
    assert list(history.earlier("digits@1", 0)) == []
    assert list(history.earlier("digits@1")) == [_record(name) for name in "cba"]


def test_versions_of_a_pipeline_are_never_mixed(make: Callable[[int], SqlHistory]) -> None:
    history = make(10)
    history.record(_record("a"))
    history.record(_record("b", "digits@2"))
    assert [r.query for r in history.earlier("digits@1", 9)] == ["a"]
    assert list(history.earlier("digits@3", 9)) == []


def test_of_a_query_the_newest_record_counts(make: Callable[[int], SqlHistory]) -> None:
    history = make(10)
    for query, accuracy in (("a", 0.1), ("b", 0.2), ("a", 0.3)):
        history.record(_record(query, accuracy=accuracy))
    kept = history.earlier("digits@1", 9)
    assert [(r.query, r.configurations[0].accuracy) for r in kept] == [("a", 0.3), ("b", 0.2)]


def test_the_oldest_records_go_first(make: Callable[[int], SqlHistory]) -> None:
    history = make(2)
    for name in "abc":
        history.record(_record(name))
    assert [r.query for r in history.earlier("digits@1", 9)] == ["c", "b"]


def test_another_process_finds_what_was_recorded(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'h.sqlite3'}"
    first = open_history(url)
    first.record(_record("a"))
    first._engine.dispose()
    assert [r.query for r in open_history(url).earlier("digits@1", 9)] == ["a"]


def test_a_database_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="the file of the database cannot be made"):
        open_history(f"sqlite:///{tmp_path / 'file' / 'h.sqlite3'}")


def test_an_export_is_imported_elsewhere(tmp_path: Path) -> None:
    here, there = (open_history(f"sqlite:///{tmp_path / n}") for n in ("a", "b"))
    for name in "ab":
        here.record(_record(name))
    document = json.loads(json.dumps(here.exported()))
    assert there.imported(document) == 2
    assert there.earlier("digits@1", 9) == here.earlier("digits@1", 9)
    [summary] = there.summaries()
    assert (summary.pipeline, summary.fingerprint, summary.queries) == ("digits", "digits@1", 2)


def test_how_queries_were_planned_is_kept_and_exported(tmp_path: Path) -> None:
    here, there = (open_history(f"sqlite:///{tmp_path / n}") for n in ("a", "b"))
    here.record(_record("a"))
    for name in "bc":
        here.record(_record(name), PUBLISHED.planning)
    there.imported(json.loads(json.dumps(here.exported())))
    for history in (here, there):
        found = [(one.planning, one.queries) for one in history.summaries()]
        assert found == [(DEFAULT.planning, 1), (PUBLISHED.planning, 2)]


def test_records_from_before_there_was_a_choice_were_planned_by_default(tmp_path: Path) -> None:
    history = open_history(f"sqlite:///{tmp_path / 'h'}")
    old = {"circinus_history": 1, "records": [to_document(_record("a"))]}
    assert history.imported(json.loads(json.dumps(old))) == 1
    assert [one.planning for one in history.summaries()] == [DEFAULT.planning]


def _planned(planning: object) -> object:
    record = {**to_document(_record("a")), "planning": planning}
    return {"circinus_history": 1, "records": [record]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "history must be an export of form 1"),
        ({"circinus_history": 2, "records": []}, "must be an export of form 1, got 2"),
        ({"circinus_history": 1}, r"history\.records must be a list of records, got None"),
        ({"circinus_history": 1, "records": [{"query": "a"}]}, "QueryRecord"),
        (_planned("magic"), r"history\.records\.planning must be a mapping, got 'magic'"),
        (_planned({"strategy": "magic"}), r"planning\.strategy must be among"),
    ],
)
def test_what_is_no_export_is_refused_and_nothing_is_kept(
    document: object, message: str, tmp_path: Path
) -> None:
    history = open_history(f"sqlite:///{tmp_path / 'h'}")
    with pytest.raises(InvalidInput, match=message):
        history.imported(document)
    assert history.summaries() == ()
