"""The two kinds of schema: strict for what comes in, tolerant for what goes out."""

from __future__ import annotations

from math import isfinite

from pydantic import BaseModel, ConfigDict


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

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


def finite(value: float) -> float | None:
    """Give `value`, or None for what JSON has no number for."""
    return value if isfinite(value) else None
