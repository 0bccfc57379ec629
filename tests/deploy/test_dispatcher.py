from __future__ import annotations

import pytest

from circinus.deploy.runtime.dispatcher import LatencyWindow


def test_before_the_first_request_there_are_no_figures() -> None:
    observed = LatencyWindow().observed()
    assert (observed.count, observed.failed, observed.window) == (0, 0, 0)
    assert (observed.mean, observed.p50, observed.p99) == (None, None, None)


def test_figures_are_of_the_last_requests_and_counts_of_all() -> None:
    window = LatencyWindow(size=10)
    window.failed()
    for tenth in range(1, 13):  # 0.1 .. 1.2; the window keeps 0.3 .. 1.2
        window.answered(tenth / 10)
    observed = window.observed()
    assert (observed.count, observed.failed, observed.window) == (12, 1, 10)
    assert observed.mean == pytest.approx(0.75)
    # Inverted distribution function of ten values: the 5th, 9th, 10th, 10th.
    assert (observed.p50, observed.p90, observed.p95, observed.p99) == (0.7, 1.1, 1.2, 1.2)
