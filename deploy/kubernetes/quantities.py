"""Kubernetes' quantities, such as `500m` and `2Gi`, as exact numbers."""

from __future__ import annotations

import re
from decimal import Decimal

from pipelines.errors import InvalidInput

_FORM = re.compile(r"([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(e[+-]?[0-9]+|[a-zA-Z]*)", re.IGNORECASE)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def quantity(text: str) -> Decimal:
    """Give the number that a quantity stands for.

    Raises:
        InvalidInput: If it is none.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidInput.of("quantity", "must be a number with a suffix of Kubernetes", text)
    number, suffix = Decimal(match[1]), match[2]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    if suffix in _BINARY:
        return number * Decimal(1024) ** _BINARY[suffix]
    if suffix[:1] in ("e", "E"):
        return number.scaleb(int(suffix[1:]))
    raise InvalidInput.of("quantity", "must be a number with a suffix of Kubernetes", text)
