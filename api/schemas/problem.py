"""Errors over HTTP: problem documents (RFC 9457) that list every fault."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import View
from pipelines.errors import Fault


class FaultView(View):
    """One broken rule."""

    field: str
    """Dotted path of the field."""
    rule: str
    """What holds for a good value."""
    value: str
    """The offending value as text, shortened."""

    @classmethod
    def of(cls, fault: Fault) -> FaultView:
        """Give a fault as the service shows it."""
        return cls(field=fault.field, rule=fault.rule, value=fault.value)


class Problem(View):
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
    errors: list[FaultView] = Field(default_factory=list)
    """Every broken rule of an invalid input."""


class HealthView(View):
    """Whether the service is up."""

    status: str = "ok"
    """`ok` when it can take queries."""
    version: str
    """Of the service."""
