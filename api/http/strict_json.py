"""JSON as the standard has it: no NaN, no infinities, no field named twice."""

from __future__ import annotations

import json

from circinus.pipelines.errors import CircinusError, Fault

_DEEPEST = 100


class NotJson(CircinusError):
    """A body is not JSON; `faults` say why."""

    def __init__(self, rule: str, value: object) -> None:
        self.faults = (Fault.of("body", rule, value),)
        super().__init__(str(self.faults[0]))


def parse_json(data: bytes) -> object:
    """Give what a body holds.

    Raises:
        NotJson: If it is not UTF-8, not JSON, nests too deep, has a number without a JSON form
            (`NaN`, `Infinity`, `1e999`), or names a field twice.
    """
    try:
        tree: object = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_without_duplicates,
        )
    except UnicodeDecodeError as error:
        raise NotJson("must be UTF-8", data[error.start : error.start + 8]) from error
    except json.JSONDecodeError as error:
        rule = f"must be JSON ({error.msg} at line {error.lineno} column {error.colno})"
        raise NotJson(rule, error.doc[error.pos : error.pos + 20]) from error
    except RecursionError as error:
        raise NotJson(f"must nest at most {_DEEPEST} deep", "deeper") from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise NotJson("must have numbers of fewer digits", str(error)) from error
    _require_shallow(tree)
    return tree


def _refuse_constant(constant: str) -> object:
    raise NotJson("must have finite numbers", constant)


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise NotJson("must have finite numbers", text)
    return number


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise NotJson("must name every field once", name)
        found[name] = value
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
    raise NotJson(f"must nest at most {_DEEPEST} deep", "deeper")
