"""pydantic's findings, said as field, rule and value like every other fault of the project."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from circinus.pipelines.errors import Fault, InvalidInput

MOST_FAULTS = 50
"""More than this many are not listed: a body can be made of nothing but faults."""

_LONGEST_PATH = 120

_TYPES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "finite_number": "must be finite",
    "float_type": "must be a finite number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_type": "must be a whole number",
    "json_invalid": "must be JSON",
    "list_type": "must be a list",
    "missing": "must be given",
    "model_attributes_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_type": "must be text",
    "string_unicode": "must be text",
}
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "enum": ("expected", "must be one of {}"),
    "greater_than": ("gt", "must be > {}"),
    "greater_than_equal": ("ge", "must be >= {}"),
    "less_than": ("lt", "must be < {}"),
    "less_than_equal": ("le", "must be <= {}"),
    "literal_error": ("expected", "must be one of {}"),
    "string_too_long": ("max_length", "must have at most {} characters"),
    "string_too_short": ("min_length", "must have at least {} characters"),
    "too_long": ("max_length", "must have at most {} items"),
    "too_short": ("min_length", "must have at least {} items"),
}


Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], document: object) -> Model:
    """Give what a parsed document or options describe.

    Raises:
        InvalidInput: With every broken rule that was found.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(faults_of(error, model=model)) from error


def faults_of(
    error: ValidationError | Sequence[Mapping[str, Any]],
    *,
    model: type[BaseModel] | None = None,
    skip: int = 0,
) -> list[Fault]:
    """Give every broken rule, at least one and at most `MOST_FAULTS`.

    Args:
        error: A validation error, or the list that its `errors()` gives.
        model: Schema that was checked, to name the known fields where an unknown one is found.
        skip: Number of leading parts to leave out of every path (1 for FastAPI's `body`).
    """
    details: Iterable[Mapping[str, Any]] = (
        error.errors() if isinstance(error, ValidationError) else error
    )
    faults: list[Fault] = []
    for detail in details:
        location = tuple(detail["loc"])[skip:]
        faults += _faults(location, detail, model)
    return faults[:MOST_FAULTS]


def _faults(
    location: tuple[str | int, ...], detail: Mapping[str, Any], model: type[BaseModel] | None
) -> list[Fault]:
    kind = str(detail["type"])
    context: Mapping[str, Any] = detail.get("ctx") or {}
    cause = context.get("error")
    if isinstance(cause, InvalidInput):  # raised by one of our own validators
        return [Fault(_path((*location, *_parts(f.field))), f.rule, f.value) for f in cause.faults]
    field = _path(location)
    if kind == "missing":
        return [Fault(field, _TYPES[kind], "nothing")]
    if kind == "extra_forbidden":
        return [Fault.of(field, _unknown_rule(model, location[:-1]), detail.get("input"))]
    return [Fault.of(field, _rule(kind, context, str(detail.get("msg"))), detail.get("input"))]


def _rule(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in _BOUNDS:
        name, rule = _BOUNDS[kind]
        return rule.format(_number(context.get(name)))
    return f"must be valid ({message})"


def _number(bound: object) -> object:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _parts(field: str) -> tuple[str, ...]:
    return (field,) if field else ()


def _path(location: tuple[str | int, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    if len(text) > _LONGEST_PATH:
        text = f"{text[:_LONGEST_PATH]}..."
    return text or "the whole"


def _unknown_rule(model: type[BaseModel] | None, location: tuple[str | int, ...]) -> str:
    found = _model_at(model, location)
    if found is None:
        return "must be a known field"
    return f"must be one of the known fields ({', '.join(found.model_fields)})"


def _model_at(
    model: type[BaseModel] | None, location: tuple[str | int, ...]
) -> type[BaseModel] | None:
    for part in location:
        if model is None or part not in model.model_fields:
            return None
        model = _model_in(model.model_fields[str(part)].annotation)
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Give the schema inside `X`, `X | None` or `Annotated[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    unwrap: Callable[[object], tuple[object, ...]] = get_args
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return next(filter(None, map(_model_in, unwrap(annotation))), None)
    return None
