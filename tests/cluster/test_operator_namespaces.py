"""An operator of several namespaces, of all, and what objects elsewhere are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from tests.cluster.accounts import grant, grant_everywhere, stranger
from tests.cluster.api import eventually
from tests.cluster.chart import RELEASE, of_kind, rendered
from tests.cluster.cluster import Cluster
from tests.cluster.test_operator import Operated, define, gone
from tests.e2e.service_process import ServiceProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SEES = [
    {"apiGroups": ["circinus.io"], "resources": ["pipelinequeries"], "verbs": ["list"]},
    {"apiGroups": ["circinus.io"], "resources": ["pipelinequeries/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]


@pytest.fixture(scope="module")
def three(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Operated]]:
    """Three namespaces of one service, without an operator."""
    folder = tmp_path_factory.mktemp("three")
    define(cluster)
    with ExitStack() as last:
        kubeconfig = last.enter_context(stranger(cluster, folder))
        names = [last.enter_context(cluster.namespace()) for _ in range(3)]
        service = ServiceProcess(folder)
        last.callback(service.stop)
        service.start()
        yield [Operated(cluster, name, service, kubeconfig, folder) for name in names]


@contextmanager
def following(place: Operated, *options: str, namespaces: list[str]) -> Iterator[None]:
    operators = replace(place, running={})
    operators.start(*options, namespaces=namespaces)
    try:
        yield
    finally:
        operators.stop()


def test_named_namespaces_are_followed_and_others_are_told_that_nobody_does(
    cluster: Cluster, three: list[Operated]
) -> None:
    first, second, third = three
    rules = of_kind(rendered(), "Role", f"{RELEASE}-operator")["rules"]
    for place in (first, second):
        grant(cluster, place.namespace, rules)
    grant_everywhere(cluster, SEES)
    try:
        names = [first.namespace, second.namespace]
        with following(first, namespaces=names):
            for place in three:
                place.create("same")
            for place in (first, second):
                eventually(
                    lambda p=place: p.status("same").get("queryId"),  # type: ignore[misc]  # a default binds it
                    "a query",
                )
            status = third.wait_for("same", phase="unwatched")
            assert f"no operator follows namespace {third.namespace}" in status["message"]
            assert "Unwatched" in third.events("same")
            for place in (first, second):
                cluster.api.delete(f"{place.objects}/same")
                gone(place, "same")
    finally:
        grant_everywhere(cluster, [])


def test_all_namespaces_are_followed_also_what_was_told_that_nobody_does(
    cluster: Cluster, three: list[Operated]
) -> None:
    rules = of_kind(rendered(), "Role", f"{RELEASE}-operator")["rules"]
    grant_everywhere(cluster, rules)
    try:
        with following(three[0], "--all-namespaces", namespaces=[]):
            for place in three:
                if place.status("same") == {}:
                    place.create("same")
                eventually(
                    lambda p=place: p.status("same").get("queryId"),  # type: ignore[misc]  # a default binds it
                    "a query",
                )
                cluster.api.delete(f"{place.objects}/same")
                gone(place, "same")
    finally:
        grant_everywhere(cluster, [])
