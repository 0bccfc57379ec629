"""A queue before one server, and where it breaks in closed form."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, floor, lgamma, log

import numpy as np

from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.routing.breaking_point import RampObservation

Service = Callable[[np.random.Generator, int], FloatArray]


def always(service_s: float) -> Service:
    return lambda _, count: np.full(count, service_s)


def exponential(service_s: float) -> Service:
    return lambda generator, count: generator.exponential(service_s, count)


def step(
    generator: np.random.Generator,
    per_s: float,
    lasts_s: float,
    service: Service,
    *,
    tells_busy: bool = False,
) -> RampObservation:
    """Simulate one server, first come, first served, at random arrivals."""
    sent = np.sort(generator.uniform(0.0, lasts_s, max(1, generator.poisson(per_s * lasts_s))))
    busy = service(generator, len(sent))
    worked = np.cumsum(busy)
    # Lindley: each ends when all since some arrival have been served, of the latest such.
    done = worked + np.maximum.accumulate(sent - (worked - busy))
    return RampObservation(
        per_s=per_s,
        lasted_s=lasts_s,
        sent_s=sent,
        response_s=done - sent,
        busy_s=busy if tells_busy else None,
    )


def breaks_exponential(service_s: float, latency_s: float) -> float:
    """Return at which rate 5 % of M/M/1 take longer: exp(-(mu - lambda) t) = 0.05."""
    return 1 / service_s - log(20) / latency_s


def breaks_constant(service_s: float, latency_s: float) -> float:
    """Return at which rate 5 % of M/D/1 take longer, by bisection of its closed form."""
    low, high = 0.0, 1 / service_s
    for _ in range(50):
        rate = (low + high) / 2
        within = _waits_at_most(rate, service_s, latency_s - service_s) >= 0.95
        low, high = (rate, high) if within else (low, rate)
    return low


def _waits_at_most(rate: float, service_s: float, wait_s: float) -> float:
    """Return the part that waits no longer (Erlang, 1909)."""
    total = 1.0 * exp(rate * wait_s)
    for k in range(1, floor(wait_s / service_s) + 1):
        early = rate * (wait_s - k * service_s)
        if early > 0:
            total += (-1) ** k * exp(k * log(early) - lgamma(k + 1) + early)
    return (1 - rate * service_s) * total
