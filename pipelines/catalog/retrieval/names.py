"""Invented names, shared out so that seeds that differ modulo 3 have no name in common.

One rule: a name is a head and a tail, so that many are alike and a retriever has to tell
`Ashley` from `Ashby`. The number of tails is no multiple of 3: each part has all heads and tails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from pipelines.catalog.material import PARTS, part_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The words that names of one part are made of."""

    first: Sequence[str]
    family: Sequence[str]
    town: Sequence[str]
    model: Sequence[str]


def names_of(seed: int) -> Names:
    """Give the names that a seed draws from."""
    return _part(seed % PARTS)


@cache
def _part(part: int) -> Names:
    return Names(
        first=_joined(
            "Al Ber Cor Dan El Fen Gis Hal Ing Jor", "ana ric wyn mor esta ulf ine", part
        ),
        family=_joined(
            "Ash Bram Cold Dray Elm Farn Gold Hart Kel Lang",
            "worth ley combe stone field by wick",
            part,
        ),
        town=_joined(
            "Nor Oster Pell Quar Ruth Sand Tav Ulver Vell Wy",
            "ford ham mouth stead dale minster port",
            part,
        ),
        model=_joined("Zeph Xan Yar Ox Kry Vul Tri Bor Mag Sel", "ra ion ax eon ith ola um", part),
    )


def _joined(heads: str, tails: str, part: int) -> Sequence[str]:
    return part_of([head + tail for head, tail in product(heads.split(), tails.split())], part)
