"""JSON from elsewhere, read strictly: whoever sends it means exactly what we read.

Python's reader takes more than JSON is (`NaN`), keeps the last of several fields of one name, and
gives an infinity for a number that is too large. Its rule here: none of that gets past.
"""

from __future__ import annotations

import json
from math import isfinite

from circinus.pipelines.errors import InvalidInput

_DEEPEST = 100


def read_json(data: bytes, field: str) -> object:
    """Give what a JSON text holds.

    InvalidInput about `field` if it is not UTF-8, not JSON, nests too deep, has a number without a
    JSON form (`NaN`, `Infinity`, `1e999`), or names a field twice.
    """
    try:
        tree: object = json.loads(
            data.decode("utf-8"),
            parse_constant=_constant,
            parse_float=_finite,
            object_pairs_hook=_without_duplicates,
        )
        _require_shallow(tree)
    except UnicodeDecodeError as error:
        at = data[error.start : error.start + 8]
        raise InvalidInput.of(field, "must be UTF-8", at) from error
    except json.JSONDecodeError as error:
        rule = f"must be JSON ({error.msg} at line {error.lineno} column {error.colno})"
        told = error.doc[error.pos : error.pos + 20] or error.doc[-20:]  # the end, if it is torn
        raise InvalidInput.of(field, rule, told) from error
    except RecursionError as error:
        raise InvalidInput.of(field, f"must nest at most {_DEEPEST} deep", "deeper") from error
    except _Refused as refused:
        raise InvalidInput.of(field, *refused.args) from refused
    except ValueError as error:  # an integer of more digits than Python converts
        raise InvalidInput.of(field, "must have numbers of fewer digits", str(error)) from error
    return tree


class _Refused(Exception):
    """A rule that is broken inside, and by what."""


def _constant(constant: str) -> object:
    raise _Refused(f"must have finite numbers ({constant} is no JSON number)", constant)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise _Refused("must have finite numbers", text)
    return number


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise _Refused("must name every field once", twice)
    return found


def _require_shallow(tree: object) -> None:
    level = [tree]
    for _ in range(_DEEPEST):
        deeper: list[object] = []
        for item in level:
            if isinstance(item, dict):
                deeper += item.values()
            elif isinstance(item, list):
                deeper += item
        if not deeper:
            return
        level = deeper
    raise RecursionError
