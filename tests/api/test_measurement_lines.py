"""A journal in a file: what is there is gone on from, what is torn or of something else is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from circinus.api.store.interrupted import FileJournal, MeasurementDocument
from circinus.api.store.journal import Checkpoint
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.profile import Failure
from circinus.profiler.journal import MeasuredInput

ONE = Configuration((("add", "by", 1), ("cut", "to", "x")))
TWO = Configuration((("add", "by", 2.5), ("cut", "to", "x")))
NOW = Checkpoint(parts={"query": "a", "data": "b"}, history=("q-1",))
NAN = np.full(2, np.nan)


def measured(index: int, score: float = 0.5, draw: int = 0) -> MeasuredInput:
    return MeasuredInput(
        input=index,
        draw=draw,
        score=score,
        operator_s=np.array([0.1, 0.30000000000000004]),
        output_bytes=np.array([8.0, 9.0]),
        input_bytes=7.0,
        spent_s=0.4,
        saved_s=0.2,
        runs=3,
    )


FAILED = MeasuredInput(
    input=5,
    score=np.nan,
    operator_s=NAN,
    output_bytes=NAN,
    input_bytes=np.nan,
    failure=Failure(input=5, operator="add", cause="TypeError: no"),
)


def begun(folder: Path) -> FileJournal:
    journal = FileJournal.opened(folder, NOW)
    for index in range(3):
        journal.record(ONE, measured(index))
    return journal


def told(journal: FileJournal) -> list[str]:
    return [MeasurementDocument.of(*each).model_dump_json() for each in journal.everything()]


def test_nothing_is_written_before_something_is_measured(tmp_path: Path) -> None:
    journal = FileJournal.opened(tmp_path / "new", NOW)

    assert journal.recall(ONE) == ()
    journal.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_costs_what_would_have_been_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = FileJournal.opened(tmp_path / "file", NOW)

    journal.record(ONE, measured(1))
    journal.record(ONE, measured(2))

    assert journal.trouble == "File exists"
    assert len(journal.recall(ONE)) == 2


def test_measurements_come_back_exactly(tmp_path: Path) -> None:
    before = begun(tmp_path)
    before.record(TWO, measured(0, 1.0))
    before.record(TWO, FAILED)

    after = FileJournal.opened(tmp_path, NOW)

    assert after.taken_over == 5
    assert told(after) == told(before)
    assert after.recall(TWO)[1].failure == FAILED.failure


def test_a_later_measurement_replaces_an_earlier_one(tmp_path: Path) -> None:
    begun(tmp_path).record(ONE, measured(1, 0.75))

    (two,) = [m for m in FileJournal.opened(tmp_path, NOW).recall(ONE) if m.input == 1]

    assert two.score == 0.75


def test_the_earlier_queries_are_those_of_the_first_call(tmp_path: Path) -> None:
    begun(tmp_path)

    again = FileJournal.opened(tmp_path, Checkpoint(parts=NOW.parts, history=("q-1", "q-2")))

    assert again.checkpoint.history == ("q-1",)


@pytest.mark.parametrize("part", ["query", "data", "more"])
def test_what_is_of_something_else_is_not_gone_on_from(tmp_path: Path, part: str) -> None:
    begun(tmp_path)
    other = Checkpoint(parts={**NOW.parts, part: "other"})

    assert FileJournal.opened(tmp_path, other).taken_over == 0
    (path,) = tmp_path.iterdir()
    path.rename(FileJournal.opened(tmp_path, other).path)  # under a name that is not its own
    assert FileJournal.opened(tmp_path, other).taken_over == 0


def test_a_file_cut_off_anywhere_gives_what_was_whole_and_goes_on(tmp_path: Path) -> None:
    whole = begun(tmp_path)
    data = whole.path.read_bytes()
    for end in range(len(data)):
        whole.path.write_bytes(data[:end])

        journal = FileJournal.opened(tmp_path, NOW)

        lines = data[:end].count(b"\n") - 1
        complete = data[end : end + 1] == b"\n"
        assert journal.taken_over == max(lines + complete, 0)
        journal.record(ONE, measured(7))
        assert FileJournal.opened(tmp_path, NOW).taken_over == journal.taken_over + 1


def test_lines_that_are_no_measurements_were_not_measured(tmp_path: Path) -> None:
    path = begun(tmp_path).path
    line = json.loads(path.read_text().splitlines()[1])
    wrong = [{**line, "score": None}, {**line, "input": -1}, {**line, "extra": 1}, [1], "x"]
    with path.open("a") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in wrong)

    assert FileJournal.opened(tmp_path, NOW).taken_over == 3


def test_only_its_user_may_read_it(tmp_path: Path) -> None:
    path = begun(tmp_path / "own").path

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_oldest_files_go_when_there_are_many(tmp_path: Path) -> None:
    for number in range(60):
        journal = FileJournal.opened(tmp_path, Checkpoint(parts={"query": str(number)}))
        journal.record(ONE, measured(0))

    assert len(list(tmp_path.iterdir())) == 50
    assert FileJournal.opened(tmp_path, Checkpoint(parts={"query": "59"})).taken_over == 1
    assert FileJournal.opened(tmp_path, Checkpoint(parts={"query": "0"})).taken_over == 0


def test_draws_of_an_input_are_kept_apart(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    journal.record(ONE, measured(1, score=0.25, draw=1))
    found = {one.pair: one.score for one in FileJournal.opened(tmp_path, NOW).recall(ONE)}
    assert found == {(0, 0): 0.5, (1, 0): 0.5, (2, 0): 0.5, (1, 1): 0.25}
