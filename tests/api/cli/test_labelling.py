"""`circinus plan` where a judge scores: what it wants labelled, and what it makes of labels."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.cli.commands import adder_query, assert_refused, invoke
from tests.api.malformed import Wrong

MODULE = '''
from circinus import Dataset, Example, Judge, Knob, Operator, OperatorSpec, Pipeline


def answer(given, knobs):
    """Right on so many of a hundred."""
    with open("ran.txt", "a") as file:  # no global: that would be part of the code
        print(given, knobs["size"], file=file)
    return {"number": given, "right": given * 79 % 100 < 60 + 17 * knobs["size"]}


def judge(given, output, expected):
    """Wrong on every twentieth."""
    assert given == output["number"]
    return float(output["right"] != (given * 31 % 20 == 0))


def examples(count, seed):
    data = tuple(Example(input=number, expected=None) for number in range(count))
    return Dataset(name="numbers", examples=data)


answers = Pipeline(
    name="answers",
    operators=(
        Operator(
            spec=OperatorSpec(name="answer", knobs=(Knob(name="size", values=(0, 1, 2)),)),
            run=answer,
        ),
    ),
    score=Judge(judge=judge, name="grader"),
    examples=examples,
)
'''
PLAN = ("plan", "q.yaml", "--infrastructure", "one-tier", "--executor", "in-process")


def _query(folder: Path, metric: object = None, **changes: object) -> None:
    (folder / "judged_answers.py").write_text(MODULE)
    document: dict[str, object] = {
        "pipeline": "judged_answers:answers",
        "data": {"examples": 200},
        "slo": {"accuracy": 0.85, "latency_s": 5.0},
    }
    if metric is not None:
        document["metric"] = metric
    (folder / "q.yaml").write_text(yaml.safe_dump(document | changes))


def _planned() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(invoke(*PLAN, "--json").stdout)
    return document


def _labelled(path: Path) -> int:
    """Score what is wanted; gives how many there were."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    wanted = [line for line in lines if line["gold"] is None]
    for line in wanted:
        line["gold"] = float(line["output"]["right"])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return len(wanted)


@pytest.fixture(autouse=True)
def _kept_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CIRCINUS_INTERRUPTED", str(folder / "kept"))
    sys.modules.pop("judged_answers", None)
    yield
    sys.modules.pop("judged_answers", None)


def _wrong(field: str, rule: str, value: str) -> Wrong:
    return Wrong(name="", content="", field=field, rule=rule, value=value)


@pytest.mark.parametrize(
    ("metric", "wrong"),
    [
        (None, _wrong("metric", "must be given: pipeline answers is scored by a judge", "None")),
        ({"judge": "other"}, _wrong("metric.judge", "must be that of pipeline answers", "other")),
        ({"judge": "grader", "gold": "none.jsonl"}, _wrong("metric.gold", "readable", "none")),
        (
            {"judge": "grader", "gold": [{"label": "a", "gold": 2}]},
            _wrong("gold", "1", "2"),
        ),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(folder: Path, metric: object, wrong: Wrong) -> None:
    _query(folder, metric)
    assert_refused(invoke(*PLAN), wrong)


def test_labels_for_a_pipeline_with_a_metric_are_refused(folder: Path) -> None:
    adder_query(folder)
    (folder / "adder.yaml").rename(folder / "q.yaml")
    (folder / "l.jsonl").write_text("")
    wrong = _wrong("--labels", "must be left out", "None")
    assert_refused(invoke(*PLAN, "--labels", "l.jsonl"), wrong)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("not json", _wrong("--labels, line 2", "must be JSON", "not json")),
        ('{"gold": 1.0}', _wrong("--labels, line 2, label", "must be given", "nothing")),
    ],
)
def test_a_file_that_has_no_labels_is_refused(folder: Path, line: str, wrong: Wrong) -> None:
    _query(folder, {"judge": "grader", "label_budget": 5})
    (folder / "l.jsonl").write_text(f'{{"label": "a", "gold": null}}\n{line}\n')
    assert_refused(invoke(*PLAN, "--labels", "l.jsonl"), wrong)


def test_what_is_wanted_is_labelled_and_the_next_run_goes_on(folder: Path) -> None:
    _query(folder, {"judge": "grader", "label_budget": 150})
    first = _planned()
    path = folder / "q.labels.jsonl"
    assert first["judge"]["labels_used"] == 0
    assert first["judge"]["labels_wanted"] > 0
    assert {plan["states"]["accuracy"] for plan in first["plans"]} <= {"likely", "unproven"}
    for _ in range(6):
        if not _labelled(path):
            break
        found = _planned()
        if not found["judge"]["labels_wanted"]:
            break
    assert found["judge"]["labels_wanted"] == 0
    assert 0 < found["judge"]["labels_used"] <= 150
    assert found["plans"][0]["states"]["accuracy"] == "met"
    off = found["judge"]["bias"]
    assert off["low"] <= 0.05 <= off["high"] or off["low"] <= 0.0 <= off["high"]
    # Each was measured once, but for the first call of each size in a run, which warms it up, and
    # for each fifth of the first 150, which is compared with another run.
    ran = (folder / "ran.txt").read_text().splitlines()
    assert len(ran) - len(set(ran)) <= 3 * 7 + 30


def test_gold_in_the_query_is_taken_and_counts_as_used(folder: Path) -> None:
    gold = [{"label": "of something else", "gold": 1.0}]
    _query(folder, {"judge": "grader", "gold": gold, "label_budget": 1})
    found = _planned()
    assert found["judge"]["labels_used"] == 1
    assert (found["judge"]["labels_wanted"], found["judge"]["labels_left"]) == (0, 0)
