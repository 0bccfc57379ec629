"""Whose an object is, by the word of a real API server: one release takes it, one lets it go."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from circinus.api.operator.claims import FINALIZER, Claims, Retirement
from circinus.deploy.kubernetes.ownership import RELEASE, queries_path
from circinus.pipelines.clock import SystemClock
from tests.cluster.api import Object, eventually
from tests.cluster.cluster import Cluster
from tests.cluster.rollouts import connected
from tests.cluster.test_operator import SPEC, define

pytestmark = pytest.mark.cluster
OTHERS = "example.org/holds-it"


@pytest.fixture
def defined(cluster: Cluster, namespace: str) -> str:
    """A namespace of a cluster that knows PipelineQuery; its path of objects."""
    define(cluster)
    return queries_path(namespace)


def make(cluster: Cluster, path: str, name: str, **metadata: Any) -> Object:  # noqa: ANN401
    body = {
        "apiVersion": "circinus.io/v1alpha1",
        "kind": "PipelineQuery",
        "metadata": {"name": name, **metadata},
        "spec": SPEC,
    }
    return cluster.api.create(path, body)


def claims(cluster: Cluster, release: str) -> Claims:
    return Claims(cluster=connected(cluster), release=release)


def released_of(cluster: Cluster, path: str) -> dict[str, str]:
    found = cluster.api.items(path)
    return {o["metadata"]["name"]: o["metadata"].get("labels", {}).get(RELEASE) for o in found}


def retire(cluster: Cluster, path: str, release: str) -> list[str]:
    told: list[str] = []
    Retirement(
        cluster=connected(cluster),
        namespaces=(path.split("/")[-2],),
        release=release,
        clock=SystemClock(),
        patience_s=0.0,
        tell=told.append,
    ).run()
    return told


def test_an_object_that_changed_since_or_is_gone_is_not_taken(
    cluster: Cluster, defined: str
) -> None:
    seen = make(cluster, defined, "changed")
    cluster.api.merge(f"{defined}/changed", {"metadata": {"annotations": {"a": "b"}}})
    assert not claims(cluster, "one").ours(seen["metadata"])
    cluster.api.delete(f"{defined}/changed")
    assert not claims(cluster, "one").ours(seen["metadata"])
    assert released_of(cluster, defined) == {}  # taking does not bring it back
    make(cluster, defined, "changed")  # another one of the same name
    assert not claims(cluster, "one").ours(seen["metadata"])


def test_of_releases_that_take_an_object_at_once_exactly_one_gets_it(
    cluster: Cluster, defined: str
) -> None:
    objects = [make(cluster, defined, f"free-{number}") for number in range(20)]
    releases = ("one", "two", "three")
    contenders = [claims(cluster, release) for release in releases]
    with ThreadPoolExecutor(len(releases)) as threads:
        for found in objects:
            won = list(threads.map(lambda c, o=found: c.ours(o["metadata"]), contenders))
            assert sum(won) == 1
            name = found["metadata"]["name"]
            assert released_of(cluster, defined)[name] == releases[won.index(True)]


def test_what_is_taken_is_ours_until_the_end_and_nobody_elses(
    cluster: Cluster, defined: str
) -> None:
    make(cluster, defined, "named", labels={RELEASE: "two"})
    found = cluster.api.get(f"{defined}/named") or {}
    assert claims(cluster, "two").ours(found["metadata"])
    assert not claims(cluster, "one").ours(found["metadata"])


def test_a_release_that_ends_without_an_operator_lets_its_own_objects_go_and_no_others(
    cluster: Cluster, defined: str
) -> None:
    held = {"finalizers": [FINALIZER]}
    make(cluster, defined, "mine", labels={RELEASE: "one"}, **held)
    make(cluster, defined, "mine-too", labels={RELEASE: "one"})
    make(cluster, defined, "others", labels={RELEASE: "two"}, **held)
    make(cluster, defined, "nobodys", **held)
    both = {"finalizers": [FINALIZER, OTHERS]}
    make(cluster, defined, "held-by-others", labels={RELEASE: "one"}, **both)

    told = retire(cluster, defined, "one")

    assert any("nobody releases" in line for line in told)
    assert released_of(cluster, defined).keys() == {"others", "nobodys", "held-by-others"}
    left = cluster.api.get(f"{defined}/held-by-others") or {}
    assert left["metadata"]["finalizers"] == [OTHERS]  # theirs to release
    for name in released_of(cluster, defined):  # and nobody holds them from here on
        cluster.api.merge(f"{defined}/{name}", {"metadata": {"finalizers": None}})
        cluster.api.delete(f"{defined}/{name}")
    eventually(lambda: released_of(cluster, defined) == {}, "all objects gone")


def test_a_release_without_objects_ends_at_once(cluster: Cluster, defined: str) -> None:
    assert retire(cluster, defined, "one") == ["no PipelineQuery of release one is left"]
