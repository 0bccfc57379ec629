"""Rules that values obey, checked once, where a value is built.

Every comparison is written so that NaN fails it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from math import inf

from circinus.pipelines.errors import InvalidInput

# Names end up in file names, Kubernetes labels and metric labels after mapping;
# this is what a person may type.
NAME = r"[A-Za-z][A-Za-z0-9_.-]{0,62}"


def require(ok: bool, field: str, rule: str, value: object) -> None:
    """Raise InvalidInput naming field, rule and value unless `ok`."""
    if not ok:
        raise InvalidInput.of(field, rule, value)


def positive(field: str, value: float | None) -> None:
    """Raise InvalidInput unless `0 < value < inf`; None, a value left out, is good."""
    require(value is None or 0 < value < inf, field, "must be finite and > 0", value)


def non_negative(field: str, value: float | None) -> None:
    """Raise InvalidInput unless `0 <= value < inf`; None, a value left out, is good."""
    require(value is None or 0 <= value < inf, field, "must be finite and >= 0", value)


def at_least(field: str, value: float | None, least: float) -> None:
    """Raise InvalidInput unless `value >= least`; None, a value left out, is good."""
    require(value is None or value >= least, field, f"must be >= {least}", value)


def probability(field: str, value: float) -> None:
    """Raise InvalidInput unless `0 <= value <= 1`."""
    require(0 <= value <= 1, field, "must be in [0, 1]", value)


def open_probability(field: str, value: float) -> None:
    """Raise InvalidInput unless `0 < value < 1`."""
    require(0 < value < 1, field, "must be in (0, 1)", value)


def share(field: str, value: float) -> None:
    """Raise InvalidInput unless `0 < value <= 1`."""
    require(0 < value <= 1, field, "must be in (0, 1]", value)


def name(field: str, value: str) -> None:
    """Raise InvalidInput unless `value` is a letter, then at most 62 letters, digits, `_.-`."""
    rule = "must start with a letter and have at most 63 letters, digits, '_', '.', '-'"
    require(re.fullmatch(NAME, value) is not None, field, rule, value)


def among(field: str, value: object, names: Collection[str]) -> None:
    """Raise InvalidInput, which lists the names in their order, unless `value` is one of them."""
    if value not in names:  # asked on hot paths: no words before they are needed
        raise InvalidInput.of(field, f"must be among {', '.join(names) or '(none)'}", value)


def unique(field: str, values: Sequence[object]) -> None:
    """Raise InvalidInput naming the first value that occurs twice."""
    known: set[object] = set()
    for value in values:
        # True == 1 and 1.0 == 1: as knob values they would be one choice stated twice.
        require(value not in known, field, "must not repeat", value)
        known.add(value)
