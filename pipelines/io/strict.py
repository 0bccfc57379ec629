"""JSON and YAML from elsewhere, read strictly: small, and without what Python would guess at.

Python's JSON reader takes `NaN`, keeps the last of fields with one name, and makes infinities of
large numbers; YAML lets keys repeat, and has aliases (a few lines can stand for gigabytes) and
tags that build objects. All of that is refused. YAML scalars are read as version 1.2 has them:
`1e-3` is a number, `yes` is text. Reading blocks the event loop, so texts are bounded to take a
moment.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections import Counter
from math import isfinite
from typing import Any

import yaml

from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.model.payload import NO_TEXT

MOST_VALUES = 30_000
"""More values are no JSON text here: reading one of so many blocks for 6 ms."""

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
        text = error.doc[error.pos : error.pos + 20] or error.doc[-20:]  # the end, if it is torn
        raise InvalidInput.of(field, rule, text) from error
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
        values = quotes // 4
    else:
        values = _commas_and_brackets(b"".join(bare.split(b'"')[::2])) + 1
    if values > most:
        rule = f"must have at most {most} values (an empty list or mapping counts as two)"
        raise _Refused(rule, values)


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
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        times = Counter(name for name, _ in pairs)
        twice = next(name for name, count in times.items() if count > 1)
        raise _Refused("must name every field once", twice)
    return mapping


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


LARGEST_FILE_BYTES = 2**20
MOST_NODES = 5000
DEEPEST = 32  # levels of nesting; a query has three
LARGEST_INTEGER = 2**64


def parse_document(data: bytes, *, field: str = "document") -> dict[str, object]:
    """Return the mapping that strict YAML text, in UTF-8, holds; else InvalidInput on `field`."""
    document = _loaded(data, field, _StrictLoader)
    if not isinstance(document, dict):
        raise InvalidInput.of(field, "must hold a mapping", document)
    return document


def parse_safely(data: bytes, *, field: str) -> object:
    """Return the value of YAML that PyYAML wrote: read as 1.1, but bounded as strict ones are."""
    return _loaded(data, field, yaml.CSafeLoader)


def _loaded(data: bytes, field: str, loader: type[yaml.CSafeLoader]) -> object:
    if len(data) > LARGEST_FILE_BYTES:
        raise InvalidInput(
            [Violation(field, f"must have at most {LARGEST_FILE_BYTES} bytes", "more")]
        )
    try:
        text = data.decode("utf-8-sig")
        _check_events(text, field)
        return yaml.load(text, loader)
    except UnicodeDecodeError as error:
        raise InvalidInput.of(field, "must be UTF-8 text", data[:32]) from error
    except InvalidInput:
        raise
    except (yaml.YAMLError, ValueError) as error:  # a date of YAML 1.1 that is none
        raise InvalidInput([Violation(field, "must be YAML", _problem(error))]) from error


def _check_events(text: str, field: str) -> None:
    """Refuse what would be expensive to build, before anything is built."""
    depth = documents = nodes = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        for broken, rule, what in (
            (isinstance(event, yaml.AliasEvent), "must not use aliases", "one on"),
            (getattr(event, "tag", None) is not None, "must not use tags", "one on"),
            (depth > DEEPEST, f"must nest at most {DEEPEST} deep", "more on"),
            (documents > 1, "must hold one document", "two by"),
            (nodes > MOST_NODES, f"must have at most {MOST_NODES} keys and values", "more by"),
        ):
            if broken:
                raise InvalidInput([Violation(field, rule, f"{what} line {_line(event)}")])


def _problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def _line(place: yaml.Event | yaml.Node) -> int:
    return 0 if place.start_mark is None else place.start_mark.line + 1


class _StrictLoader(yaml.CSafeLoader):
    """Reads the YAML 1.2 core schema, refusing what a query file has no use for."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own protocol

    def strict_mapping(self, node: yaml.MappingNode) -> dict[str, object]:
        """Return a mapping with text keys, none of which repeats."""
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            line = _line(key_node)
            if not isinstance(key, str):
                raise InvalidInput.of(f"key on line {line}", "must be text", key)
            if key in result:
                raise InvalidInput(
                    [Violation(key[:63], "must not repeat", f"again on line {line}")]
                )
            result[key] = self.construct_object(value_node, deep=True)
        return result

    def strict_integer(self, node: yaml.ScalarNode) -> int:
        """Return an integer of a size that something here could mean."""
        text = str(node.value)
        line = _line(node)
        if len(text) > len(str(LARGEST_INTEGER)) + 1 or abs(int(text)) >= LARGEST_INTEGER:
            raise InvalidInput.of(f"number on line {line}", "must be below 2^64", text)
        return int(text)


_StrictLoader.add_constructor("tag:yaml.org,2002:map", _StrictLoader.strict_mapping)
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.strict_integer)
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
        r"|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first)
    )
