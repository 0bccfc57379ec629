from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circinus.deploy.methods import DEFAULT, PUBLISHED
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.simulation.measurements import parse_latencies
from circinus.studies.dispatch.live import LiveStudy, run
from tests.api.cli.commands import invoke


def lines() -> list[str]:
    """Two types: the base takes 20 ms + 0.2 ms per item, the other twice as long."""
    return [
        "model,instance,batch,mean_ms,std_ms",
        *(
            f"toy,{name},{batch},{factor * (20 + 0.2 * batch)},0.5"
            for name, factor in (("base", 1), ("slow", 2))
            for batch in range(10, 1001, 10)
        ),
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"qos_s": 0.0}, "qos_s must be"),
        ({"steady_s": float("nan")}, "steady_s must be"),
        ({"overload_s": -1.0}, "overload_s must be"),
        ({"killing_s": 0.0}, "killing_s must be"),
        ({"policy": "oracle"}, "policy must be among plan_ahead, kairos"),
        ({"limit": 0}, "limit must be >= 1"),
        ({"pool": (3,)}, "pool must be 2 counts"),
        ({"pool": (1, 1)}, "pool must be 2 counts >= 0 of together >= 3"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    values = {"table": parse_latencies(lines(), "toy"), "qos_s": 0.5, "pool": (1, 3), **changed}
    with pytest.raises(InvalidInput, match=message):
        LiveStudy(**values)


def test_the_policy_is_that_of_the_default_method_unless_told() -> None:
    study = LiveStudy(table=parse_latencies(lines(), "toy"), qos_s=0.5, pool=(1, 3))
    assert study.policy == DEFAULT.dispatch
    assert replace(study, policy=PUBLISHED.dispatch).policy == "kairos"


def test_a_pool_that_can_serve_nothing_in_time_is_refused() -> None:
    # The slow type takes 40 ms for the smallest request.
    study = LiveStudy(table=parse_latencies(lines(), "toy"), qos_s=0.03, pool=(0, 3))
    with pytest.raises(InvalidInput, match="pool must have 99 % of some load in time with plan"):
        run(study, lambda phase, figures: None)


@pytest.mark.slow
def test_workers_answer_as_simulated_and_no_request_is_lost_without_a_word(
    tmp_path: Path,
) -> None:
    (tmp_path / "latency.csv").write_text("\n".join(lines()) + "\n")
    words = ["--latency", str(tmp_path / "latency.csv"), "--model", "toy", "--qos-ms", "500"]
    words += ["--pool", "2,4", "--seconds", "5", "--overload", "3", "--killing", "4"]
    result = invoke("study", "live", *words, "--json")
    assert result.exit_code == 0, result.output
    phases = json.loads(result.stdout)
    assert phases["simulated"]["policy"] == DEFAULT.dispatch
    # No bounds where the machine decides, which may be busy with something else: how fast
    # and how much in time is for the study to say.
    steady = phases["steady"]
    assert steady["answered"] + sum(steady["errors"].values()) == steady["requests"]
    assert steady["p50_ratio"] > 0.7  # nobody is faster than what is emulated
    assert 0 < steady["simulated_in_time"] <= 1
    assert phases["overload"]["of_allowable"] > 0
    assert phases["overload"]["memory_grew_mb"] < 50
    assert phases["killed"]["killed"] == 2
    assert phases["killed"]["without_any_answer"] == 0
