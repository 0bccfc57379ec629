"""Objects that no operator follows are told so, and only those."""

from __future__ import annotations

import pytest

from circinus.api.operator.claims import FINALIZER
from circinus.api.operator.controller import Elsewhere
from circinus.api.operator.reconciling import EventPublisher
from circinus.deploy.kubernetes.api import Forbidden, Object
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import Unavailable
from tests.api.operator.fake_cluster import FakeCluster


def elsewhere(cluster: FakeCluster) -> Elsewhere:
    clock = ManualClock()
    publisher = EventPublisher(cluster=cluster, identity="me", clock=clock)
    return Elsewhere(
        cluster=cluster, followed=frozenset({"ours", "mine"}), publisher=publisher, clock=clock
    )


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(Unavailable):
        elsewhere(FakeCluster(down=True)).sweep()


def test_an_object_alone_for_two_sweeps_is_told_once() -> None:
    cluster = FakeCluster()
    sweeps = elsewhere(cluster)
    cluster.put("a", "far")
    assert (sweeps.sweep(), cluster.writes) == (0, [])  # somebody may be about to
    assert sweeps.sweep() == 1
    status = cluster.status("a", "far")
    assert status["phase"] == "unwatched"
    assert "no operator follows namespace far: this one follows mine, ours." in status["message"]
    assert "--namespace far or --all-namespaces" in status["message"]
    (ready,) = status["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "NotWatched")
    assert cluster.events == [("a", "Unwatched")]
    assert sweeps.sweep() == 0


@pytest.mark.parametrize("place", ["ours", "mine"])
def test_an_object_that_we_follow_is_not_alone(place: str) -> None:
    cluster = FakeCluster()
    sweeps = elsewhere(cluster)
    cluster.put("a", place)
    assert (sweeps.sweep(), sweeps.sweep()) == (0, 0)


def test_an_object_that_another_operator_holds_is_not_alone() -> None:
    cluster = FakeCluster()
    sweeps = elsewhere(cluster)
    cluster.put("a", "far")
    cluster.put("b", "far")
    sweeps.sweep()
    cluster.put("a", "far", finalizers=[FINALIZER])
    cluster.objects["far/b"]["status"] = {"phase": "queued"}
    assert sweeps.sweep() == 0


def test_an_object_of_the_same_name_is_another_one() -> None:
    cluster = FakeCluster()
    sweeps = elsewhere(cluster)
    cluster.put("a", "far")
    sweeps.sweep()
    cluster.remove("a", "far")
    cluster.put("a", "far")
    assert sweeps.sweep() == 0


def test_where_rights_end_the_others_are_told_all_the_same() -> None:
    cluster = FakeCluster()
    sweeps = elsewhere(cluster)
    for name in "ab":
        cluster.put(name, "far")
    sweeps.sweep()
    merge, refused = cluster.merge, list[str]()

    def once(path: str, body: Object) -> Object:
        if not refused:
            refused.append(path)
            raise Forbidden("PATCH", "Forbidden", "no")
        return merge(path, body)

    cluster.merge = once  # type: ignore[method-assign,assignment]
    assert sweeps.sweep() == 1
