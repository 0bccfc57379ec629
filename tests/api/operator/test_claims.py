"""Whose an object is, as its label says; what the cluster says of it is in the cluster's tests."""

from __future__ import annotations

from typing import Any

import pytest

from circinus.api.operator.claims import Whose, whose
from circinus.deploy.kubernetes.ownership import RELEASE


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, Whose.NOBODYS),
        ({"labels": None}, Whose.NOBODYS),
        ({"labels": {RELEASE: ""}}, Whose.NOBODYS),
        # Tools that deliver from a repository set this to a name of their own.
        ({"labels": {"app.kubernetes.io/instance": "two"}}, Whose.NOBODYS),
        ({"labels": {RELEASE: "two"}}, Whose.ANOTHERS),
        ({"labels": {RELEASE: "one-more"}}, Whose.ANOTHERS),
        ({"labels": {RELEASE: "one"}}, Whose.OURS),
    ],
)
def test_an_objects_label_says_whose_it_is(metadata: dict[str, Any], expected: Whose) -> None:
    assert whose(metadata, "one") is expected
