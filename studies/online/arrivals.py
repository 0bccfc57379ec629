"""When queries arrive and leave, in simulated seconds.

The paper's arrivals follow a trace of Microsoft's (6.1), which is not public. Here they are a
Poisson process, a bursty one, or times from a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.files import read_file

_STREAM = 11  # of a seed
_BUSY = 3.0  # rate of a burst over the mean rate
_BUSY_PART = 0.2  # of the time
_BURST_S = 120.0  # mean length of a burst
_SHORTEST = 0.2  # stay over the mean one: a few minutes where the mean is ten or more


class ArrivalKind(StrEnum):
    """How arrivals are spread over time."""

    POISSON = "poisson"
    BURSTY = "bursty"
    """Two states: a fifth of the time at three times the mean rate, else at half of it."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A query's time in the system."""

    arrives_s: float
    leaves_s: float


def stays(
    kind: ArrivalKind,
    *,
    per_s: float,  # mean rate, `>= 0`
    window_s: float,
    mean_stay_s: float,
    seed: int,
    times: tuple[float, ...] | None = None,  # of arrival, in place of a process
) -> tuple[Stay, ...]:
    """Return the queries of a window that starts empty, by arrival; equal seeds, equal stays.

    A stay is a fifth of the mean, and what an exponential distribution adds to it.
    """
    rng = np.random.default_rng([seed, _STREAM])
    if times is None:
        made = _poisson if kind is ArrivalKind.POISSON else _bursty
        times = tuple(made(per_s, window_s, rng))
    arrivals = [time for time in times if time < window_s]
    least = _SHORTEST * mean_stay_s
    lengths = least + rng.exponential(mean_stay_s - least, len(arrivals))
    return tuple(
        Stay(at, at + length) for at, length in zip(arrivals, lengths.tolist(), strict=True)
    )


def _poisson(per_s: float, window_s: float, rng: np.random.Generator) -> Iterator[float]:
    yield from _between(0.0, window_s, per_s, rng)


def _bursty(per_s: float, window_s: float, rng: np.random.Generator) -> Iterator[float]:
    """Yield a Markov-modulated Poisson process of two states."""
    quiet = (1 - _BUSY * _BUSY_PART) / (1 - _BUSY_PART)
    quiet_s = _BURST_S * (1 - _BUSY_PART) / _BUSY_PART
    at, busy = 0.0, bool(rng.random() < _BUSY_PART)
    while at < window_s:
        end = at + rng.exponential(_BURST_S if busy else quiet_s)
        rate = per_s * (_BUSY if busy else quiet)
        yield from _between(at, min(end, window_s), rate, rng)
        at, busy = end, not busy


def _between(
    start_s: float, end_s: float, per_s: float, rng: np.random.Generator
) -> Iterator[float]:
    if per_s <= 0:
        return
    at = start_s + rng.exponential(1 / per_s)
    while at < end_s:
        yield at
        at += rng.exponential(1 / per_s)


def read_times(path: Path) -> tuple[float, ...]:
    """Return the arrival times of a file, a number of seconds a line, ascending.

    InvalidInput names the first line that is no such number.
    """
    times: list[float] = []
    text = read_file(path, "arrivals").decode(errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        field = f"arrivals, line {number}"
        try:
            time = float(line)
        except ValueError as error:
            raise InvalidInput.of(field, "must be a number of seconds", line) from error
        checks.non_negative(field, time)
        least = times[-1] if times else 0.0
        checks.require(time >= least, field, f"must be >= {least:g}, the line before", time)
        times.append(time)
    checks.require(bool(times), "arrivals", "must have a line at least", str(path))
    return tuple(times)
