"""`circinus breakpoint`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import Result

from circinus.api.use_cases.route_files import with_breaking_points
from tests.api.cli.commands import invoke
from tests.deploy.ramp_server import serving

ROUTE = """\
# What serves it.
name: napping  # an endpoint
demand_per_s: 20
latency_s: 0.5
pipeline: tests.deploy.ramped_pipelines:napping
units:
  - {name: quick, model: nap, hardware: here, framework: python, price_usd_per_hour: 0.36, \
most_per_s: 20, latency_s: 0.1, knobs: {nap: {seconds: 0.01}}}  # keep me
  - name: slow
    model: nap
    hardware: there
    framework: python
    price_usd_per_hour: 0.2
    latency_s: 0.1
    most_per_s: 20      # guessed
    knobs: {nap: {seconds: 0.02}}
"""
_SHORT = ("--step-s", "0.5", "--most", "300")


@pytest.fixture
def route(tmp_path: Path) -> Path:
    path = tmp_path / "route.yaml"
    path.write_text(ROUTE)
    return path


def measured(*arguments: str, code: int = 0) -> Result:
    """Return what a ramp said; left out where this machine was too busy to send on time."""
    done = invoke("breakpoint", *arguments)
    if "ms late: none counts" in " ".join((done.stdout + done.stderr).split()):
        pytest.skip("this machine sent every step too late")
    assert done.exit_code == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "ROUTE must be given, or --url"),
        (["--url", "http://127.0.0.1:9/", "--write"], "--write must be with ROUTE"),
        (["--url", "http://127.0.0.1:9/", "--unit", "slow"], "--unit must be with ROUTE"),
        (["--url", "nowhere"], "--url must be of http or https"),
        (["ROUTE", "--body", "ROUTE"], "--body must be with --url"),
        (["ROUTE", "--unit", "fast"], "--unit must be among quick, slow"),
        (["ROUTE", "--url", "http://127.0.0.1:9/"], "--unit must name the one that --url is"),
        (["ROUTE", "--step-s", "0"], "--step-s must be finite and > 0"),
        (["ROUTE", "--most", "-1"], "--most must be finite and > 0"),
        (["ROUTE", "--latency", "0"], "--latency must be finite and > 0"),
        (["ROUTE", "--busy", "1.1"], "--busy must be in (0, 1]"),
    ],
)
def test_what_cannot_be_asked_ends_in_2_and_says_why(
    route: Path, arguments: list[str], message: str
) -> None:
    given = [str(route) if each == "ROUTE" else each for each in arguments]
    done = invoke("breakpoint", *given)
    told = " ".join((done.stdout + done.stderr).split())
    assert (done.exit_code, message in told) == (2, True), told


def test_a_route_that_somebody_else_runs_needs_a_url(route: Path) -> None:
    route.write_text(ROUTE.replace("pipeline: ", "# pipeline: "))
    done = invoke("breakpoint", str(route))
    told = " ".join((done.stdout + done.stderr).split())
    assert (done.exit_code, "pipeline must be given, or --url" in told) == (2, True), told


def test_an_endpoint_that_does_not_answer_ends_in_1(route: Path) -> None:
    done = invoke("breakpoint", "--url", "http://127.0.0.1:9/")
    assert done.exit_code == 1
    assert "http://127.0.0.1:9/" in done.stderr


def test_figures_are_put_into_a_route_and_all_else_stays() -> None:
    found = {"slow": {"most_per_s": 41.23456, "latency_s": 0.0456789}}
    changed = with_breaking_points(ROUTE, found | {"other": {"most_per_s": 1.0}})
    head, tail = ROUTE.split("  - name: slow")
    tail = tail.replace("latency_s: 0.1", "latency_s: 0.04568")
    tail = tail.replace("most_per_s: 20 ", "most_per_s: 41.23 ")
    assert changed == head + "  - name: slow" + tail


@pytest.mark.slow
def test_an_endpoint_is_measured_as_a_unit_of_a_route_and_written_there(
    route: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = (str(route), "--unit", "quick", "--out", str(out), "--write", *_SHORT)
    with serving(0.01) as server:
        done = measured(*arguments, "--url", server.url, "--json")
    (unit,) = json.loads(done.stdout)["units"]
    assert unit["unit"] == "quick"
    # one after the other it serves no more, whatever chance and this machine do in short steps
    assert unit["low_per_s"] <= min(unit["per_s"], 105.0)
    assert unit["usd_per_1000"] == pytest.approx(0.36 / unit["per_s"] / 3.6)
    assert unit["latency_s"] == 0.5
    written = route.read_text()
    assert f"most_per_s: {unit['per_s']:.4g}, latency_s: {unit['at']['mean_s']:.4g}" in written
    assert written.split("  - name: slow")[1] == ROUTE.split("  - name: slow")[1]
    rows = list(csv.DictReader((out / "breakpoint.csv").read_text().splitlines()))
    assert [float(row["per_s"]) for row in rows] == pytest.approx(
        [step["per_s"] for step in unit["steps"]], rel=1e-5
    )
    assert {row["unit"] for row in rows} == {"quick"}
    picture = ElementTree.fromstring((out / "quick.svg").read_text())
    assert "quick" in "".join(picture.itertext())
    assert invoke("route", "weights", str(route)).exit_code == 0


@pytest.mark.slow
def test_a_unit_is_started_here_and_measured(route: Path) -> None:
    done = measured(str(route), "--unit", "slow", "--json", *_SHORT)
    (unit,) = json.loads(done.stdout)["units"]
    assert unit["low_per_s"] <= 52.5


@pytest.mark.slow
def test_a_unit_that_is_too_slow_for_any_rate_ends_in_3(route: Path) -> None:
    done = measured(str(route), "--unit", "slow", "--latency", "0.01", *_SHORT, code=3)
    assert "slow: no rate that was tried holds" in " ".join(done.stdout.split())
