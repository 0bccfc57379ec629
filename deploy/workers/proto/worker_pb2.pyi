from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RunRequest(_message.Message):
    __slots__ = ("operators", "inputs", "wants", "warm_up", "settings", "due_in_s")
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    WANTS_FIELD_NUMBER: _ClassVar[int]
    WARM_UP_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DUE_IN_S_FIELD_NUMBER: _ClassVar[int]
    operators: _containers.RepeatedScalarFieldContainer[str]
    inputs: _containers.ScalarMap[str, bytes]
    wants: _containers.RepeatedScalarFieldContainer[str]
    warm_up: bool
    settings: _containers.ScalarMap[str, bytes]
    due_in_s: float
    def __init__(self, operators: _Optional[_Iterable[str]] = ..., inputs: _Optional[_Mapping[str, bytes]] = ..., wants: _Optional[_Iterable[str]] = ..., warm_up: _Optional[bool] = ..., settings: _Optional[_Mapping[str, bytes]] = ..., due_in_s: _Optional[float] = ...) -> None: ...

class RunReply(_message.Message):
    __slots__ = ("outputs", "seconds", "sizes", "concurrency")
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class SecondsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class SizesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.ScalarMap[str, bytes]
    seconds: _containers.ScalarMap[str, float]
    sizes: _containers.ScalarMap[str, int]
    concurrency: int
    def __init__(self, outputs: _Optional[_Mapping[str, bytes]] = ..., seconds: _Optional[_Mapping[str, float]] = ..., sizes: _Optional[_Mapping[str, int]] = ..., concurrency: _Optional[int] = ...) -> None: ...
