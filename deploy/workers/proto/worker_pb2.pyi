from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunRequest(_message.Message):
    __slots__ = ("operators", "inputs", "wants", "warm_up", "settings", "due_in_s", "attempt")
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
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    operators: _containers.RepeatedScalarFieldContainer[str]
    inputs: _containers.ScalarMap[str, bytes]
    wants: _containers.RepeatedScalarFieldContainer[str]
    warm_up: bool
    settings: _containers.ScalarMap[str, bytes]
    due_in_s: float
    attempt: int
    def __init__(self, operators: _Optional[_Iterable[str]] = ..., inputs: _Optional[_Mapping[str, bytes]] = ..., wants: _Optional[_Iterable[str]] = ..., warm_up: _Optional[bool] = ..., settings: _Optional[_Mapping[str, bytes]] = ..., due_in_s: _Optional[float] = ..., attempt: _Optional[int] = ...) -> None: ...

class EndpointUsage(_message.Message):
    __slots__ = ("calls", "input_tokens", "cached_tokens", "output_tokens", "usd")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    USD_FIELD_NUMBER: _ClassVar[int]
    calls: float
    input_tokens: float
    cached_tokens: float
    output_tokens: float
    usd: float
    def __init__(self, calls: _Optional[float] = ..., input_tokens: _Optional[float] = ..., cached_tokens: _Optional[float] = ..., output_tokens: _Optional[float] = ..., usd: _Optional[float] = ...) -> None: ...

class OperatorUsage(_message.Message):
    __slots__ = ("endpoints",)
    class EndpointsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: EndpointUsage
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[EndpointUsage, _Mapping]] = ...) -> None: ...
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.MessageMap[str, EndpointUsage]
    def __init__(self, endpoints: _Optional[_Mapping[str, EndpointUsage]] = ...) -> None: ...

class FailedCall(_message.Message):
    __slots__ = ("used", "again_in_s")
    class UsedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: OperatorUsage
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[OperatorUsage, _Mapping]] = ...) -> None: ...
    USED_FIELD_NUMBER: _ClassVar[int]
    AGAIN_IN_S_FIELD_NUMBER: _ClassVar[int]
    used: _containers.MessageMap[str, OperatorUsage]
    again_in_s: float
    def __init__(self, used: _Optional[_Mapping[str, OperatorUsage]] = ..., again_in_s: _Optional[float] = ...) -> None: ...

class RunReply(_message.Message):
    __slots__ = ("outputs", "seconds", "sizes", "concurrency", "used", "operators_cpu_s", "worker_cpu_s", "waited_s")
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
    class UsedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: OperatorUsage
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[OperatorUsage, _Mapping]] = ...) -> None: ...
    class WaitedSEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_CPU_S_FIELD_NUMBER: _ClassVar[int]
    WORKER_CPU_S_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.ScalarMap[str, bytes]
    seconds: _containers.ScalarMap[str, float]
    sizes: _containers.ScalarMap[str, int]
    concurrency: int
    used: _containers.MessageMap[str, OperatorUsage]
    operators_cpu_s: float
    worker_cpu_s: float
    waited_s: _containers.ScalarMap[str, float]
    def __init__(self, outputs: _Optional[_Mapping[str, bytes]] = ..., seconds: _Optional[_Mapping[str, float]] = ..., sizes: _Optional[_Mapping[str, int]] = ..., concurrency: _Optional[int] = ..., used: _Optional[_Mapping[str, OperatorUsage]] = ..., operators_cpu_s: _Optional[float] = ..., worker_cpu_s: _Optional[float] = ..., waited_s: _Optional[_Mapping[str, float]] = ...) -> None: ...
