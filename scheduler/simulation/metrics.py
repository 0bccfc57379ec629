"""What a simulated run was like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.simulation.engine import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """Figures of a run.

    Attributes:
        requests: How many arrived.
        served: How many were served.
        in_time: Share of all requests that were answered in time.
        latency_mean_s: Of the served, from arrival to answer; like all below NaN if none was.
        latency_p50_s: Median.
        latency_p99_s: 99th percentile.
        wait_mean_s: Of the served, from arrival to start.
        late_mean_s: By how much the late ones were late on average; 0 if none was.
        late_max_s: The worst of them.
        utilisation: Share of the time, from the first arrival to the last answer, that an
            average instance was busy.
        in_system: Time average of the number of requests in the system over the same time.
        goodput_rps: Requests answered in time per second of that time.
    """

    requests: int
    served: int
    in_time: float
    latency_mean_s: float
    latency_p50_s: float
    latency_p99_s: float
    wait_mean_s: float
    late_mean_s: float
    late_max_s: float
    utilisation: float
    in_system: float
    goodput_rps: float


def metrics(run: Run) -> RunMetrics:
    """Give the figures of a run.

    Raises:
        ValueError: If nothing was served.
    """
    served = np.isfinite(run.finished_s)
    if not served.any():
        raise ValueError("no request of the run was served.")
    arrived, started = run.scenario.arrived_s[served], run.started_s[served]
    finished = run.finished_s[served]
    latency = finished - arrived
    late = latency - run.scenario.qos_s
    late = late[late > 1e-9]
    lasted = float(finished.max() - run.scenario.arrived_s[0])
    instances = len(run.scenario.fleet)
    return RunMetrics(
        requests=len(served),
        served=int(served.sum()),
        in_time=run.in_time,
        latency_mean_s=float(latency.mean()),
        latency_p50_s=float(np.quantile(latency, 0.5)),
        latency_p99_s=float(np.quantile(latency, 0.99)),
        wait_mean_s=float((started - arrived).mean()),
        late_mean_s=float(late.mean()) if len(late) else 0.0,
        late_max_s=float(late.max()) if len(late) else 0.0,
        utilisation=float((finished - started).sum()) / (lasted * instances),
        in_system=_time_average(arrived, finished),
        goodput_rps=(len(latency) - len(late)) / lasted,
    )


def _time_average(arrived: np.ndarray, finished: np.ndarray) -> float:
    """Give the mean number in the system by walking through time, not by Little's law."""
    at = np.concatenate([arrived, finished])
    step = np.concatenate([np.ones(len(arrived)), -np.ones(len(finished))])
    order = np.lexsort((step, at))
    at, number = at[order], np.cumsum(step[order])
    return float((number[:-1] * np.diff(at)).sum() / (at[-1] - at[0]))
