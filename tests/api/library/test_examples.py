"""Data as programs have it, and what is told of faulty examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from langchain_core.messages import HumanMessage

from circinus import Dataset, Example, InvalidInput, Knob, Operator, OperatorSpec, Pipeline
from circinus.api.library.inputs import Data, dataset_of
from circinus.pipelines.errors import MOST_VIOLATIONS
from circinus.pipelines.io.datasets import LARGEST_DATASET
from circinus.pipelines.langchain.values import pack
from circinus.pipelines.model.payload import Payload
from tests.e2e.service_process import ROOT


def _made(count: int, seed: int) -> Dataset:
    return Dataset(
        name="made", examples=[Example(input=i + seed, expected=i) for i in range(count)]
    )


def _pipeline(*, brings: bool = True) -> Pipeline:
    spec = OperatorSpec(name="same", knobs=(Knob(name="k", values=(1,)),))
    run = Operator(spec=spec, run=lambda item, knobs: item)
    made = _made if brings else None
    return Pipeline(name="p", operators=(run,), score=lambda a, b: 1.0, examples=made)


def _plain(value: Payload) -> Payload:
    return value


def _read(
    data: Data, columns: tuple[str, str] = ("input", "expected")
) -> list[tuple[Payload, Payload]]:
    found = dataset_of(data, _pipeline(), _plain, columns)
    return [(one.input, one.expected) for one in found.examples]


@pytest.mark.parametrize("data", [None, 3.5, {"input": 1, "expected": 2}, b"bytes", object()])
def test_what_is_no_data_is_refused_with_what_would_be(data: list[object]) -> None:
    with pytest.raises(
        InvalidInput, match=r"data must be pairs \(input, expected\), a data frame"
    ):
        _read(data)


@pytest.mark.parametrize("data", [0, -1, LARGEST_DATASET + 1])
def test_a_number_of_examples_is_bounded(data: int) -> None:
    with pytest.raises(InvalidInput, match="data must be 1 to 100000 examples"):
        _read(data)
    with pytest.raises(InvalidInput, match="data must be pairs"):
        _read(True)


def test_examples_of_a_pipeline_that_brings_none_are_refused() -> None:
    with pytest.raises(InvalidInput, match="pipeline p brings no data of its own"):
        dataset_of(3, _pipeline(brings=False), _plain)


def test_no_examples_and_too_many_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must have 1 to 100000 examples, got 0"):
        _read([])
    endless = ((n, n) for n in iter(int, 1))
    with pytest.raises(InvalidInput, match="must have 1 to 100000 examples, got 100001"):
        _read(endless)


@pytest.mark.parametrize("path", ["nowhere.jsonl", "/dev/null/x"])
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="data must be the path of a file of JSON lines"):
        _read(path)


def test_a_faulty_example_is_told_by_index_field_and_rule() -> None:
    with pytest.raises(InvalidInput) as refused:
        _read([(1, 2), (1,), (object(), {1, 2}), "ab", 5, {"input": 1}])

    told = [(violation.field, violation.rule) for violation in refused.value.violations]
    assert [field for field, _ in told] == [
        *("data[1]", "data[2].input", "data[2].expected", "data[3]", "data[4]", "data[5]"),
    ]
    assert told[0][1].startswith("must be a pair (input, expected)")
    assert told[1][1].startswith("must be None, truth value, number, text")


def test_faults_end_with_the_first_that_are_told() -> None:
    with pytest.raises(InvalidInput) as refused:
        _read([None] * 1000)

    assert len(refused.value.violations) == MOST_VIOLATIONS


def test_an_empty_cell_and_a_missing_column_are_told() -> None:
    frame = pd.DataFrame({"input": ["a", None, "c"], "expected": [1.0, 2.0, np.nan]})

    with pytest.raises(InvalidInput) as refused:
        _read(frame)

    assert [str(violation) for violation in refused.value.violations] == [
        "data[1].input must be given, got an empty cell.",
        "data[2].expected must be given, got an empty cell.",
    ]
    with pytest.raises(
        InvalidInput, match=r"columns must name a column .*input, expected.*answer"
    ):
        _read(frame, columns=("input", "answer"))


def test_pairs_examples_mappings_and_what_gives_them_are_alike() -> None:
    wanted: list[tuple[Payload, Payload]] = [("a", 1), ("b", 2)]
    examples = [Example(input=i, expected=e) for i, e in wanted]

    assert _read(wanted) == wanted
    assert _read([list(pair) for pair in wanted]) == wanted
    assert _read([{"input": i, "expected": e} for i, e in wanted]) == wanted
    assert _read(examples) == wanted
    assert _read(Dataset(name="d", examples=examples)) == wanted
    assert _read(pair for pair in wanted) == wanted
    assert _read(zip(["a", "b"], [1, 2], strict=True)) == wanted


def test_a_data_frame_gives_pythons_own_values_whatever_its_index() -> None:
    frame = pd.DataFrame({"q": ["a", "b"], "a": [1, 2], "rest": [0, 0]}, index=[7, 7])

    found = _read(frame, columns=("q", "a"))

    assert found == [("a", 1), ("b", 2)]
    assert type(found[0][1]) is int


def test_a_number_asks_the_pipeline_for_its_examples() -> None:
    assert _read(2) == [(0, 0), (1, 1)]


def test_files_of_json_lines_and_folders_are_read(tmp_path: Path) -> None:
    lines = tmp_path / "data.jsonl"
    lines.write_text('{"input": "a", "expected": 1}\n')
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("text")
    (folder / "expected.jsonl").write_text('{"file": "a.txt", "expected": 2}\n')

    assert _read(str(lines)) == _read(lines) == [("a", 1)]
    assert _read(folder) == [("text", 2)]
    lines.write_text('{"input": "a"}\n')
    with pytest.raises(InvalidInput, match=r"data\.jsonl, line 1: example must be a JSON object"):
        _read(lines)


def test_what_a_chain_takes_travels_and_what_does_not_is_told() -> None:
    found = dataset_of([(HumanMessage("hi"), ("a", 1))], _pipeline(), pack)

    assert isinstance(found.examples[0].input, dict)
    with pytest.raises(InvalidInput, match=r"data\[0\]\.input must be made of None"):
        dataset_of([(object(), 1)], _pipeline(), pack)


def test_who_has_no_pandas_plans_all_the_same() -> None:
    script = """
import sys
sys.modules["pandas"] = None
import circinus
found = circinus.plan(len, [("a", 1)], accuracy=0.5, latency_s=1.0, score=lambda o, e: o == e)
print(found.best.accuracy.value)
found.to_frame()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.stdout == "1.0\n"
    assert "missing: pandas (pip install 'circinus[notebook]')" in done.stderr
