from __future__ import annotations

import csv
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circinus.deploy.methods import DEFAULT, PUBLISHED
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.simulation.loads import load_of
from circinus.scheduler.simulation.measurements import LatencyTable, parse_latencies
from circinus.studies.dispatch.study import (
    POLICIES,
    DispatchStudy,
    climbed,
    page,
    picture,
    results,
)
from circinus.studies.report.charts import svg
from circinus.studies.report.tables import version
from tests.api.cli.commands import invoke

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
        ({"first_seed": -1}, r"first_seed must be in \[0, 8998\]"),
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


@pytest.mark.parametrize("peak", [0.0, 0.1, 0.35, 0.5, 0.85, 1.0])
def test_hill_climbing_ends_at_the_top_of_a_single_hill(peak: float) -> None:
    assert climbed(lambda at: -abs(at - peak), 0.5) == peak


def test_hill_climbing_stays_on_a_plain() -> None:
    assert climbed(lambda at: 1.0, 0.5) == 0.5


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


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        ({"mix": "odd"}, "", "mix must be kairos, ribbon, gaussian or a file"),
        ({"after": "odd"}, "", "mix_after must be kairos"),
        ({"arrivals": "odd"}, "", "arrivals must be poisson, bursty or a file"),
        ({"mix": "FILE"}, "1\ntwo", "mix must be"),
        ({"mix": "FILE"}, "", "mix must be"),
        ({"mix": "FILE"}, "1.5", "mix must hold whole numbers >= 1"),
        ({"mix": "FILE"}, "0", "mix must hold whole numbers >= 1"),
        ({"arrivals": "FILE"}, "nan", "arrivals must be"),
        ({"arrivals": "FILE"}, "-1", "gaps_s must be finite and >= 0"),
    ],
)
def test_loads_that_make_no_sense_are_refused(
    tmp_path: Path, words: dict[str, str], text: str, message: str
) -> None:
    (tmp_path / "recorded.txt").write_text(text)
    path = str(tmp_path / "recorded.txt")
    with pytest.raises(InvalidInput, match=message):
        load_of(**{key: path if word == "FILE" else word for key, word in words.items()})  # type: ignore[arg-type] # `at` is not among them


def test_a_recorded_load_gives_what_was_recorded_and_changes_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "sizes.txt").write_text("7\n7\n")
    (tmp_path / "gaps.txt").write_text("1\n3\n")
    sizes, gaps = str(tmp_path / "sizes.txt"), str(tmp_path / "gaps.txt")
    load = load_of("gaussian", gaps, after=sizes, at=0.25)
    rng = np.random.default_rng(5)
    drawn = load.sizes(100, rng)
    assert (drawn[25:] == 7).all()
    assert not (drawn[:25] == 7).all()
    assert set(load.gaps(4, rng).tolist()) == {0.5, 1.5}  # 1 and 3 over their mean
    assert load.name == "gaussian then sizes.txt at 0.25, gaps.txt"


def test_sizes_beyond_the_measured_ones_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"batch must be in \[1, 1000\].*got 1001"):
        table().rows(np.array([5, 1001]))


def test_every_policy_gets_a_row_per_seed_and_none_beats_the_bound() -> None:
    rows = list(results(study(), SystemClock()))
    assert [(row.seed, row.policy) for row in rows] == [(s, p) for s in (0, 1) for p in POLICIES]
    # base: 1 / 21.4 ms on average at 228 items; the pool serves at most 1 + 3 / 4 of that
    assert all(0 < row.allowable_rps < 1.75 / 0.019 for row in rows)
    rate = {row.policy: row.allowable_rps for row in rows if row.seed == 0}
    assert rate["plan_ahead"] > rate["fcfs"]
    assert all(isnan(row.late_max_s) == (row.policy == "oracle") for row in rows)


def test_equal_studies_find_equal_rates() -> None:
    chosen = study(policies=("plan_ahead", "clockwork"), seeds=1, service="sampled")
    first, second = (list(results(chosen, SystemClock())) for _ in range(2))
    assert [row.allowable_rps for row in first] == [row.allowable_rps for row in second]


def test_the_default_plans_with_a_quantile_and_the_published_with_means() -> None:
    assert dispatch_policy(DEFAULT.dispatch).level == 0.9
    assert dispatch_policy(PUBLISHED.dispatch).level is None


def test_the_report_names_every_policy() -> None:
    rows = list(results(study(seeds=1), SystemClock()))
    drawn, document = svg(picture(rows)), page(rows, 1000)
    assert all(name in drawn and name in document for name in POLICIES)


def test_the_command_writes_the_table(tmp_path: Path) -> None:
    (tmp_path / "latency.csv").write_text("\n".join(lines()) + "\n")
    words = ["--latency", str(tmp_path / "latency.csv"), "--model", "toy", "--qos-ms", "150"]
    words += ["--pool", "1,3", "--pool", "fcfs=2,0", "--policies", "kairos,fcfs", "--seeds", "1"]
    words += ["--mix", "ribbon", "--arrivals", "bursty", "--seed", "3"]
    words += ["--requests", "500", "--out", str(tmp_path / "out")]
    result = invoke("study", "dispatch", *words)
    assert result.exit_code == 0, result.output
    with (tmp_path / "out" / "dispatch.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["policy"], row["pool"]) for row in rows] == [("kairos", "1 3"), ("fcfs", "2 0")]
    assert [(row["mix"], row["seed"]) for row in rows] == [("ribbon, bursty", "3")] * 2
    assert " ".join(rows[0]) == (
        "model service mix policy method pool seed allowable_rps late_mean_s late_max_s "
        "decision_us_p50 decision_us_p99 version"
    )
    assert [row["method"] for row in rows] == ["published", ""]
    assert {row["version"] for row in rows} == {version()}
    assert (tmp_path / "out" / "dispatch.html").exists()


@pytest.mark.parametrize("pool", ["1,x", "best=1,3", "1"])
def test_the_command_refuses_pools_that_make_no_sense(tmp_path: Path, pool: str) -> None:
    (tmp_path / "latency.csv").write_text("\n".join(lines()) + "\n")
    words = ["--latency", str(tmp_path / "latency.csv"), "--model", "toy", "--qos-ms", "150"]
    words += ["--pool", pool, "--out", str(tmp_path / "out")]
    assert invoke("study", "dispatch", *words).exit_code != 0
