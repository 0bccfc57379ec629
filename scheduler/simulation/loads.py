"""What is sent, told in words (`kairos`, `bursty`, the path of a recording), as commands take it.

A recording is a text file with a number per line: batch sizes, or seconds between arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.files import read_file
from circinus.scheduler.dispatch.policy import FloatArray
from circinus.scheduler.simulation import workload

Gaps = Callable[[int, np.random.Generator], FloatArray]
"""(count, rng) -> gaps of mean 1, shape (count,)."""

MIXES: Mapping[str, workload.BatchMix] = {
    "kairos": workload.kairos_batches,
    "ribbon": workload.ribbon_batches,
    "gaussian": workload.gaussian_batches,
}
ARRIVALS: Mapping[str, Gaps] = {"poisson": workload.poisson_gaps, "bursty": workload.bursty_gaps}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent; named after the mix, and the arrivals unless they are Poisson."""

    name: str
    sizes: workload.BatchMix
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
        name=f"{_told(mix)}, {_told(arrivals)}",
        sizes=MIXES[mix] if isinstance(mix, str) else workload.recorded_batches(mix),
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
        sizes = workload.changing(sizes, _mix("mix_after", after), at=at)
        name = f"{name} then {Path(after).name} at {at:g}"
    if arrivals != "poisson":
        name = f"{name}, {Path(arrivals).name}"
    return Load(name=name, sizes=sizes, gaps=_gaps(arrivals))


def _told(part: str | Sequence[float]) -> str:
    return part if isinstance(part, str) else f"{len(part)} recorded"


def _mix(field: str, word: str) -> workload.BatchMix:
    if word in MIXES:
        return MIXES[word]
    sizes = _numbers(field, word, MIXES)
    whole = bool(((sizes >= 1) & (sizes == np.rint(sizes))).all())
    checks.require(whole, field, "must hold whole numbers >= 1", word)
    return workload.recorded_batches(sizes.astype(np.int64).tolist())


def _gaps(word: str) -> Gaps:
    if word in ARRIVALS:
        return ARRIVALS[word]
    return _again(_numbers("arrivals", word, ARRIVALS))


def _again(seconds: FloatArray) -> Gaps:
    workload.recorded_gaps(seconds, len(seconds))  # complains now, not in the middle of a study

    def drawn(count: int, rng: np.random.Generator) -> FloatArray:
        return workload.recorded_gaps(np.roll(seconds, -rng.integers(len(seconds))), count)

    return drawn


def _numbers(field: str, word: str, known: Mapping[str, object]) -> FloatArray:
    rule = f"must be {', '.join(known)} or a file with a number per line"
    try:
        numbers = np.array(read_file(Path(word), field).split(), dtype=np.float64)
    except ValueError as error:  # InvalidInput, too: no such file
        raise InvalidInput.of(field, rule, word) from error
    checks.require(len(numbers) > 0 and bool(np.isfinite(numbers).all()), field, rule, word)
    return numbers
