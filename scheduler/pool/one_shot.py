"""A pool without trying any, as published: Kairos' choice among the highest bounds (5.2).

If the three highest have alike many base instances the highest is taken. Otherwise, of the ten
highest, the one whose squared distances to the other nine add up to the least: the middle of the
region where rates are high. Of equals the one with the higher bound, then the first.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.pool.pools import Pool

_AGREEING, _REGION = 3, 10


class OneShotRule(StrEnum):
    """Which of the two rules chose."""

    HIGHEST = "the three highest bounds agree on the base type's count: the highest"
    NEAREST = "the three highest bounds differ in the base type's count: the middle of ten"


class OneShot(NamedTuple):
    """A pool and what chose it."""

    pool: Pool
    rule: OneShotRule


def one_shot(pools: IntArray, bounds: FloatArray) -> OneShot:
    """Choose among pools within a budget, (P, K), by bounds on their rates, (P,).

    Type 0 is the base. InvalidInput if there is no pool.
    """
    checks.require(len(pools) > 0, "pools", "must not be empty", "none")
    highest = pools[np.argsort(-bounds, kind="stable")[:_REGION]]
    if len(set(highest[:_AGREEING, 0].tolist())) == 1:
        return OneShot(tuple(highest[0].tolist()), OneShotRule.HIGHEST)
    apart = ((highest[:, None] - highest[None]) ** 2).sum(axis=(1, 2))
    return OneShot(tuple(highest[apart.argmin()].tolist()), OneShotRule.NEAREST)
