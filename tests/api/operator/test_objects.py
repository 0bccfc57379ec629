"""The mirror is what the cluster has, whatever its watch loses; what we wrote is no news."""

from __future__ import annotations

from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.operator.objects import WatchedObjects
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import Unavailable
from tests.api.operator.fake_cluster import FakeCluster


class Heard:
    """Keys in order; stops to follow after so many passes of the watch."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def __call__(self, key: str) -> None:
        self.keys.append(key)


def watched(cluster: FakeCluster) -> tuple[WatchedObjects, Heard]:
    heard = Heard()
    return WatchedObjects(cluster=cluster, clock=ManualClock(), on_change=heard), heard


class Passes(Event):
    """Is set after so many waits, each of which takes no time."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self.passes = passes

    def wait(self, timeout: float | None = None) -> bool:
        self.passes -= 1
        if self.passes <= 0:
            self.set()
        return self.is_set()


def follow(objects: WatchedObjects, passes: int, namespace: str | None = "ns") -> None:
    """Follow for so many passes: each ends with the watch."""
    objects.over = Passes(passes)
    objects.follow(namespace)


def test_a_cluster_that_does_not_answer_is_asked_again() -> None:
    cluster = FakeCluster()
    cluster.put("a")
    cluster.down = True
    objects, heard = watched(cluster)
    follow(objects, 3)
    assert (heard.keys, objects.synced) == ([], set())
    cluster.down = False
    follow(objects, 1)
    assert (heard.keys, objects.synced) == (["ns/a"], {"ns"})


def test_a_reply_that_is_nonsense_is_asked_for_again() -> None:
    cluster = FakeCluster()
    cluster.put("a")
    listed, asked = cluster.listed, list[str]()

    def odd(path: str, **query: str) -> dict[str, object]:
        asked.append(path)
        return {} if len(asked) == 1 else listed(path, **query)

    cluster.listed = odd  # type: ignore[method-assign]
    objects, heard = watched(cluster)
    follow(objects, 2)
    assert heard.keys == ["ns/a"]


@pytest.mark.parametrize("page_size", [1, 2, 500])
def test_a_list_is_read_page_by_page(page_size: int) -> None:
    cluster = FakeCluster(page_size=page_size)
    for name in "abc":
        cluster.put(name)
    objects, _ = watched(cluster)
    follow(objects, 1)
    assert set(objects.known()) == {"ns/a", "ns/b", "ns/c"}


def test_what_was_missed_is_found_by_a_new_list_when_the_watch_is_too_old() -> None:
    cluster = FakeCluster()
    cluster.put("gone")
    cluster.put("old")
    objects, heard = watched(cluster)

    def forgetful(path: str, version: str, **_: object) -> object:
        cluster.watch = watch  # type: ignore[method-assign]
        cluster.remove("gone")
        cluster.put("new")
        cluster.forgets = cluster.version
        return watch(path, version, for_s=1)

    watch = cluster.watch
    cluster.watch = forgetful  # type: ignore[method-assign,assignment]
    follow(objects, 2)
    assert set(objects.known()) == {"ns/old", "ns/new"}
    assert heard.keys == ["ns/gone", "ns/old", "ns/gone", "ns/new"]


def test_only_the_namespaces_that_are_followed_are_known() -> None:
    cluster = FakeCluster()
    cluster.put("a", "one")
    cluster.put("a", "two")
    cluster.put("a", "three")
    objects, _ = watched(cluster)
    follow(objects, 1, "one")
    follow(objects, 1, "two")
    assert set(objects.known()) == {"one/a", "two/a"}
    everything, _ = watched(cluster)
    follow(everything, 1, None)
    assert len(everything.known()) == 3


def test_what_we_wrote_is_no_news_and_what_others_wrote_is() -> None:
    cluster = FakeCluster()
    cluster.put("a")
    objects, heard = watched(cluster)
    follow(objects, 1)
    found = objects.get("ns/a")
    assert found is not None
    change = {"metadata": found["metadata"], "status": {"phase": "queued"}}
    objects.wrote(
        cluster.merge("/apis/circinus.io/v1alpha1/namespaces/ns/pipelinequeries/a/status", change)
    )
    heard.keys.clear()
    follow(objects, 1)
    assert heard.keys == []
    cluster.put("a")
    follow(objects, 1)
    assert heard.keys == ["ns/a"]
    known = objects.get("ns/a")
    assert known is not None
    assert known["metadata"]["generation"] == 2
    assert "managedFields" not in known["metadata"]


def test_what_comes_back_late_does_not_bring_back_what_is_gone() -> None:
    cluster = FakeCluster()
    late = cluster.put("a")
    objects, _ = watched(cluster)
    follow(objects, 1)
    cluster.remove("a")
    follow(objects, 1)
    objects.wrote(late)
    assert objects.get("ns/a") is None
    assert objects.key_of_uid(late["metadata"]["uid"]) is None
    again = cluster.put("a")
    follow(objects, 1)
    objects.wrote(late)  # another object of the same name is there by now
    known = objects.get("ns/a")
    assert known is not None
    assert known["metadata"]["uid"] == again["metadata"]["uid"]


def test_following_ends_when_it_is_over() -> None:
    cluster = FakeCluster()
    objects, _ = watched(cluster)
    thread = Thread(target=objects.follow, args=["ns"])
    thread.start()
    objects.over.set()
    thread.join(10)
    assert not thread.is_alive()


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "remove", "forget", "follow"]), st.sampled_from("abc")),
        max_size=30,
    )
)
def test_after_following_the_mirror_is_what_the_cluster_has(steps: list[tuple[str, str]]) -> None:
    cluster = FakeCluster()
    objects, _ = watched(cluster)
    for step, name in [*steps, ("follow", "")]:
        if step == "put":
            cluster.put(name)
        elif step == "remove" and f"ns/{name}" in cluster.objects:
            cluster.remove(name)
        elif step == "forget":
            cluster.forgets = cluster.version
        elif step == "follow":
            follow(objects, 2)
    versions = {
        key: (found["metadata"]["uid"], found["metadata"]["resourceVersion"])
        for key, found in cluster.objects.items()
    }
    mirrored = {}
    for key in objects.known():
        found = objects.get(key)
        assert found is not None
        mirrored[key] = (found["metadata"]["uid"], found["metadata"]["resourceVersion"])
        assert objects.key_of_uid(found["metadata"]["uid"]) == key
    assert mirrored == versions


def test_errors_of_a_watch_are_unavailable_or_begin_anew() -> None:
    cluster = FakeCluster()
    cluster.put("a")
    objects, heard = watched(cluster)

    def broken(path: str, version: str, **_: object) -> object:
        cluster.watch = watch  # type: ignore[method-assign]
        raise Unavailable("cut off", retry_after_s=1.0)

    watch = cluster.watch
    cluster.watch = broken  # type: ignore[method-assign,assignment]
    follow(objects, 2)
    assert heard.keys == ["ns/a"]  # it went on from where it was
