"""Quotas of tenants, as the operator of a service writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from api.query_file import read_document
from pipelines import checks
from pipelines.errors import InvalidInput


def read_quotas(text: str) -> dict[str, float]:
    """Give tenant -> largest part of each shared tier, in [0, 1].

    Args:
        text: `acme=0.5,lab=0.25`, the path of a YAML file of `tenant: part`, or nothing.

    Raises:
        InvalidInput: If it is neither, a tenant repeats, or a part is out of range.
    """
    if not text.strip():
        return {}
    entries = _entries(text) if "=" in text else read_document(Path(text))
    return {tenant: _part(tenant, part) for tenant, part in entries.items()}


def _entries(text: str) -> Mapping[str, object]:
    pairs = [tuple(map(str.strip, entry.partition("=")[::2])) for entry in text.split(",")]
    checks.unique("quotas", [tenant for tenant, _ in pairs])
    return {tenant: _number(tenant, part) for tenant, part in pairs}


def _number(tenant: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInput.of(f"quotas.{tenant}", "must be a number", text) from error


def _part(tenant: str, part: object) -> float:
    checks.name("quotas", tenant)
    if isinstance(part, bool) or not isinstance(part, int | float):
        raise InvalidInput.of(f"quotas.{tenant}", "must be a number", part)
    checks.probability(f"quotas.{tenant}", part)
    return float(part)
