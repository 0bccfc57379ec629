from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.studies.dispatch.unlike import UnlikeRow, UnlikeStudy, lines_of
from tests.api.cli.commands import invoke


def row(**changed: float) -> UnlikeRow:
    values: dict[str, Any] = {
        "policy": "plan_ahead",
        "seed": 0,
        "load": 1.0,
        "rate_rps": 50.0,
        "requests": 500,
        "answered": 500,
        "refused": 0,
        "in_time": 1.0,
        "goodput": 10.0,
        "simulated_goodput": 10.0,
        "small_in_time": 1.0,
        "large_in_time": 1.0,
        "simulated_small": 1.0,
        "simulated_large": 1.0,
        "lag_p99_ms": 1.0,
        "load_average": 0.5,
    }
    return UnlikeRow(**{**values, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policies": ()}, "policies must not be empty"),
        ({"policies": ("fcfs", "fcfs")}, "policies must"),
        ({"policies": ("oracle",)}, "policies must be among plan_ahead"),
        ({"seeds": 0}, "seeds must be >= 1"),
        ({"first_seed": -1}, "first_seed must be >= 0"),
        ({"seconds": 0.0}, r"seconds must be in \(0, 38\]"),
        ({"seconds": 39.0}, r"seconds must be in \(0, 38\]"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        UnlikeStudy(**changed)


def test_ratios_are_taken_seed_by_seed_and_the_worst_is_told() -> None:
    # 9 of 10 and 12 of 20: 0.9 and 0.6; 21 of the simulator's 24
    rows = [
        row(seed=0, goodput=10.0),
        row(seed=1, goodput=20.0),
        row(seed=0, load=3.0, goodput=9.0, simulated_goodput=12.0),
        row(seed=1, load=3.0, goodput=12.0, simulated_goodput=12.0),
    ]
    _, line = lines_of(rows)
    assert (line.policy, line.load, line.of_100, line.least_of_100) == (
        "plan_ahead",
        3.0,
        0.75,
        0.6,
    )
    assert line.of_simulated == 0.875


def test_without_goodput_there_is_no_ratio() -> None:
    (line,) = lines_of([row(goodput=0.0, simulated_goodput=0.0)])
    assert (line.of_100, line.least_of_100, line.of_simulated) == (None, None, None)


@pytest.mark.slow
def test_every_request_to_unlike_workers_is_answered_or_refused() -> None:
    words = ["--policy", "plan_ahead", "--seeds", "1", "--seconds", "1.25", "--json"]
    result = invoke("study", "unlike", *words)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    loads = [line["load"] for line in told["lines"]]
    assert loads == [0.8, 1.0, 1.2, 3.0]
    for name, phase in told["phases"].items():
        if "load" in phase:
            # No bounds where the machine decides, which may be busy with something else.
            assert 0 < phase["answered"] <= phase["requests"], name
            assert phase["answered"] + phase["refused"] == phase["requests"], name
            assert 0 <= phase["goodput"] <= 13, name  # 4 slow and 2 fast ones do 12
    ratios = [(line["load"], line["of_100"], line["of_simulated"]) for line in told["lines"]]
    sys.stdout.write(f"load, goodput of that at load 1, of the simulated: {ratios}\n")
