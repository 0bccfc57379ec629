"""pydantic's errors as violations: field, rule and value."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from circinus.pipelines.errors import MOST_VIOLATIONS, InvalidInput, Violation

_LONGEST_PATH = 120

_RULES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "enum": "must be one of {expected}",
    "finite_number": "must be finite",
    "float_type": "must be a finite number",
    "greater_than": "must be > {gt}",
    "greater_than_equal": "must be >= {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_type": "must be a whole number",
    "json_invalid": "must be JSON",
    "less_than": "must be < {lt}",
    "less_than_equal": "must be <= {le}",
    "list_type": "must be a list",
    "literal_error": "must be one of {expected}",
    "missing": "must be given",
    "model_attributes_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "string_type": "must be text",
    "string_unicode": "must be text",
    "too_long": "must have at most {max_length} items",
    "too_short": "must have at least {min_length} items",
}


Model = TypeVar("Model", bound=BaseModel)
Value = TypeVar("Value")
Document = TypeVar("Document")


def checked(model: type[Model], document: object) -> Model:
    """Return what a parsed document or options describe; InvalidInput with every broken rule."""
    return validated(model.model_validate, document, model)


def validated(
    validate: Callable[[Document], Value], document: Document, model: type[BaseModel] | None = None
) -> Value:
    """Return a document as validated by pydantic; InvalidInput with every violation.

    `model` names the known fields in the violation of an unknown one.
    """
    try:
        return validate(document)
    except ValidationError as error:
        raise InvalidInput(violations_of(error, model=model)) from error


def value_of(kind: type[Value], fields: Mapping[str, object]) -> Value:
    """Return the dataclass value with the fields of a body that was checked; InvalidInput as it.

    Parts that are mappings become values themselves.
    """
    try:
        return adapter_of(kind).validate_python(fields)
    except ValidationError as error:  # the schema has checked all but the parts' own rules
        raise error.errors()[0]["ctx"]["error"] from error


def adapter_of(kind: type[Value]) -> TypeAdapter[Value]:
    """Return what builds values of a class and checks them, made once."""
    return cast("TypeAdapter[Value]", _adapter(cast("Hashable", kind)))


@cache
def _adapter(kind: Hashable) -> TypeAdapter[object]:
    return TypeAdapter(cast("type[object]", kind))


def violations_of(
    error: ValidationError | Sequence[Mapping[str, Any]],
    *,
    model: type[BaseModel] | None = None,
    skip: int = 0,
) -> list[Violation]:
    """Return the violations of an error or its `errors()`: 1 to `MOST_VIOLATIONS`.

    `model` is the validated type: it names the known fields in the violation of an unknown one.
    `skip` leading parts of every path are left out (1 for FastAPI's `body`).
    """
    details = error.errors() if isinstance(error, ValidationError) else error
    each = (_violations(tuple(detail["loc"])[skip:], detail, model) for detail in details)
    return list(islice(chain.from_iterable(each), MOST_VIOLATIONS))


def _violations(
    location: tuple[str | int, ...], detail: Mapping[str, Any], model: type[BaseModel] | None
) -> list[Violation]:
    kind = str(detail["type"])
    context: Mapping[str, Any] = detail.get("ctx") or {}
    cause = context.get("error")
    if isinstance(cause, InvalidInput):  # raised by one of our own validators
        return [
            Violation(_path((*location, *filter(None, (f.field,)))), f.rule, f.value)
            for f in cause.violations
        ]
    field, value = _path(location), detail.get("input")
    if kind == "missing":
        return [Violation(field, _RULES[kind], "nothing")]
    if kind == "extra_forbidden":
        return [Violation.of(field, _unknown_rule(model, location[:-1]), value)]
    bounds = {name: _number(bound) for name, bound in context.items()}
    rule = _RULES[kind].format(**bounds) if kind in _RULES else f"must be valid ({detail['msg']})"
    return [Violation.of(field, rule, value)]


def _number(bound: object) -> object:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _path(location: tuple[str | int, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    if len(text) > _LONGEST_PATH:
        text = f"{text[:_LONGEST_PATH]}..."
    return text or "the whole"


def _unknown_rule(model: type[BaseModel] | None, location: tuple[str | int, ...]) -> str:
    for part in location:
        fields = {} if model is None else model.model_fields
        model = _model_in(fields[str(part)].annotation) if part in fields else None
    if model is None:
        return "must be a known field"
    return f"must be one of the known fields ({', '.join(model.model_fields)})"


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the schema inside `X`, `X | None` or `Annotated[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    unwrap: Callable[[object], tuple[object, ...]] = get_args
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return next(filter(None, map(_model_in, unwrap(annotation))), None)
    return None
