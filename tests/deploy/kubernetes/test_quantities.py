"""Quantities against Kubernetes' own examples."""

from __future__ import annotations

from decimal import Decimal

import pytest

from circinus.deploy.kubernetes.resources import quantity
from circinus.pipelines.errors import InvalidInput


@pytest.mark.parametrize(
    "text", ["", "x", "1x", "1 Gi", "Gi", "1.2.3", "--1", "1KiB", "1K", "1_0", " 1", "nan", "1ni"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="quantity must be a number with a suffix"):
        quantity(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        ("500m", Decimal("0.5")),
        ("0.1", Decimal("0.1")),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 1610612736),
        ("12e6", 12_000_000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("100n", Decimal("1e-7")),
    ],
)
def test_a_quantity_is_its_number(text: str, number: Decimal | int) -> None:
    assert quantity(text) == number
