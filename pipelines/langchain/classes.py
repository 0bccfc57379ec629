"""Objects of a user's classes between operators: Pydantic models, dataclasses, enums, tuples.

They travel as the name of their class and their fields. The one rule: a payload makes objects only
of classes that the chain names (in a parser, a function, an annotation, a field of such a class),
and runs nothing of them: no constructor, no validator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from inspect import getattr_static
from typing import Any, TypeAlias, get_args

from langchain_core.runnables import Runnable
from pydantic import BaseModel

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.langchain.held import everything_of
from circinus.pipelines.model.payload import Payload

Value: TypeAlias = Any  # of a class that a chain names

_NAMED: dict[str, type] = {}
"""Classes whose objects travel, by name: those that a chain read in this process names."""
_SET, _EXTRA, _PRIVATE = "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"


def carry_classes_of(*values: object) -> None:
    """Let objects of all classes travel that steps and functions name; of one name the latest."""
    waiting = [kind for value in values for each in everything_of(value) for kind in _kinds(each)]
    while waiting:
        kind = waiting.pop()
        if _travels(kind) and _NAMED.get(name_of(kind)) is not kind:
            _NAMED[name_of(kind)] = kind
            waiting += [found for hint in _hints(kind) for found in _kinds(hint)]


def is_carried(kind: type) -> bool:
    """Say whether objects of a class travel."""
    return _NAMED.get(name_of(kind)) is kind


def name_of(kind: type) -> str:
    """Return the name of a class on the way: with a dot, as LangChain's own ones have none."""
    return f"{kind.__module__}.{kind.__qualname__}"


def fields_of(value: Value, packed: Callable[[object], Payload]) -> dict[str, Payload]:
    """Return the fields of an object, each packed."""
    if isinstance(value, Enum):
        return {"value": packed(value.value)}
    if isinstance(value, tuple):
        return {key: packed(item) for key, item in value._asdict().items()}  # type: ignore[attr-defined]  # a named tuple
    if isinstance(value, BaseModel):
        return _fields_of_model(value, packed)
    held = dict(getattr(value, "__dict__", {}))
    held |= {f.name: getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)}
    kept = {key: item for key, item in held.items() if not _is_worked_out(type(value), key)}
    return {key: packed(item) for key, item in kept.items()}


def made_of(name: str, given: dict[str, Value]) -> Value:
    """Return the object of a class and its fields; InvalidInput if no chain names the class."""
    kind = _NAMED.get(name)
    if kind is None:
        raise InvalidInput.of("payload", "must be of a class that the chain names", name)
    try:
        return _made(kind, given)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidInput.of("payload", f"must have the fields of {name}", given) from error


def _made(kind: type, given: dict[str, Value]) -> Value:
    if issubclass(kind, Enum):
        return kind(given["value"])
    if issubclass(kind, tuple):
        return tuple.__new__(kind, [given[name] for name in kind._fields])  # type: ignore[attr-defined]  # a named tuple
    made = object.__new__(kind)
    if isinstance(made, BaseModel):
        state = {
            "__dict__": given["fields"],
            _SET: set(given["set"] if "set" in given else given["fields"]),
            _EXTRA: given.get("extra"),
            _PRIVATE: given.get("private"),
        }
        made.__setstate__(state)
        return made
    for key, item in given.items():
        object.__setattr__(made, key, item)
    return made


def _fields_of_model(value: BaseModel, packed: Callable[[object], Payload]) -> dict[str, Payload]:
    known = type(value).model_fields
    own = {key: item for key, item in vars(value).items() if key in known}
    parts: dict[str, object] = {"fields": own}
    if value.model_fields_set != set(own):
        parts["set"] = sorted(value.model_fields_set)
    for key, more in (
        ("extra", value.__pydantic_extra__),
        ("private", value.__pydantic_private__),
    ):
        if more is not None:
            parts[key] = dict(more)
    return {key: packed(part) for key, part in parts.items()}


def _kinds(value: object) -> Iterable[type]:
    """Return the classes that a value is, is of, or stands for as a type hint."""
    inside = get_args(value)
    if inside:
        return [kind for each in inside for kind in _kinds(each)]
    return [value] if isinstance(value, type) else [type(value)]


def _travels(kind: type) -> bool:
    if issubclass(kind, Runnable) or kind.__module__.startswith(("pydantic", "circinus.")):
        return False
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return is_named_tuple or is_dataclass(kind) or issubclass(kind, BaseModel | Enum)


def _hints(kind: type) -> Iterable[object]:
    if issubclass(kind, BaseModel):
        return [field.annotation for field in kind.model_fields.values()]
    return getattr(kind, "__annotations__", {}).values()


def _is_worked_out(kind: type, name: str) -> bool:
    return isinstance(getattr_static(kind, name, None), cached_property)
