"""Loads: sizes and arrivals of requests, random, as published, or recorded.

A recording is a text file with a number per line: batch sizes, or seconds between arrivals.
Arrivals are gaps in units of their mean, to be divided by a rate. The same gaps at every rate: a
search over rates compares like with like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.files import read_file
from circinus.scheduler.dispatch.policy import FloatArray, IntArray

BatchMix = Callable[[int, np.random.Generator], IntArray]
"""(count, rng) -> batch sizes, `>= 1`, shape (count,)."""

_MU, _SIGMA = 5.1, 0.2  # of the log-normal part of batch sizes, in both papers' artefacts


def poisson_gaps(count: int, rng: np.random.Generator) -> FloatArray:  # (count,)
    """Return the gaps of a Poisson process: exponential, mean 1."""
    return rng.exponential(1.0, count)


def bursty_gaps(
    count: int, rng: np.random.Generator, *, burstiness: float = 4.0, mean_run: float = 50.0
) -> FloatArray:  # (count,)
    """Return gaps that are short for a while, then long for a while (interrupted Poisson).

    Two phases with rates `burstiness` to 1, `>= 1`, take turns, with `mean_run` arrivals each on
    average, `> 1`; the mean gap of the whole is 1. InvalidInput if a number is out of its range.
    """
    checks.require(burstiness >= 1, "burstiness", "must be >= 1", burstiness)
    checks.require(mean_run > 1, "mean_run", "must be > 1", mean_run)
    phase = np.cumsum(rng.random(count) < 1.0 / mean_run) % 2
    # Mean gaps a and b with a / b = burstiness and (a + b) / 2 = 1.
    calm = 2.0 * burstiness / (1.0 + burstiness)
    return rng.exponential(1.0, count) * np.where(phase == 0, calm, 2.0 - calm)


def recorded_gaps(gaps_s: FloatArray, count: int) -> FloatArray:  # (count,)
    """Return recorded gaps in their order, from the start again when they end, mean 1.

    InvalidInput if there are none, one is negative or not finite, or all are 0.
    """
    good = len(gaps_s) > 0 and bool(((gaps_s >= 0) & np.isfinite(gaps_s)).all())
    checks.require(good, "gaps_s", "must be finite and >= 0, and at least one", gaps_s)
    taken = np.resize(gaps_s, count).astype(np.float64)
    checks.positive("mean gap", float(taken.mean()))
    return np.asarray(taken / taken.mean())


def arrival_times(gaps: FloatArray, rate_per_s: float) -> FloatArray:  # (N,)
    """Return the times at which requests arrive when the gaps are made to fit a rate.

    InvalidInput if the rate is not `> 0`.
    """
    checks.positive("rate_per_s", rate_per_s)
    return np.asarray(np.cumsum(gaps) / rate_per_s)


# deviates: artefact-mix
def kairos_batches(count: int, rng: np.random.Generator) -> IntArray:  # (count,)
    """Return batch sizes as the Kairos artefact draws them, 1 to 999.

    Of r uniform on 1..99: r <= 8 uniform on 1..99; 9..30 on 200..599; 31..35 on 600..999; else
    log-normal s where 100 <= s <= 200, uniform on 190..199 where it is not.
    """
    r = rng.integers(1, 100, count)
    s = rng.lognormal(_MU, _SIGMA, count)
    body = np.where((s >= 100) & (s <= 200), s.astype(np.int64), rng.integers(190, 200, count))
    uniform = [rng.integers(*span, count) for span in ((1, 100), (200, 600), (600, 1000))]
    return np.select([r <= 8, r <= 30, r <= 35], uniform, body)


def ribbon_batches(count: int, rng: np.random.Generator) -> IntArray:  # (count,)
    """Return batch sizes as the Ribbon artefact draws them, 1 to 500.

    Of r uniform on 1..99: r <= 2 uniform on 1..99; 3..12 on 250..499; else log-normal s, or
    uniform on 400..499 where s > 500.
    """
    r = rng.integers(1, 100, count)
    s = rng.lognormal(_MU, _SIGMA, count)
    body = np.where(s <= 500, np.maximum(s.astype(np.int64), 1), rng.integers(400, 500, count))
    uniform = [rng.integers(*span, count) for span in ((1, 100), (250, 500))]
    return np.select([r <= 2, r <= 12], uniform, body)


# deviates: gaussian-mean
def gaussian_batches(
    count: int, rng: np.random.Generator, *, mean: float = 300.0, std: float = 100.0
) -> IntArray:  # (count,)
    """Return normally distributed batch sizes, cut to 1..1000 (Kairos, section 8.4).

    The paper names neither mean nor deviation; the defaults are ours.
    """
    drawn = np.rint(rng.normal(mean, std, count)).astype(np.int64)
    return np.clip(drawn, 1, 1000)


def recorded_batches(batches: Sequence[int]) -> BatchMix:
    """Return a mix drawn with replacement from such sizes; InvalidInput if none, or one `< 1`."""
    checks.require(len(batches) > 0, "batches", "must not be empty", batches)
    checks.require(min(batches) >= 1, "batches", "must be >= 1", min(batches))
    pool = np.array(batches, dtype=np.int64)
    return lambda count, rng: rng.choice(pool, count)


def changing(before: BatchMix, after: BatchMix, *, at: float = 0.5) -> BatchMix:
    """Return a mix that changes after a share `at` of the requests, in [0, 1]."""
    checks.probability("at", at)

    def draw(count: int, rng: np.random.Generator) -> IntArray:
        first = round(at * count)
        return np.concatenate([before(first, rng), after(count - first, rng)])

    return draw


Gaps = Callable[[int, np.random.Generator], FloatArray]
"""(count, rng) -> gaps of mean 1, shape (count,)."""

MIXES: Mapping[str, BatchMix] = {
    "kairos": kairos_batches,
    "ribbon": ribbon_batches,
    "gaussian": gaussian_batches,
}
ARRIVALS: Mapping[str, Gaps] = {"poisson": poisson_gaps, "bursty": bursty_gaps}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent; named after the mix, and the arrivals unless they are Poisson."""

    name: str
    sizes: BatchMix
    gaps: Gaps


def recorded_load(
    mix: str | Sequence[int] = "kairos", arrivals: str | Sequence[float] = "poisson"
) -> Load:
    """Return a load by the names of its parts, or recorded batch sizes and gaps in seconds.

    As `load_of`, but reads no file.
    """
    if isinstance(mix, str):
        checks.among("mix", mix, MIXES)
    if isinstance(arrivals, str):
        checks.among("arrivals", arrivals, ARRIVALS)
    return Load(
        name=f"{_label(mix)}, {_label(arrivals)}",
        sizes=MIXES[mix] if isinstance(mix, str) else recorded_batches(mix),
        gaps=ARRIVALS[arrivals] if isinstance(arrivals, str) else _again(np.array(arrivals)),
    )


def load_of(
    mix: str = "kairos", arrivals: str = "poisson", *, after: str | None = None, at: float = 0.5
) -> Load:
    """Return a load by names of its parts, or paths of recorded batch sizes and gaps (s).

    Recorded gaps are scaled to the rate, and each seed begins at another place of the recording.
    The mix is that of `after` from a share `at` of the requests on. InvalidInput if a name is
    unknown and no file, or a file holds anything else.
    """
    name, sizes = Path(mix).name, _mix("mix", mix)
    if after is not None:
        sizes = changing(sizes, _mix("mix_after", after), at=at)
        name = f"{name} then {Path(after).name} at {at:g}"
    if arrivals != "poisson":
        name = f"{name}, {Path(arrivals).name}"
    return Load(name=name, sizes=sizes, gaps=_gaps(arrivals))


def _label(part: str | Sequence[float]) -> str:
    return part if isinstance(part, str) else f"{len(part)} recorded"


def _mix(field: str, word: str) -> BatchMix:
    if word in MIXES:
        return MIXES[word]
    sizes = _numbers(field, word, MIXES)
    whole = bool(((sizes >= 1) & (sizes == np.rint(sizes))).all())
    checks.require(whole, field, "must hold whole numbers >= 1", word)
    return recorded_batches(sizes.astype(np.int64).tolist())


def _gaps(word: str) -> Gaps:
    if word in ARRIVALS:
        return ARRIVALS[word]
    return _again(_numbers("arrivals", word, ARRIVALS))


def _again(seconds: FloatArray) -> Gaps:
    recorded_gaps(seconds, len(seconds))  # complains now, not in the middle of a study

    def drawn(count: int, rng: np.random.Generator) -> FloatArray:
        return recorded_gaps(np.roll(seconds, -rng.integers(len(seconds))), count)

    return drawn


def _numbers(field: str, word: str, known: Mapping[str, object]) -> FloatArray:
    rule = f"must be {', '.join(known)} or a file with a number per line"
    try:
        numbers = np.array(read_file(Path(word), field).split(), dtype=np.float64)
    except ValueError as error:  # InvalidInput, too: no such file
        raise InvalidInput.of(field, rule, word) from error
    checks.require(len(numbers) > 0 and bool(np.isfinite(numbers).all()), field, rule, word)
    return numbers
