"""The study of routing, in short."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.studies.routing.study import ROUTERS, RoutingStudy, run, summary


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policies": ("guess",)}, "policies must be among regimes, published"),
        ({"seeds": 0}, "seeds must be >= 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        RoutingStudy(**change)  # type: ignore[arg-type]  # wrong on purpose


def test_every_run_is_a_row_and_policies_meet_the_same_requests(tmp_path: Path) -> None:
    rows = run(RoutingStudy(seeds=1, cycle_s=60.0), tmp_path)
    assert len(rows) == 3 * len(ROUTERS)
    assert len({row.requests for row in rows}) == 1
    with (tmp_path / "routing.csv").open() as file:
        assert [(line["scenario"], line["policy"]) for line in csv.DictReader(file)] == [
            (row.scenario, row.policy) for row in rows
        ]


def test_regimes_lose_no_request_and_switch_when_it_happens(tmp_path: Path) -> None:
    cells = summary(run(RoutingStudy(policies=("regimes",), seeds=2, cycle_s=240.0), tmp_path))
    assert [cell.runs for cell in cells] == [2, 2, 2]
    assert {cell.not_served for cell in cells} == {0}
    assert {cell.longest_switch_s for cell in cells} == {0.0}
