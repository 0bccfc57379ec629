"""JSON from elsewhere, read strictly: whoever sends it means exactly what we read.

Python's reader takes more than JSON is (`NaN`), keeps the last of several fields of one name, and
gives an infinity for a number that is too large. Its rule here: none of that gets past. And as it
gives nobody way while it reads, it reads no more than it has read in a moment.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections import Counter
from math import isfinite

from circinus.pipelines.errors import InvalidInput

MOST_VALUES = 30_000
"""More values are no JSON text here: whoever waits for one of so many waits for 6 ms."""

NO_TEXT = "must have text that UTF-8 can hold, without lone surrogates"
_DEEPEST = 100
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(data: bytes, field: str, most: int = MOST_VALUES) -> object:
    """Return what a JSON text holds, of at most so many values.

    InvalidInput about `field` if it is not UTF-8, not JSON, nests too deep, has too many values, a
    number without a JSON form (`NaN`, `Infinity`, `1e999`), text that UTF-8 cannot hold (half of a
    surrogate pair), or names a field twice.
    """
    try:
        _require_few(data, most)
        tree: object = json.loads(
            data.decode("utf-8"),
            parse_constant=_constant,
            parse_float=_finite,
            object_pairs_hook=_without_duplicates,
        )
        _require_shallow(tree)
        if _SURROGATE.search(data):
            json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        raise InvalidInput.of(field, NO_TEXT, half) from error
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


def _require_few(data: bytes, most: int) -> None:
    """Refuse a byte order mark, and more than so many values, before any is built.

    A value is the first of a list or mapping, or follows a comma. Looked at with the speed of C:
    first everything, and only if that is too much without the texts, of which a value has two.
    """
    if data.startswith(BOM_UTF8):
        raise _Refused("must be UTF-8 without a byte order mark at its begin", BOM_UTF8)
    if _commas_and_brackets(data) < most:
        return
    bare = data.replace(rb"\\", b"").replace(rb"\"", b"")
    quotes = bare.count(b'"')
    if quotes > 4 * most:
        found = quotes // 4
    else:
        found = _commas_and_brackets(b"".join(bare.split(b'"')[::2])) + 1
    if found > most:
        rule = f"must have at most {most} values (an empty list or mapping counts as two)"
        raise _Refused(rule, found)


def _commas_and_brackets(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


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
        times = Counter(name for name, _ in pairs)
        twice = next(name for name, count in times.items() if count > 1)
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
