"""The configurations a strategy chooses from, as the numbers that models can work on.

A small space is taken whole. A huge one is never enumerated: a sample drawn once
stands for it, to which a strategy adds the neighbours of what it likes best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from circinus.pipelines.model.configuration import ConfigurationSpace, IndexArray
from circinus.pipelines.model.profile import FloatArray

WHOLE_SPACE = 20_000  # spaces up to this size are taken whole; of larger ones this many are drawn

_INT64_SAFE = 2**62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Configurations with their encoding."""

    # Of the configurations, all different, M of them. Exact in spaces of any size.
    numbers: tuple[int, ...]
    encoded: FloatArray  # one-hot knob values, shape (M, D)
    whole: bool  # whether these are all configurations of the space


def candidates(
    space: ConfigurationSpace, rng: np.random.Generator, *, limit: int = WHOLE_SPACE
) -> Candidates:
    """Return the whole space in order of number, or at most `limit` random configurations."""
    if space.size <= limit:
        indices = space.indices(np.arange(space.size, dtype=np.int64))
    else:
        indices = np.unique(rng.integers(0, space.radices, (limit, len(space.radices))), axis=0)
    return Candidates(
        numbers=tuple(numbers_of(space, indices)),
        encoded=one_hot(space, indices),
        whole=space.size <= limit,
    )


def neighbours(space: ConfigurationSpace, number: int) -> list[int]:
    """Return the configurations one knob away, ascending by knob, value."""
    here = indices_of(space, [number])[0].tolist()
    return [
        number + (value - own) * prod(space.radices[knob + 1 :])
        for knob, (own, radix) in enumerate(zip(here, space.radices, strict=True))
        for value in range(radix)
        if value != own
    ]


def encode(space: ConfigurationSpace, numbers: Sequence[int]) -> FloatArray:  # (n, D)
    """Return the one-hot encoding of configuration numbers."""
    return one_hot(space, indices_of(space, numbers))


def one_hot(space: ConfigurationSpace, indices: IndexArray) -> FloatArray:  # (n, knobs) -> (n, D)
    """Return a column per value of every knob that has a choice: 1 for its value, else 0."""
    blocks = [
        (indices[:, knob, None] == np.arange(radix)).astype(np.float64)
        for knob, radix in enumerate(space.radices)
        if radix > 1
    ]
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((len(indices), 0))


def scaled(space: ConfigurationSpace, indices: IndexArray) -> FloatArray:  # (n, knobs) -> (n, D)
    """Return a column per knob that has a choice: the place of its value, from 0 to 1."""
    radices = np.array(space.radices, dtype=np.float64)
    choice = radices > 1
    places: FloatArray = indices[:, choice] / (radices[choice] - 1)
    return places


def spread(chosen_from: Candidates, count: int, rng: np.random.Generator) -> list[int]:
    """Return the positions of a space-filling set, min(count, M) of them, all different.

    Each next one shares the fewest knob values with those before; the first one and ties are
    random. Nothing is known yet about which are cheap, so cost plays no part.
    """
    order = rng.permutation(len(chosen_from.numbers))
    encoded = chosen_from.encoded[order]
    # alike = the most knob values shared with any one chosen so far; a chosen one is never again.
    alike = np.full(len(order), -1.0)
    picks: list[int] = []
    for _ in range(min(count, len(order))):
        pick = int(np.argmin(alike))
        picks.append(int(order[pick]))
        alike = np.maximum(alike, encoded @ encoded[pick])
        alike[pick] = np.inf
    return picks


def numbers_of(space: ConfigurationSpace, indices: IndexArray) -> list[int]:
    """Return configuration numbers as exact integers, also where int64 would overflow."""
    exact = indices if space.size < _INT64_SAFE else indices.astype(object)
    return [int(number) for number in space.numbers(exact)]


def indices_of(space: ConfigurationSpace, numbers: Sequence[int]) -> IndexArray:  # (n, knobs)
    """Return the knob value indices of configuration numbers of any size."""
    if space.size < _INT64_SAFE:
        return space.indices(list(numbers))
    rest, columns = np.array(numbers, dtype=object), []
    for radix in reversed(space.radices):
        columns.append(rest % radix)
        rest = rest // radix
    return np.stack(columns[::-1], axis=1).astype(np.int64)
