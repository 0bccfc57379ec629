"""LangChain's own values as payloads: documents, prompts and messages, and tuples.

A payload is JSON with bytes and arrays. What else LangChain's steps hand to each other travels as
a marked dict of its fields, and only for the classes listed here: a payload from elsewhere can be
wrong but makes nothing except one of these.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

from langchain_core import messages
from langchain_core.documents import Document
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.payload import Payload

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
_OBJECT, _FIELDS, _TUPLE = "$langchain", "$fields", "$tuple"
# Drawn or clocked anew in every call: two outputs are alike without them.
_UNLIKE_EACH_TIME = {"id", "response_metadata", "usage_metadata"}


def pack(value: object) -> Payload:
    """Give the payload for what a step gave; what has no form is left for encoding to refuse."""
    if isinstance(value, BaseModel) and _BY_NAME.get(type(value).__name__) is type(value):
        fields = {
            key: pack(item) for key, item in value if not _is_default(type(value), key, item)
        }
        return {_OBJECT: type(value).__name__, _FIELDS: fields}
    if isinstance(value, tuple):
        return {_TUPLE: [pack(item) for item in value]}
    if isinstance(value, list):
        return [pack(item) for item in value]
    if isinstance(value, dict):
        taken = next((key for key in (_OBJECT, _TUPLE) if key in value), None)
        if taken is not None:
            raise InvalidInput.of("payload", f"must have no key {taken}", sorted(map(str, value)))
        return {key: pack(item) for key, item in value.items()}
    return value  # type: ignore[return-value]  # encoding refuses what is no payload, by type


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


def _object(name: str, fields: Payload) -> BaseModel:
    cls = _BY_NAME.get(name)
    if cls is None or not isinstance(fields, dict):
        raise InvalidInput.of("payload", f"must be among {', '.join(_BY_NAME)}", name)
    try:
        return cls(**unpack(fields))
    except ValidationError as error:
        raise InvalidInput.of("payload", f"must have the fields of {name}", fields) from error


def _is_default(cls: type[BaseModel], key: str, value: object) -> bool:
    default = _defaults(cls).get(key, PydanticUndefined)
    return type(default) is type(value) and bool(default == value)


@cache
def _defaults(cls: type[BaseModel]) -> dict[str, object]:
    fields = cls.model_fields.items()
    return {key: field.get_default(call_default_factory=True) for key, field in fields}
