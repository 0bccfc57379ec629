"""`circinus route weights`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circinus.studies.routing.study import UNITS
from tests.api.cli.commands import invoke

_OF_UNIT = ("name", "model", "hardware", "framework", "price_usd_per_hour", "most_per_s")


def route(tmp_path: Path, /, **changes: object) -> str:
    """Write the paper's units as a route; `None` of a field leaves it out."""
    units = [
        {**{name: getattr(unit, name) for name in _OF_UNIT}, "latency_s": unit.latency_s}
        for unit in UNITS
    ]
    told = {"name": "sd21", "demand_per_s": 300.0, "latency_s": 0.95, "units": units} | changes
    path = tmp_path / "route.yaml"
    given = {key: value for key, value in told.items() if value is not None}
    path.write_text(json.dumps(given))  # JSON is YAML, and has no aliases
    return str(path)


def with_available(**available: int) -> list[dict[str, object]]:
    """Return the units, of some of which so many can be had."""
    return [
        {name: getattr(unit, name) for name in _OF_UNIT}
        | {"latency_s": unit.latency_s}
        | ({"available": available[unit.name]} if unit.name in available else {})
        for unit in UNITS
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"demand_per_s": None}, "demand_per_s must be given"),
        ({"latency_s": 0.0}, "latency_s must be"),
        ({"units": []}, "units must"),
        ({"weights": {}}, "weights"),
        ({"units": [*with_available()[:1]] * 2}, "name of a unit"),
        ({"units": [with_available()[0] | {"most_per_s": -1}]}, "units[0].most_per_s must be"),
        ({"units": [with_available()[0] | {"execution": "lazy"}]}, "units[0].execution must be"),
    ],
)
def test_a_route_that_cannot_be_ends_in_2_and_says_why(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    done = invoke("route", "weights", route(tmp_path, **changes))
    told = " ".join((done.stdout + done.stderr).split())
    assert (done.exit_code, message in told) == (2, True), told


def test_an_unknown_method_ends_in_2(tmp_path: Path) -> None:
    done = invoke("route", "weights", route(tmp_path), "--method", "random")
    assert done.exit_code == 2
    assert "--method must be among carried, published" in done.stdout + done.stderr


def test_while_all_can_be_had_the_cheapest_serves(tmp_path: Path) -> None:
    done = invoke("route", "weights", route(tmp_path), "--json")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert (told["regime"], told["why"]) == ("cost", "all that is wanted can be had")
    (cost, _) = told["regimes"]
    assert {unit["name"]: unit["units"] for unit in cost["units"] if unit["units"]} == {"inf2": 3}
    assert cost["usd_per_hour"] == pytest.approx(3 * 0.7582)
    assert told["left_out"] == ["g6-triton takes 960 ms, allowed are 950 ms"]
    assert told["least_usd_per_hour"] == pytest.approx(300 / 105 * 0.7582)


def test_where_the_cheapest_is_lacking_all_that_there_is_serves(tmp_path: Path) -> None:
    units = with_available(**{"inf2": 1, "trn1": 1, "g5-triton": 2, "g5-cuda": 0})
    done = invoke("route", "weights", route(tmp_path, units=units), "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["regime"]) == (0, "capacity")
    assert told["why"] == "cannot be had: inf2 (1 of 3)"
    capacity = told["regimes"][1]
    assert sum(unit["weight"] for unit in capacity["units"]) == pytest.approx(1.0)
    assert {unit["busy"] for unit in capacity["units"]} - {None} != set()
    assert all(unit["busy"] <= 1 for unit in capacity["units"] if unit["busy"] is not None)
    assert capacity["served_per_s"] == pytest.approx(300.0)


def test_as_published_every_unit_has_a_part_and_capacity_mode_is_even(tmp_path: Path) -> None:
    units = with_available(inf2=0)
    given = route(tmp_path, units=units, latency_s=1.0)
    done = invoke("route", "weights", given, "--method", "published", "--json")
    cost, capacity = json.loads(done.stdout)["regimes"]
    assert all(unit["weight"] > 0 for unit in cost["units"])
    parts = {unit["name"]: unit["weight"] for unit in capacity["units"]}
    assert parts.pop("inf2") == 0.0
    assert set(parts.values()) == {0.25}
    # 75 requests/s each: one unit that is let take 89.2, two that are let take 61 or 60.
    assert [unit["units"] for unit in capacity["units"]] == [0, 1, 1, 2, 2]


def test_what_can_be_had_may_be_too_little_which_ends_in_3(tmp_path: Path) -> None:
    units = with_available(**dict.fromkeys((unit.name for unit in UNITS), 0) | {"inf2": 1})
    done = invoke("route", "weights", route(tmp_path, units=units))
    assert done.exit_code == 3
    assert "What can be had is too little for the demand." in done.stdout


def test_no_unit_that_is_quick_enough_is_an_answer(tmp_path: Path) -> None:
    done = invoke("route", "weights", route(tmp_path, latency_s=0.1))
    assert done.exit_code == 3
    assert "no unit is within the latency" in done.stdout
