"""A short text that changes when functions, or what they hold and call, do.

Functions of a shell or notebook are edited under the same name: measurements of one must not be
taken for the other's. The one rule: equal digests mean equal code and equal data that it names,
but for what objects of compiled packages hold. Equal code may have two digests, which costs a
measurement.
"""

from __future__ import annotations

import dis
import re
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from inspect import getattr_static
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)

import numpy as np

_OURS = f"{__name__.partition('.')[0]}."
_ITSELF = str | bytes | int | float | complex | None
_Contents = tuple[str | bytes, Iterable[object]]
"""What a value is without what it holds, and that."""


def code_digest(*values: object) -> str:
    """Return the digest of functions and of whatever holds some: the same in every process.

    Of installed packages, and of Circinus, names stand for functions; versions identify those.
    """
    digest, known, waiting = blake2b(digest_size=8), dict[int, object](), [*reversed(values)]
    numbers = dict[int, int]()
    while waiting:
        value = waiting.pop()
        if issubclass(type(value), _ITSELF):  # asks no object that stands for another
            text: str | bytes = f"{type(value).__name__} {value!r}"
        elif id(value) in known:
            text = f"again {numbers[id(value)]}"
        else:
            numbers[id(value)] = len(known)
            known[id(value)] = value  # retained: an id stays one value's
            text, inside = _looked_into(value)
            text = text if isinstance(text, bytes) else f"{text} {len(inside)}"
            waiting.extend(reversed(inside))
        digest.update(b"\0" + (text if isinstance(text, bytes) else text.encode()))
    return digest.hexdigest()


def _looked_into(value: object) -> tuple[str | bytes, list[object]]:
    try:
        text, inside = _contents(value)
        return text, list(inside)
    except Exception:  # noqa: BLE001 - an object of the user's, that stands for another: a border
        return type(value).__name__, []


def _contents(value: object) -> _Contents:
    if isinstance(value, dict | MappingProxyType):
        return type(value).__name__, (part for item in value.items() for part in item)
    if isinstance(value, set | frozenset):
        return type(value).__name__, sorted(value, key=repr)
    if isinstance(value, list | tuple | deque):
        return type(value).__name__, value
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            return f"objects {value.shape}", value.ravel().tolist()
        return f"{value.dtype} {value.shape} ".encode() + value.tobytes(), ()
    if isinstance(value, re.Pattern):  # whose text is cut short when it is printed
        return "pattern", (value.pattern, value.flags)
    if isinstance(value, CodeType):
        return value.co_code, (value.co_names, value.co_varnames, value.co_consts)
    return _of_callable(value) or _of_object(value)


def _of_callable(value: object) -> _Contents | None:
    if isinstance(value, FunctionType):
        return f"function {_name(value)}", _of_function(value)
    if isinstance(value, classmethod | staticmethod):
        return type(value).__name__, (value.__func__,)
    if isinstance(value, MethodType):
        return "method", (value.__self__, value.__func__)
    if isinstance(value, partial):
        return "partial", (value.func, value.args, value.keywords)
    wrapped = None if isinstance(value, type) else getattr_static(value, "__wrapped__", None)
    if wrapped is not None:  # this is a cache of it, say
        return _name(value), (wrapped,)
    if isinstance(value, ModuleType | BuiltinFunctionType):
        return _name(value), ()
    return None


def _of_function(function: FunctionType) -> Iterable[object]:
    yield function.__defaults__
    yield function.__kwdefaults__
    yield from (content_of(cell) for cell in function.__closure__ or ())
    if not (
        is_installed(function.__code__.co_filename) or str(function.__module__).startswith(_OURS)
    ):
        yield function.__code__
        loaded, _ = names_in(function.__code__)
        held = function.__globals__
        yield from (held[name] for name in loaded if name in held)


def _of_object(value: object) -> _Contents:
    if isinstance(value, type):
        return f"type {_name(value)}", () if _is_of_package(value) else _of_class(value)
    kind = type(value)
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
        text = repr(value)
        return (_name(kind) if " at 0x" in text else text), ()  # an address is of one process
    held = dict[str, object](getattr(value, "__dict__", {}))
    if is_dataclass(kind):  # its fields may be in slots
        held |= {f.name: getattr(value, f.name) for f in fields(kind) if hasattr(value, f.name)}
    for name in [name for name in held if _is_worked_out(kind, name)]:
        del held[name]
    return f"object {_name(kind)}", (kind, held)


def _of_class(kind: type) -> Iterable[object]:
    """Yield what a class of the user's own is made of, but for what Python adds to it."""
    yield kind.__bases__
    for name, value in vars(kind).items():
        if not name.startswith("__") or isinstance(value, FunctionType):
            yield name
            yield value.fget if isinstance(value, property) else value


def _is_of_package(kind: type) -> bool:
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    of_python = kind.__module__ in sys.stdlib_module_names
    return of_python or kind.__module__.startswith(_OURS) or is_installed(path or "")


def _is_worked_out(kind: type, name: str) -> bool:
    """Return whether an attribute is a cached property: it follows from the rest."""
    return isinstance(getattr_static(kind, name, None), cached_property)


def _name(value: object) -> str:
    kind = type(value).__name__
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', kind)}"


_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def is_installed(path: str) -> bool:
    """Return whether a file of code is of an installed package, or of Python's own."""
    return path.startswith(_INSTALLED)


def content_of(cell: CellType) -> object:
    """Return what a closure holds; None while it is not filled."""
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


@lru_cache(maxsize=1024)
def names_in(code: CodeType) -> tuple[list[str], list[str]]:
    """Return the globals that a function loads and all that it names, functions inside included.

    In an order that is the same in every process: knobs are read off it.
    """
    inner = [names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    loads = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    return (
        sorted(loads.union(*(globals_ for globals_, _ in inner))),
        sorted({*code.co_names}.union(*(names for _, names in inner))),
    )
