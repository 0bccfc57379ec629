"""Words that mean nearly the same, as a thesaurus of the language has them.

One rule: it holds words, not wordings: what takes a phrase to say (`came into the world`) is not
in it, so some questions stay hard.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_GROUPS = (
    "born birth birthday",
    "died die death passed pass end",
    "taught teacher master apprentice learned",
    "married wedding couple partner",
    "live lived settle settled house home",
    "earn earned salary paid sum",
    "work worked employment post clerk",
    "employs employ staff workers heads",
    "founded opened open began begin beginnings",
    "directs directed led head",
    "seat office building",
    "goods turnover sold sell",
    "invented invent idea drawn drew drawing",
    "weighs weigh weight heavy scale",
    "tall height high top",
    "makes made product plate",
    "kept display museum",
    "mayor governs governed ballots vote voted",
    "inhabitants people census",
    "sea coast beach",
    "trade trades sends send",
    "charter rights seal",
    "supplies supplied water pipes",
)

RELATED: Mapping[str, frozenset[str]] = MappingProxyType(
    {word: frozenset(group.split()) for group in _GROUPS for word in group.split()}
)
"""Word -> words near in meaning, itself among them."""
