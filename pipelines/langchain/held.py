"""What a step is made of, and what its functions can call.

LangChain lists a step's configurable parts where it sees them: in its own steps, and one level
into functions. The configuration reaches further, to whatever runs below the step, so that a knob
is looked for in all that its functions name: closures, defaults, globals, attributes, helpers.
Functions of installed packages are not read, except by functions of the same package.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, StrEnum
from functools import partial
from inspect import getattr_static
from itertools import islice
from types import FunctionType, MethodType
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLanguageModel
from langchain_core.runnables import (
    Runnable,
    RunnableLambda,
    RunnableParallel,
    RunnableSequence,
)
from langchain_core.runnables.configurable import RunnableConfigurableAlternatives
from langchain_core.runnables.utils import ConfigurableFieldSpec

from circinus.pipelines.execution.code_digest import content_of, is_installed, names_in
from circinus.pipelines.model.operators import KnobValue

_GRAPH_PARTS = ("StateGraph", "StateNodeSpec", "PregelNode", "BranchSpec")  # no Runnables
_HOLDING = ("nodes", "runnable", "bound", "branches", "path")  # their fields that hold steps
_NONE_OF_THEIR_OWN = (RunnableLambda, RunnableParallel, RunnableSequence)  # but of what they hold
_DATA = str | bytes | int | float | None
_MOST = 10_000  # values that are looked at, the nearest first: what holds more is data

_Step = Runnable[Any, Any]


def parts(step: _Step) -> list[_Step]:
    """Return a step and the steps that it holds in its fields, lists and dicts, at any depth."""
    return _steps_in(step, _fields)


def chat_models(step: _Step) -> list[BaseChatModel]:
    """Return the chat models that a step holds, and those that its functions can call."""
    return [one for one in _steps_in(step, held_by) if isinstance(one, BaseChatModel)]


def specs_of(step: _Step) -> tuple[ConfigurableFieldSpec, ...]:
    """Return the configurable fields of a step by id; ValueError if two differ in options.

    The step's own come first, then those of what it holds and names.
    """
    specs: dict[str, ConfigurableFieldSpec] = {}
    held = _steps_in(step, held_by)
    alternatives = [one for one in held if isinstance(one, RunnableConfigurableAlternatives)]
    keys = {one.which.id: (*one.alternatives, one.default_key) for one in alternatives}
    own = [
        _keyed(spec, (*one.alternatives, one.default_key))
        for one in alternatives
        for spec in one.config_specs
        if spec.id == one.which.id
    ]
    others = [
        spec
        for part in held
        if not isinstance(part, _NONE_OF_THEIR_OWN)
        for spec in part.config_specs
    ]
    keyed = [_keyed(spec, keys[spec.id]) if spec.id in keys else spec for spec in others]
    for spec in keyed + own:
        other = specs.setdefault(spec.id, spec)
        if options(other) != options(spec):
            raise ValueError(f"{spec.id} has options {options(other)} and {options(spec)}")
    return tuple(specs.values())


def _keyed(spec: ConfigurableFieldSpec, keys: Sequence[str]) -> ConfigurableFieldSpec:
    """Return the field that chooses among alternatives, with their own keys.

    LangChain keeps the keys by the field's id: those of the first alternatives in this process
    that had the same.
    """
    return spec._replace(annotation=StrEnum(spec.id, [(key, key) for key in keys]))


def samples(step: _Step) -> bool:
    """Return whether a step holds a language model whose temperature is above 0."""
    models = (one for one in _steps_in(step, held_by) if isinstance(one, BaseLanguageModel))
    warm = (getattr(one, "temperature", None) for one in models)
    return any(isinstance(degree, int | float) and degree > 0 for degree in warm)


def held_by(value: object) -> list[object]:
    """Return what a value holds in its fields, and what its functions can call."""
    return [*_fields(value), *_named(value)]


def options(spec: ConfigurableFieldSpec) -> tuple[KnobValue, ...]:
    """Return the options of a field, the default first; none when it takes any value."""
    if not (isinstance(spec.annotation, type) and issubclass(spec.annotation, Enum)):
        return ()
    return tuple(sorted((m.value for m in spec.annotation), key=lambda v: v != spec.default))


def identity(value: object) -> tuple[int, ...]:
    """Return what identifies a value, as long as it is held.

    A method is made anew whenever it is read: its parts identify it.
    """
    if isinstance(value, MethodType):
        return id(value.__self__), id(value.__func__)
    return (id(value),)


def everything_of(value: object) -> list[object]:
    """Return a value and all that it holds and names, at any depth, each once."""
    return _reached(value, held_by)


def _steps_in(step: _Step, inside: Callable[[object], Iterable[object]]) -> list[_Step]:
    return [value for value in _reached(step, inside) if isinstance(value, Runnable)]


def _reached(value: object, inside: Callable[[object], Iterable[object]]) -> list[object]:
    waiting = deque[object]([value])
    visited = dict[tuple[int, ...], object]()  # retained: an id stays one value's
    while waiting and len(visited) < _MOST:
        value = waiting.popleft()
        key = identity(value)
        if key not in visited:
            visited[key] = value
            waiting.extend(each for each in inside(value) if not _is_data(each))
    return list(visited.values())


def _is_data(value: object) -> bool:
    return isinstance(value, _DATA) and not isinstance(value, Enum)


def _fields(value: object) -> Iterable[object]:
    if type(value).__name__ in _GRAPH_PARTS:
        return [getattr(value, name, None) for name in _HOLDING]
    if isinstance(value, dict):
        return islice(value.values(), _MOST)
    if isinstance(value, list | tuple):
        return islice(value, _MOST)
    if isinstance(value, Runnable):
        return vars(value).values()
    return ()


def _named(value: object) -> Iterable[object]:
    """Return what a function can call: what it holds, and of this the attributes that it names."""
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return _of_function(value.__func__, [value.__self__])
    if isinstance(value, FunctionType):
        return _of_function(value, [])
    own = getattr_static(type(value), "__call__", None)
    is_callable = isinstance(own, FunctionType) and not isinstance(value, Runnable | type)
    return [MethodType(own, value)] if is_callable else ()


def _of_function(function: object, held: list[object]) -> list[object]:
    if not isinstance(function, FunctionType):
        return held
    loaded, names = names_in(function.__code__)
    held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    held += [content_of(cell) for cell in function.__closure__ or ()]
    held += [function.__globals__[name] for name in loaded if name in function.__globals__]
    held.append(getattr(function, "__wrapped__", None))
    held += _annotated(function)
    known = {id(value) for value in held}
    for value in islice(held, _MOST):  # it grows on the way: a.b.c
        for attribute in _attributes(value, names):
            if id(attribute) not in known:
                known.add(id(attribute))
                held.append(attribute)
    return [value for value in held if _is_read(value, function)]


def _annotated(function: FunctionType) -> Iterable[object]:
    """Return what a function is annotated with; annotations stored as text name globals."""
    for hint in function.__annotations__.values():
        if isinstance(hint, str):
            known = function.__globals__
            yield from (known[name] for name in re.findall(r"\w+", hint) if name in known)
        else:
            yield hint


def _attributes(value: object, names: Iterable[str]) -> Iterable[object]:
    if isinstance(value, FunctionType | MethodType | Runnable) or not hasattr(value, "__dict__"):
        return
    for name in names:
        attribute = getattr_static(value, name, None)  # asks no property
        if isinstance(attribute, FunctionType) and name not in vars(value):
            attribute = MethodType(attribute, value)
        if attribute is not None:
            yield attribute


def _is_read(value: object, by: FunctionType) -> bool:
    function = getattr(value, "__func__", value)
    if not isinstance(function, FunctionType):
        return True
    return not is_installed(function.__code__.co_filename) or _package(function) == _package(by)


def _package(function: FunctionType) -> str:
    return str(function.__module__).partition(".")[0]
