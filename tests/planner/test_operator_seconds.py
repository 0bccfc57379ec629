import numpy as np
import pytest

from planner.operator_seconds import Seconds


def _seconds() -> Seconds:
    rng = np.random.default_rng(0)
    return Seconds(
        operator_s=rng.random((6, 3)),
        hoped_s=rng.random((3, 6)).T,
        log_latency=rng.random(6),
        log_variance=np.array([0.0, 0.01, 0.1, 0.3, 0.5, 0.2]),
        paid=rng.integers(0, 9, (6, 3)),
        share_cost=np.array([1.0, 2.0, 2.5, 1.5, 4.0, np.inf]),
    )


def test_what_a_cheaper_plan_saves_is_its_mean_over_a_log_normal_cost() -> None:
    seconds, rng = _seconds(), np.random.default_rng(1)
    finite = seconds.at(np.arange(5))
    normal = rng.standard_normal((200_000, 1))
    deviation, half = np.sqrt(finite.log_variance), finite.log_variance / 2
    cost = finite.share_cost * np.exp(deviation * normal - half)
    expected = np.maximum(2.0 - cost, 0.0).mean(axis=0)
    assert finite.expected_saving(2.0) == pytest.approx(expected, abs=0.01)
    assert seconds.expected_saving(2.0)[5] == 0.0


def test_some_configurations_keep_what_is_known_of_them() -> None:
    seconds, rows = _seconds(), np.array([4, 1, 1])
    some = seconds.at(rows)
    for name in ("operator_s", "hoped_s", "log_latency", "log_variance", "paid", "share_cost"):
        assert getattr(some, name).tolist() == getattr(seconds, name)[rows].tolist()
