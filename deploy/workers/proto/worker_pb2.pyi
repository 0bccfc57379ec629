from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers

DESCRIPTOR: _descriptor.FileDescriptor

class RunRequest(_message.Message):
    __slots__ = ("inputs", "operators", "settings", "wants", "warm_up")
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: str | None = ..., value: bytes | None = ...) -> None: ...

    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: str | None = ..., value: bytes | None = ...) -> None: ...

    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    WANTS_FIELD_NUMBER: _ClassVar[int]
    WARM_UP_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    operators: _containers.RepeatedScalarFieldContainer[str]
    inputs: _containers.ScalarMap[str, bytes]
    wants: _containers.RepeatedScalarFieldContainer[str]
    warm_up: bool
    settings: _containers.ScalarMap[str, bytes]
    def __init__(
        self,
        operators: _Iterable[str] | None = ...,
        inputs: _Mapping[str, bytes] | None = ...,
        wants: _Iterable[str] | None = ...,
        warm_up: bool | None = ...,
        settings: _Mapping[str, bytes] | None = ...,
    ) -> None: ...

class RunReply(_message.Message):
    __slots__ = ("concurrency", "outputs", "seconds", "sizes")
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: str | None = ..., value: bytes | None = ...) -> None: ...

    class SecondsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: str | None = ..., value: float | None = ...) -> None: ...

    class SizesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: str | None = ..., value: int | None = ...) -> None: ...

    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.ScalarMap[str, bytes]
    seconds: _containers.ScalarMap[str, float]
    sizes: _containers.ScalarMap[str, int]
    concurrency: int
    def __init__(
        self,
        outputs: _Mapping[str, bytes] | None = ...,
        seconds: _Mapping[str, float] | None = ...,
        sizes: _Mapping[str, int] | None = ...,
        concurrency: int | None = ...,
    ) -> None: ...
