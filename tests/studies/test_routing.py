"""The study of routing, in short."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.studies.routing.load_steps import LoadStepRow, breaking_points, load_steps
from circinus.studies.routing.pictures import RecordedRun
from circinus.studies.routing.study import PUBLISHED_ROUTE, ROUTERS, RoutingStudy, run, summary

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policies": ("guess",)}, "policies must be among regimes, published"),
        ({"seeds": 0}, "seeds must be >= 1"),
        (
            {"route": replace(PUBLISHED_ROUTE, demand_per_s=0.0)},
            "demand_per_s must be finite and > 0",
        ),
        ({"route": replace(PUBLISHED_ROUTE, latency_s=0.1)}, "units must have one that is quick"),
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


def test_a_file_has_the_columns_that_are_promised(tmp_path: Path) -> None:
    run(RoutingStudy(policies=("regimes",), seeds=1, cycle_s=60.0), tmp_path)
    with (tmp_path / "routing.csv").open() as file:
        *told, version = next(csv.reader(file))
    assert ",".join(told) == (
        "scenario,policy,seed,requests,served,late,cost_usd,usd_per_1000,p95_s,switch_s"
    )
    assert version == "version"  # as all files of studies


def test_what_is_drawn_is_the_run_of_the_row(tmp_path: Path) -> None:
    watched: list[RecordedRun] = []
    rows = [*RoutingStudy(seeds=2, cycle_s=60.0).rows(watched.append)]
    first = [row for row in rows if row.seed == 0 and row.policy in ("regimes", "published")]
    assert [(one.scenario.name, one.policy) for one in watched] == [
        (row.scenario, row.policy) for row in first
    ]
    for row, one in zip(first, watched, strict=True):
        assert one.series.arrivals.sum() == row.requests
        assert one.series.served.sum() == row.served
        assert one.series.usd.sum() == pytest.approx(row.cost_usd)


def test_every_figure_is_drawn_with_its_words(tmp_path: Path) -> None:
    run(RoutingStudy(seeds=1, cycle_s=120.0), tmp_path)
    assert {path.name for path in tmp_path.glob("*.svg")} == {
        f"figure-{number}.svg" for number in (4, 5, 6, 7)
    }
    told = {path.name: words(path) for path in tmp_path.glob("*.svg")}
    assert {"offered, requests/s", "throughput", "inf2", "95 % within 2 s"} <= told["figure-4.svg"]
    for name in ("figure-5.svg", "figure-6.svg", "figure-7.svg"):
        assert {"minutes", "requests/s", "demand", "regimes: latency"} <= told[name]
    assert any("regimes: capacity, cannot be had: inf2" in text for text in told["figure-7.svg"])
    assert "0 min, g6-triton: 1 can be had" in told["figure-6.svg"]
    page = (tmp_path / "routing.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    assert "simulated" in page


def test_a_route_without_the_l4_has_no_figure_of_it(tmp_path: Path) -> None:
    two = replace(PUBLISHED_ROUTE, units=PUBLISHED_ROUTE.units[:2])
    run(RoutingStudy(route=two, policies=("static",), seeds=1, cycle_s=60.0), tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == [
        f"figure-{number}.svg" for number in (4, 5, 7)
    ]


def test_no_unit_that_is_always_late_has_a_breaking_point() -> None:
    slow = [step(0.1, 3.0), step(0.2, 0.5)]
    assert breaking_points(slow, 2.0) == {}


def test_a_unit_breaks_where_more_than_one_in_twenty_is_late() -> None:
    assert breaking_points([step(0.5, 1.0), step(0.9, 2.0), step(1.0, 2.1)], 2.0) == {"a": 9.0}
    assert breaking_points([step(0.5, 1.0), step(0.9, 3.0), step(1.0, 1.0)], 2.0) == {"a": 5.0}


def test_a_unit_takes_what_it_can_and_breaks_before_it() -> None:
    rows = [*load_steps(PUBLISHED_ROUTE, 200.0, 0)]
    most = {unit.name: unit.most_per_s for unit in PUBLISHED_ROUTE.units}
    late_s = 2 * PUBLISHED_ROUTE.latency_s
    for row in rows:
        assert row.served_per_s < 1.02 * most[row.unit]
        if row.load > 1.15:
            assert row.served_per_s > 0.97 * most[row.unit]
            assert row.p95_s > late_s
        if row.load < 0.65:
            # So many come in 200 s: five deviations are 5 / sqrt(200 * 0.6) of them at the most.
            assert row.busy == pytest.approx(row.load, rel=0.46)
            assert row.p95_s <= late_s
    for unit, offered in breaking_points(rows, late_s).items():
        assert 0.6 <= offered / most[unit] <= 1.1


def step(load: float, p95_s: float) -> LoadStepRow:
    """Return a row of a unit that takes ten requests a second."""
    return LoadStepRow(
        unit="a",
        load=load,
        offered_per_s=10 * load,
        served_per_s=10 * load,
        p50_s=p95_s / 2,
        p95_s=p95_s,
        busy=load,
    )


def words(path: Path) -> set[str]:
    """Return the words of a picture."""
    svg = ElementTree.parse(path).getroot()
    return {text.text or "" for text in svg.iter("{http://www.w3.org/2000/svg}text")}
