"""Within how many seconds a request of a plan is in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from circinus.pipelines.model.slo import LatencyStatistic, Slo
from tests.api.fakes import plan

SLO = Slo(accuracy=0.5, latency_s=0.1)


def test_batch_work_has_no_deadline() -> None:
    assert plan().deadline_s(replace(SLO, throughput_per_s=5.0)) is None


@pytest.mark.parametrize(
    ("statistic", "deadline_s"),
    [
        (LatencyStatistic.P50, 0.1),
        (LatencyStatistic.P99, 0.1),
        (LatencyStatistic.MEAN, 0.25),  # 0.1 times 2.5
    ],
)
def test_a_bound_on_the_mean_leaves_room_for_slow_requests(
    statistic: LatencyStatistic, deadline_s: float
) -> None:
    measured = replace(plan(), p99_over_mean=2.5)
    assert measured.deadline_s(replace(SLO, latency_statistic=statistic)) == deadline_s
