"""Which namespaces an operator follows, and where its lease is."""

from __future__ import annotations

import pytest

from circinus.api.operator.running import Scope
from circinus.pipelines.errors import InvalidInput


def test_all_namespaces_and_some_are_not_both_asked_for() -> None:
    rule = "namespace must be left out with --all-namespaces, got 'a, b'"
    with pytest.raises(InvalidInput, match=rule):
        Scope(namespaces=("a", "b"), everywhere=True)


@pytest.mark.parametrize(
    ("scope", "home", "followed"),
    [
        (Scope(), "default", ("default",)),
        (Scope(namespaces=("a",)), "a", ("a",)),
        (Scope(namespaces=("b", "a", "b")), "b", ("b", "a")),
        (Scope(everywhere=True), "default", (None,)),
    ],
)
def test_outside_of_a_cluster_the_lease_is_where_the_first_objects_are(
    scope: Scope, home: str, followed: tuple[str | None, ...]
) -> None:
    assert (scope.home, scope.followed) == (home, followed)
