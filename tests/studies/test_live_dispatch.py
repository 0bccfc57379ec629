from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api.cli import app
from pipelines.errors import InvalidInput
from scheduler.simulation.measurements import parse_latencies
from studies.live_dispatch import LiveStudy


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
        ({"limit": 0}, "limit must be >= 1"),
        ({"pool": (3,)}, "pool must be 2 counts"),
        ({"pool": (1, 1)}, "pool must be 2 counts >= 0 of together >= 3"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    values = {"table": parse_latencies(lines(), "toy"), "qos_s": 0.5, "pool": (1, 3), **changed}
    with pytest.raises(InvalidInput, match=message):
        LiveStudy(**values)


@pytest.mark.slow
def test_workers_answer_as_simulated_and_no_request_is_lost_without_a_word(
    tmp_path: Path,
) -> None:
    (tmp_path / "latency.csv").write_text("\n".join(lines()) + "\n")
    words = ["--latency", str(tmp_path / "latency.csv"), "--model", "toy", "--qos-ms", "500"]
    words += ["--pool", "2,4", "--seconds", "12", "--overload", "5", "--killing", "6"]
    result = CliRunner().invoke(app, ["study", "live", *words, "--json"])
    assert result.exit_code == 0, result.output
    phases = json.loads(result.stdout)
    # Loose where the machine decides: it may be busy with something else.
    assert phases["overhead"]["added_p50_ms"] <= 5.0
    assert phases["steady"]["answered"] == phases["steady"]["requests"]
    assert 0.7 < phases["steady"]["p50_ratio"] < 1.5
    assert phases["overload"]["of_allowable"] >= 0.8
    assert phases["overload"]["memory_grew_mb"] < 50
    assert phases["overload"]["in_time_from_5_s_on"] >= 0.9
    assert phases["killed"]["killed"] == 2
    assert phases["killed"]["without_any_answer"] == 0
