"""More requests than can be answered: a report, as a busy machine changes the figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.test_requests import CLOSED_CLIENTS, OPEN_LOOP, load, served
from circinus.pipelines.registry import load_pipeline
from tests.e2e.service_process import ON_ONE_TIER, serving

SECONDS = 5.0


@pytest.mark.slow
def test_beyond_the_largest_rate_requests_are_answered_in_time_or_turned_away(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, ON_ONE_TIER, "tests.e2e.slow_sum:pipeline") as service:
        path, bodies = served(service, load_pipeline("digits"))
        load(service, path, bodies, clients=1, seconds=1.0)
        closed = load(service, path, bodies, clients=CLOSED_CLIENTS, seconds=SECONDS)
        rate_per_s = OPEN_LOOP * closed["rate_per_s"]
        beyond = load(service, path, bodies, rate_per_s=rate_per_s, seconds=SECONDS)
    assert (closed["other"], beyond["other"]) == (0, 0)  # nothing but answers and refusals
    ratio = beyond["in_time_per_s"] / closed["rate_per_s"]
    told = {"in time over the closed loop's rate": round(ratio, 3), "beyond": beyond}
    print(f"\noverload: {json.dumps(told)}")  # noqa: T201 - shown by `pytest -s`
