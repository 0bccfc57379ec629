"""LangChain's own values as payloads: documents, prompts and messages, tuples, numpy's scalars.

A payload is JSON with bytes and arrays. What else LangChain's steps hand to each other travels as
a marked dict of its fields, and only for the classes listed here: a payload from elsewhere can be
wrong but makes nothing except one of these. What would arrive as something else (an Enum as its
value, a Counter as a dict) is refused where it is given: the next step might tell them apart on
some inputs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from langchain_core import messages
from langchain_core.documents import Document
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.payload import Payload, payload_bytes
from circinus.pipelines.profile import UNPLANNABLE

Value: TypeAlias = Any  # of LangChain's, or a payload

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
_RULE = (
    "must be made of None, truth values, numbers, text, bytes, arrays, plain lists, tuples and "
    "dicts, and LangChain's documents, prompts and messages (as_one keeps steps together)"
)
# As they are even where a class of one's own says otherwise: `AIMessage.text` is such a text.
_PLAIN: dict[type, Callable[[Any], object]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}
# Drawn or clocked anew in every call: two outputs are alike without them.
_UNLIKE_EACH_TIME = {"id", "response_metadata", "usage_metadata"}


class NotCarried(InvalidInput):
    """What a step gave cannot be handed on as it is: no failure of the input's."""

    def __str__(self) -> str:
        """Give it as what ends a search, see `Failure.ends_planning`."""
        return f"{UNPLANNABLE}{super().__str__()}"


def pack(value: object) -> Payload:
    """Give the payload for what a step gave; NotCarried if something else would arrive."""
    kind = type(value)
    if value is None or isinstance(value, bool) or kind is bytes:
        return cast(Payload, value)
    if isinstance(value, np.generic):
        return {_SCALAR: _array(np.asarray(value))}
    if isinstance(value, np.ndarray) and kind is np.ndarray:
        return _array(value)
    if isinstance(value, tuple) and kind is tuple:
        return {_TUPLE: [pack(item) for item in value]}
    if isinstance(value, list) and kind is list:
        return [pack(item) for item in value]
    if isinstance(value, dict) and (kind is dict or _is_langchain_s(kind)):
        return _dict(value)
    if isinstance(value, BaseModel) and _BY_NAME.get(kind.__name__) is kind:
        given = ((key, item) for key, item in value if not _is_default(type(value), key, item))
        return {_OBJECT: kind.__name__, _FIELDS: {key: pack(item) for key, item in given}}
    for plain, as_plain in _PLAIN.items():
        if isinstance(value, plain) and not isinstance(value, Enum):
            return cast(Payload, as_plain(value))
    raise NotCarried.of("output", _RULE, kind.__name__)


def unpack(payload: Payload) -> Value:
    """Give what was packed, made anew; InvalidInput for a class that does not travel."""
    if isinstance(payload, list):
        return [unpack(item) for item in payload]
    if not isinstance(payload, dict):
        return payload
    if _OBJECT in payload:
        return _object(str(payload[_OBJECT]), payload.get(_FIELDS))
    if _TUPLE in payload:
        return tuple(unpack(payload[_TUPLE]))
    if _SCALAR in payload:
        return np.asarray(payload[_SCALAR])[()]
    return {key: unpack(item) for key, item in payload.items()}


def comparable(payload: Payload) -> Payload:
    """Give a payload without what differs between equal calls: ids, bookkeeping of messages."""
    if isinstance(payload, list):
        return [comparable(item) for item in payload]
    if not isinstance(payload, dict):
        return payload
    kept = payload.items()
    fields = payload.get(_FIELDS)
    if _OBJECT in payload and isinstance(fields, dict):
        same = {key: item for key, item in fields.items() if key not in _UNLIKE_EACH_TIME}
        kept = {**payload, _FIELDS: same}.items()
    return {key: comparable(item) for key, item in kept}


def _dict(value: dict[object, object]) -> Payload:
    for key in value:
        if type(key) is not str or key in (_OBJECT, _TUPLE, _SCALAR):
            rule = f"must have plain text other than {_OBJECT}, {_TUPLE}, {_SCALAR} as keys"
            raise NotCarried.of("output", rule, key)
    return {str(key): pack(item) for key, item in value.items()}


def _array(value: npt.NDArray[Any]) -> Payload:
    try:
        payload_bytes(value)
    except InvalidInput as error:
        raise NotCarried(error.faults) from error
    return value


def _object(name: str, fields: Payload) -> BaseModel:
    cls = _BY_NAME.get(name)
    if cls is None or not isinstance(fields, dict):
        raise InvalidInput.of("payload", f"must be among {', '.join(_BY_NAME)}", name)
    try:
        return cls(**unpack(fields))
    except ValidationError as error:
        raise InvalidInput.of("payload", f"must have the fields of {name}", fields) from error


def _is_langchain_s(kind: type) -> bool:
    """Say whether it is a dict of LangChain's or LangGraph's own: one that can be added up."""
    return kind.__module__.startswith(("langchain", "langgraph"))


def _is_default(cls: type[BaseModel], key: str, value: object) -> bool:
    default = _defaults(cls).get(key, PydanticUndefined)
    return type(default) is type(value) and bool(default == value)


@cache
def _defaults(cls: type[BaseModel]) -> dict[str, object]:
    fields = cls.model_fields.items()
    return {key: field.get_default(call_default_factory=True) for key, field in fields}
