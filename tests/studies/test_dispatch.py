from __future__ import annotations

import csv
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api.cli import app
from pipelines.clock import SystemClock
from pipelines.errors import InvalidInput
from scheduler.simulation.measurements import LatencyTable, parse_latencies
from studies.dispatch import POLICIES, DispatchStudy, run, search_pool
from studies.dispatch_pools import pools_within
from studies.dispatch_report import page, picture

HEADER = "model,instance,batch,mean_ms,std_ms"


def lines() -> list[str]:
    """Two types: the base takes 10 ms + 0.05 ms per item, the other four times as long."""
    return [
        HEADER,
        *(
            f"toy,{name},{batch},{factor * (10 + 0.05 * batch)},{0.5 * factor}"
            for name, factor in (("base", 1), ("slow", 4))
            for batch in range(10, 1001, 10)
        ),
    ]


def table() -> LatencyTable:
    return parse_latencies(lines(), "toy")


def study(**changed: Any) -> DispatchStudy:  # noqa: ANN401 - values of any field
    values: dict[str, Any] = {
        "table": table(),
        "qos_s": 0.15,
        "policies": POLICIES,
        "pools": dict.fromkeys(POLICIES, (1, 3)),
        "seeds": 2,
        "requests": 1000,
    }
    return DispatchStudy(**{**values, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"qos_s": 0.0}, "qos_s must be"),
        ({"seeds": 0}, "seeds must be >= 1"),
        ({"requests": 99}, "requests must be >= 100"),
        ({"service": "lucky"}, "service must be mean or sampled"),
        ({"mix": "odd"}, "mix must be among"),
        ({"policies": ()}, "policies must not be empty"),
        ({"policies": ("kairos", "kairos")}, "policies must not repeat"),
        ({"policies": ("best",)}, "policies must be among"),
        ({"pools": {}}, "pool of kairos must be 2 counts"),
        ({"pools": dict.fromkeys(POLICIES, (0, 0))}, "pool of kairos must be 2 counts"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        study(**changed)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["model,instance"], "header must have"),
        ([HEADER, "other,base,10,1,0"], "model must be among other"),
        ([HEADER, "toy,base,ten,1,0"], "row must have numbers"),
        ([HEADER, "toy,base,10,nan,0"], "mean_ms must be"),
        ([HEADER, "toy,base,10,0,0"], "mean_ms must be"),
        ([HEADER, "toy,base,10,1,-1"], "std_ms must be"),
        ([HEADER, "toy,base,10,1,0", "toy,base,10,1,0"], "must not repeat"),
        ([HEADER, "toy,base,10,1,0", "toy,slow,20,1,0"], "must have every type at every batch"),
    ],
)
def test_latencies_that_make_no_sense_are_refused(rows: list[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_latencies(rows, "toy")


def test_every_policy_gets_a_row_per_seed_and_none_beats_the_bound() -> None:
    rows = run(study(), SystemClock())
    assert [(row.seed, row.policy) for row in rows] == [(s, p) for s in (0, 1) for p in POLICIES]
    # base: 1 / 21.4 ms on average at 228 items; the pool serves at most 1 + 3 / 4 of that
    assert all(0 < row.allowable_rps < 1.75 / 0.019 for row in rows)
    rate = {row.policy: row.allowable_rps for row in rows if row.seed == 0}
    assert rate["plan_ahead"] > rate["fcfs"]
    assert all(isnan(row.late_max_s) == (row.policy == "oracle") for row in rows)


def test_equal_studies_find_equal_rates() -> None:
    chosen = study(policies=("plan_ahead", "clockwork"), seeds=1, service="sampled")
    first, second = (run(chosen, SystemClock()) for _ in range(2))
    assert [row.allowable_rps for row in first] == [row.allowable_rps for row in second]


def test_pools_leave_no_room_for_another_base_instance() -> None:
    # at 2 and 1 of 5: (1, 2) and (1, 3), (2, 0) leaves room for one of 1, none of 2
    assert pools_within((2.0, 1.0), 5.0) == [(1, 2), (1, 3), (2, 0), (2, 1)]


def test_the_best_pool_of_equal_machines_is_the_largest() -> None:
    pools = [(1, 0), (3, 0), (2, 0)]
    assert search_pool("kairos", study(seeds=1), pools, requests=500) == (3, 0)


def test_the_report_names_every_policy() -> None:
    rows = run(study(seeds=1), SystemClock())
    drawn, document = picture(rows, "toy", "mean"), page(rows, 1000)
    assert all(name in drawn and name in document for name in POLICIES)


def test_the_command_writes_the_table(tmp_path: Path) -> None:
    (tmp_path / "latency.csv").write_text("\n".join(lines()) + "\n")
    words = ["--latency", str(tmp_path / "latency.csv"), "--model", "toy", "--qos-ms", "150"]
    words += ["--pool", "1,3", "--pool", "fcfs=2,0", "--policies", "kairos,fcfs", "--seeds", "1"]
    words += ["--requests", "500", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["study", "dispatch", *words])
    assert result.exit_code == 0, result.output
    with (tmp_path / "out" / "dispatch.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["policy"], row["pool"]) for row in rows] == [("kairos", "1 3"), ("fcfs", "2 0")]
    assert (tmp_path / "out" / "dispatch.html").exists()


@pytest.mark.parametrize("pool", ["1,x", "best=1,3", "1"])
def test_the_command_refuses_pools_that_make_no_sense(tmp_path: Path, pool: str) -> None:
    (tmp_path / "latency.csv").write_text("\n".join(lines()) + "\n")
    words = ["--latency", str(tmp_path / "latency.csv"), "--model", "toy", "--qos-ms", "150"]
    words += ["--pool", pool, "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, ["study", "dispatch", *words]).exit_code != 0
