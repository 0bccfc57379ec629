"""Values of LangChain's steps as payloads: documents, messages, tuples, sets, dates, own classes.

A payload is JSON with bytes and arrays; other values travel as a marked dict of their fields. The
one rule: a payload makes objects only of the classes listed here and those that the chain names
(in a parser, a function, an annotation, a field), and runs no constructor or validator of a user's
class. A value that would arrive as another type (a Counter as a dict) is refused at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property, partial
from inspect import getattr_static
from types import NoneType
from typing import Any, TypeAlias, cast, get_args
from uuid import UUID

import numpy as np
import numpy.typing as npt
from langchain_core import messages
from langchain_core.documents import Document
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.runnables import Runnable
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.langchain.held import everything_of
from circinus.pipelines.model.payload import AS_IT_IS, Payload, payload_bytes, remedy
from circinus.pipelines.model.profile import Unplannable

Value: TypeAlias = Any  # of LangChain's, or a payload

_MICROSECOND = timedelta(microseconds=1)

_CLASSES: tuple[type[BaseModel], ...] = (
    Document,
    StringPromptValue,
    ChatPromptValue,
    messages.AIMessage,
    messages.AIMessageChunk,
    messages.ChatMessage,
    messages.FunctionMessage,
    messages.HumanMessage,
    messages.HumanMessageChunk,
    messages.RemoveMessage,
    messages.SystemMessage,
    messages.ToolMessage,
)
_BY_NAME = {cls.__name__: cls for cls in _CLASSES}
_OBJECT, _FIELDS, _TUPLE, _SCALAR = "$langchain", "$fields", "$tuple", "$scalar"
_SET, _FROZEN, _ITEMS, _WORD = "$set", "$frozenset", "$items", "$word"
_MARKS = (_OBJECT, _TUPLE, _SCALAR, _SET, _FROZEN, _ITEMS, _WORD)
_RULE = (
    "must be made of None, truth values, numbers, text, bytes, arrays, plain lists, tuples, sets "
    "and dicts, dates, LangChain's documents, prompts and messages, and objects of classes that "
    "the step names (as_one keeps steps together)"
)
# Values that are written as a text, and read from it.
_WORDS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda d: str(d // _MICROSECOND), lambda text: int(text) * _MICROSECOND),
    Decimal: (str, Decimal),
    UUID: (str, UUID),
}
_BY_WORD = {cls.__name__: read for cls, (_, read) in _WORDS.items()}
# As they are even where a class of one's own overrides them: `AIMessage.text` is such a text.
_PLAIN: dict[type, Callable[[Any], object]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}
# Drawn or clocked anew in every call: two outputs are alike without them.
_USAGE = "usage_metadata"
_UNLIKE_EACH_TIME = {"id", "response_metadata", _USAGE}
# What an answer of LangChain's cache leaves out, and a message must have.
_NO_TOKENS = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)


class NotCarried(Unplannable):
    """The result of a step cannot be passed on as it is: no failure of the input's."""


def pack(value: object) -> Payload:
    """Return the payload for a step's result; NotCarried if something else would arrive."""
    kind = type(value)
    if kind in AS_IT_IS or kind is bytes:
        return cast(Payload, value)
    if isinstance(value, np.generic):
        return {_SCALAR: _array(np.asarray(value))}
    if isinstance(value, np.ndarray) and kind is np.ndarray:
        return _array(value)
    if isinstance(value, dict) and (kind is dict or _is_langchain_s(kind)):
        return _dict(value)
    if kind in _COLLECTIONS:
        return _COLLECTIONS[kind](value)
    if kind in _WORDS and _is_written_whole(value):
        return {_WORD: [kind.__name__, _WORDS[kind][0](value)]}
    return _object_packed(value, kind)


def _object_packed(value: object, kind: type) -> Payload:
    if isinstance(value, BaseModel) and _BY_NAME.get(kind.__name__) is kind:
        fields = ((key, item) for key, item in value if not _is_default(type(value), key, item))
        return {_OBJECT: kind.__name__, _FIELDS: {key: pack(item) for key, item in fields}}
    if is_carried(kind):
        return {_OBJECT: name_of(kind), _FIELDS: fields_of(value, pack)}
    for plain, as_plain in _PLAIN.items():
        if isinstance(value, plain) and not isinstance(value, Enum):
            return cast(Payload, as_plain(value))
    raise NotCarried.of("output", f"{_RULE}{remedy(value)}", kind.__name__)


def unpack(payload: Payload) -> Value:
    """Return what was packed, made anew; InvalidInput for a class that does not travel."""
    if isinstance(payload, list):
        return [unpack(item) for item in payload]
    if not isinstance(payload, dict):
        return payload
    if len(payload) > 2:
        return {key: unpack(item) for key, item in payload.items()}
    for mark, restored in _RESTORED.items():
        if mark in payload:
            return restored(payload)
    return {key: unpack(item) for key, item in payload.items()}


def comparable(payload: Payload) -> Payload:
    """Return a payload without what differs between equal calls: ids, bookkeeping of messages."""
    if isinstance(payload, list):
        return [comparable(item) for item in payload]
    if not isinstance(payload, dict):
        return payload
    compared = payload.items()
    fields = payload.get(_FIELDS)
    if payload.get(_OBJECT) in _BY_NAME and isinstance(fields, dict):
        same = {key: item for key, item in fields.items() if key not in _UNLIKE_EACH_TIME}
        compared = {**payload, _FIELDS: same}.items()
    return {key: comparable(item) for key, item in compared}


def _dict(value: dict[object, object]) -> Payload:
    if all(type(key) is str and key not in _MARKS for key in value):
        return {str(key): pack(item) for key, item in value.items()}
    return {_ITEMS: [[pack(key), pack(item)] for key, item in value.items()]}


def _set(mark: str, value: Iterable[object]) -> Payload:
    return {mark: [pack(item) for item in sorted(value, key=repr)]}  # in one order, to compare


_COLLECTIONS: dict[type, Callable[[Any], Payload]] = {
    tuple: lambda value: {_TUPLE: [pack(item) for item in value]},
    list: lambda value: [pack(item) for item in value],
    set: partial(_set, _SET),
    frozenset: partial(_set, _FROZEN),
}


def _is_written_whole(value: object) -> bool:
    """Return whether a text has all of a date: zones with rules of their own become an offset."""
    return type(getattr(value, "tzinfo", None)) in (NoneType, timezone)


def _array(value: npt.NDArray[Any]) -> Payload:
    try:
        payload_bytes(value)
    except InvalidInput as error:
        raise NotCarried(error.violations) from error
    return value


def _object(name: str, fields: Payload) -> object:
    if not isinstance(fields, dict):
        raise InvalidInput.of("payload", f"must have the fields of {name}", fields)
    cls = _BY_NAME.get(name)
    if cls is None:
        return made_of(name, unpack(fields))
    values = unpack(fields)
    if isinstance(usage := values.get(_USAGE), dict):
        values[_USAGE] = {**_NO_TOKENS, **usage}
    try:
        return cls(**values)
    except ValidationError as error:
        raise InvalidInput.of("payload", f"must have the fields of {name}", fields) from error


def _word(kind: Payload, text: Payload) -> object:
    read = _BY_WORD.get(str(kind))
    if read is None:
        raise InvalidInput.of("payload", f"must be among {', '.join(_BY_WORD)}", kind)
    try:
        return read(str(text))
    except (ValueError, ArithmeticError) as error:
        raise InvalidInput.of("payload", "must be a text of its kind", text) from error


_RESTORED: dict[str, Callable[[Any], Value]] = {
    _OBJECT: lambda one: _object(str(one[_OBJECT]), one.get(_FIELDS)),
    _TUPLE: lambda one: tuple(unpack(one[_TUPLE])),
    _SCALAR: lambda one: np.asarray(one[_SCALAR])[()],
    _SET: lambda one: set(unpack(one[_SET])),
    _FROZEN: lambda one: frozenset(unpack(one[_FROZEN])),
    _ITEMS: lambda one: dict(map(unpack, one[_ITEMS])),
    _WORD: lambda one: _word(*one[_WORD]),
}


def _is_langchain_s(kind: type) -> bool:
    """Return whether it is a dict of LangChain's or LangGraph's own: one that can be added up."""
    return kind.__module__.startswith(("langchain", "langgraph"))


def _is_default(cls: type[BaseModel], key: str, value: object) -> bool:
    default = _defaults(cls).get(key, PydanticUndefined)
    return type(default) is type(value) and bool(default == value)


@cache
def _defaults(cls: type[BaseModel]) -> dict[str, object]:
    fields = cls.model_fields.items()
    return {key: field.get_default(call_default_factory=True) for key, field in fields}


_NAMED: dict[str, type] = {}
"""Classes whose objects travel, by name: those that a chain read in this process names."""
_FIELDS_SET, _EXTRA, _PRIVATE = (
    "__pydantic_fields_set__",
    "__pydantic_extra__",
    "__pydantic_private__",
)


def carry_classes_of(*values: object) -> None:
    """Register the classes that steps and functions name; of one name the latest."""
    waiting = [kind for value in values for each in everything_of(value) for kind in _kinds(each)]
    while waiting:
        kind = waiting.pop()
        if _travels(kind) and _NAMED.get(name_of(kind)) is not kind:
            _NAMED[name_of(kind)] = kind
            waiting += [hinted for hint in _hints(kind) for hinted in _kinds(hint)]


def is_carried(kind: type) -> bool:
    """Return whether objects of a class travel."""
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
    own = {key: item for key, item in held.items() if not _is_worked_out(type(value), key)}
    return {key: packed(item) for key, item in own.items()}


def made_of(name: str, fields: dict[str, Value]) -> Value:
    """Return the object of a class and its fields; InvalidInput if no chain names the class."""
    kind = _NAMED.get(name)
    if kind is None:
        raise InvalidInput.of("payload", "must be of a class that the chain names", name)
    try:
        return _made(kind, fields)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidInput.of("payload", f"must have the fields of {name}", fields) from error


def _made(kind: type, fields: dict[str, Value]) -> Value:
    if issubclass(kind, Enum):
        return kind(fields["value"])
    if issubclass(kind, tuple):
        return tuple.__new__(kind, [fields[name] for name in kind._fields])  # type: ignore[attr-defined]  # a named tuple
    made = object.__new__(kind)
    if isinstance(made, BaseModel):
        state = {
            "__dict__": fields["fields"],
            _FIELDS_SET: set(fields["set"] if "set" in fields else fields["fields"]),
            _EXTRA: fields.get("extra"),
            _PRIVATE: fields.get("private"),
        }
        made.__setstate__(state)
        return made
    for key, item in fields.items():
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
