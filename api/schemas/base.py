"""The two kinds of schema: strict for what comes in, tolerant for what goes out; and errors."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from circinus.pipelines.errors import Fault


class Input(BaseModel):
    """Something a user hands over: refused unless every field is known, typed and finite."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class View(BaseModel):
    """Something the service answers with: a reader ignores fields that it does not know."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, from_attributes=True, use_attribute_docstrings=True
    )

    @classmethod
    def of(cls, source: object, **others: object) -> Self:
        """Give a value of the project as it is shown: attribute by attribute, but for `others`."""
        names = cls.model_fields.keys() - others.keys()
        told = {name: getattr(source, name) for name in names if hasattr(source, name)}
        return cls.model_validate(told | others)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


Finite = Annotated[float | None, BeforeValidator(_finite)]
"""A number, or none for what JSON has no number for."""


class ProblemDetails(View):
    """The body of every error, `application/problem+json`."""

    type: str = "about:blank"
    """Names the kind of problem."""
    title: str
    """The kind in words."""
    status: int
    """HTTP status."""
    detail: str
    """What is wrong this time."""
    instance: str | None = None
    """Path that was asked for."""
    errors: list[Fault] = Field(default_factory=list)
    """Every broken rule of an invalid input."""


class HealthView(View):
    """Whether the service is up."""

    status: str = "ok"
    """`ok` when it can take queries."""
    version: str
    """Of the service."""
