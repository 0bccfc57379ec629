"""What is sent in a dispatch study: how large requests are and when they arrive.

A load is told in words (`kairos`, `bursty`, the path of a recording), so that a command line
can name it. A recording is a text file with a number per line: batch sizes, or seconds between
arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import checks
from pipelines.errors import InvalidInput
from scheduler.dispatch.policy import FloatArray
from scheduler.simulation.arrivals import bursty_gaps, poisson_gaps, recorded_gaps
from scheduler.simulation.batches import (
    BatchMix,
    changing,
    gaussian_batches,
    kairos_batches,
    recorded_batches,
    ribbon_batches,
)

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
    """What is sent.

    Attributes:
        name: Of the mix, and of the arrivals unless they are Poisson.
        sizes: Of requests.
        gaps: Between arrivals.
    """

    name: str
    sizes: BatchMix
    gaps: Gaps


def load_of(
    mix: str = "kairos", arrivals: str = "poisson", *, after: str | None = None, at: float = 0.5
) -> Load:
    """Give a load by the names of its parts.

    Args:
        mix: Name of a mix, or path of recorded batch sizes.
        arrivals: Name of a process, or path of recorded gaps in seconds; these are scaled to the
            rate, and each seed begins at another place of the recording.
        after: Mix from a share `at` of the requests on; None: it does not change.
        at: In [0, 1].

    Raises:
        InvalidInput: If a name is unknown and no file, or a file holds anything else.
    """
    name, sizes = Path(mix).name, _mix("mix", mix)
    if after is not None:
        sizes = changing(sizes, _mix("mix_after", after), at=at)
        name = f"{name} then {Path(after).name} at {at:g}"
    if arrivals != "poisson":
        name = f"{name}, {Path(arrivals).name}"
    return Load(name=name, sizes=sizes, gaps=_gaps(arrivals))


def _mix(field: str, word: str) -> BatchMix:
    if word in MIXES:
        return MIXES[word]
    sizes = _numbers(field, word, MIXES)
    rule = "must hold whole numbers >= 1"
    whole = bool(((sizes >= 1) & (sizes == np.rint(sizes))).all())
    checks.require(whole, field, rule, word)
    return recorded_batches(sizes.astype(np.int64).tolist())


def _gaps(word: str) -> Gaps:
    if word in ARRIVALS:
        return ARRIVALS[word]
    seconds = _numbers("arrivals", word, ARRIVALS)
    recorded_gaps(seconds, len(seconds))  # complains now, not in the middle of a study

    def drawn(count: int, rng: np.random.Generator) -> FloatArray:
        return recorded_gaps(np.roll(seconds, -rng.integers(len(seconds))), count)

    return drawn


def _numbers(field: str, word: str, known: Mapping[str, object]) -> FloatArray:
    rule = f"must be {', '.join(known)} or a file with a number per line"
    try:
        lines = Path(word).read_text().split()
        numbers = np.array([float(line) for line in lines], dtype=np.float64)
    except (OSError, ValueError) as error:
        raise InvalidInput.of(field, rule, word) from error
    checks.require(len(numbers) > 0 and bool(np.isfinite(numbers).all()), field, rule, word)
    return numbers
