"""Data sets as the service shows them."""

from __future__ import annotations

from pydantic import Field

from circinus.api.schemas.base import Time, View


class DatasetView(View):
    """A data set that was handed over."""

    id: str = Field(description="Of its content: the same content has the same id.")
    kind: str = Field(description="`jsonl`, or `zip` of a folder.")
    size_bytes: int = Field(description="As it was handed over.")
    inputs: int = Field(description="How many inputs it has.")
    created_at: Time = Field(description="When it was handed over first, UTC.")
    queries: list[str] = Field(default_factory=list)
    """Queries that use it, and keep it."""


class DatasetList(View):
    """All data sets."""

    items: list[DatasetView] = Field(description="The newest first.")
