"""What a deployment's requests are lately, and what they take where: what a pool is chosen for.

Sizes come in any unit, so they are told in classes: an eighth of an octave each, or wider where
they spread over so many octaves that these would be too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np

from circinus.deploy.runtime.learning import TierLatencies
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.pool.monitor import TrafficChange

MOST_CLASSES = 64
_PER_OCTAVE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSeconds:
    """What requests of each class keep an instance of a type busy for, as was learnt."""

    mean_s: FloatArray  # (B,)
    std_s: FloatArray  # (B,), of single requests


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficNews:
    """How often the requests of a deployment have become other ones, and the last time."""

    plan_id: str
    changes: int = 0  # since it began to serve
    seen: int = 0  # latest requests that are known, none from before the last change
    last: TrafficChange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDemand:
    """The latest requests of a deployment, none from before the last change."""

    plan_id: str
    sizes: FloatArray  # (B,), of each class, rising: the mean of those in it
    classes: IntArray  # (N,), of each request, the oldest first
    rate_per_s: float | None  # of arrivals, refused ones too; None: too few came
    # tier -> type of its machines -> what was learnt; types that served nothing are left out
    seconds: Mapping[str, Mapping[str, TypeSeconds]]
    # tier -> mean seconds that answers spent elsewhere, but for waiting; empty: nothing was
    # answered
    elsewhere_s: Mapping[str, float]


def classes_of(sizes: FloatArray) -> tuple[FloatArray, IntArray]:  # (N,) -> (B,), (N,)
    """Return the mean sizes of classes, rising, and the class of each size, `> 0`."""
    if len(sizes) == 0:
        return np.zeros(0), np.zeros(0, dtype=np.int64)
    octaves = np.log2(sizes)
    spread = float(octaves.max() - octaves.min())
    steps = min(_PER_OCTAVE, (MOST_CLASSES - 1) / spread) if spread > 0 else _PER_OCTAVE
    _, classes = np.unique(np.floor(steps * (octaves - octaves.min())), return_inverse=True)
    counts = np.bincount(classes)
    return np.bincount(classes, weights=sizes) / counts, classes.astype(np.int64)


def seconds_of(
    latencies: TierLatencies,
    kinds: Iterable[str],  # of requests: each comes once with every request to the pipeline
    types: Iterable[str],
    sizes: FloatArray,  # (B,)
) -> dict[str, TypeSeconds]:
    """Return what requests take on the types that are known of all kinds."""
    kinds, found = tuple(kinds), {}
    for name in types:
        if not all(latencies.knows([kind], name) for kind in kinds):
            continue
        mean_s, variance = np.zeros(len(sizes)), np.zeros(len(sizes))
        for kind in kinds:
            for i, size in enumerate(sizes.tolist()):
                seconds = latencies.mean((kind, size), name)
                mean_s[i] += seconds
                variance[i] += (seconds * relative_deviation(latencies.spread(kind, name))) ** 2
        found[name] = TypeSeconds(mean_s=mean_s, std_s=np.sqrt(variance))
    return found


def relative_deviation(spread: float) -> float:
    """Return the deviation over the mean of a log-normal with that deviation of logarithms."""
    return sqrt(max(exp(spread**2) - 1.0, 0.0))
