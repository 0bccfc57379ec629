"""An API server that fails, loses answers, cuts watches or is silent: each is a clear state."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.inventory import key_of
from circinus.deploy.kubernetes.mirror import Mirror
from circinus.deploy.kubernetes.outcome import State
from circinus.deploy.kubernetes.rollout import Rollout
from circinus.pipelines.clock import SystemClock
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.rollouts import ours, rendered, rollout
from tests.cluster.rude_proxy import Manner, rude

pytestmark = pytest.mark.cluster


def test_a_server_that_is_always_busy_is_told(cluster: Cluster, namespace: str) -> None:
    with rude(cluster, lambda _number, _method: Manner.BUSY) as client:
        here = Rollout(client, namespace, SystemClock(), timeout_s=1.5)
        outcome = here.apply([rendered(namespace)])

    assert outcome.state is State.UNAVAILABLE
    assert "the cluster cannot answer now" in outcome.words
    assert "too much to do" in outcome.words
    assert ours(cluster, namespace) == []


def test_a_server_that_is_silent_is_told(cluster: Cluster, namespace: str) -> None:
    with rude(cluster, lambda _number, _method: Manner.SILENT, timeout_s=0.3) as client:
        here = Rollout(client, namespace, SystemClock(), timeout_s=1.0)
        outcome = here.apply([rendered(namespace)])

    assert outcome.state is State.UNAVAILABLE
    assert "timed out" in outcome.words


def test_what_a_server_took_before_it_failed_is_told_and_applying_again_goes_on(
    cluster: Cluster, namespace: str
) -> None:
    plan = rendered(namespace)
    writes = iter(range(1000))

    def fails_after_five_writes(_number: int, method: str) -> Manner:
        writing = method == "PATCH"
        return Manner.BUSY if writing and next(writes) >= 5 else Manner.POLITE

    with rude(cluster, fails_after_five_writes) as client:
        here = Rollout(client, namespace, SystemClock(), timeout_s=5.0)
        outcome = here.apply([plan])
    there = {key_of(document) for document in plan.objects}
    live = rollout(cluster, namespace).live("q")

    assert outcome.state is State.UNAVAILABLE
    assert len(outcome.applied) == 5
    assert {*outcome.applied} == set(live)
    assert {*outcome.missing} == there - set(live)
    assert rollout(cluster, namespace).apply([plan]).state is State.READY


def test_refused_and_lost_answers_in_between_are_got_over(
    cluster: Cluster, namespace: str
) -> None:
    old, new = (rendered(namespace, placement=["edge"], share=share) for share in (0.2, 0.3))

    def now_and_then(number: int, _method: str) -> Manner:
        return {1: Manner.BUSY, 4: Manner.FORGETFUL}.get(number % 6, Manner.POLITE)

    with rude(cluster, now_and_then) as client:
        here = Rollout(client, namespace, SystemClock(), timeout_s=120.0)
        states = [here.apply([old]).state, here.apply([new]).state]

    assert states == [State.READY, State.READY]
    assert rollout(cluster, namespace).diff([new]).is_empty


def test_a_mirror_misses_nothing_though_every_watch_is_cut(
    cluster: Cluster, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    seen: set[str] = set()

    def heard(objects: Mapping[str, Object]) -> None:
        seen.clear()
        seen.update(name for name in objects if name.startswith("kept"))

    # The list is answered; then each watch ends with its first event.
    with rude(
        cluster, lambda number, _method: Manner.POLITE if number == 1 else Manner.FORGETFUL
    ) as client:
        mirror = Mirror(cluster=client, path=path, heard=heard)
        mirror.start()
        for number in range(4):
            cluster.api.create(path, {"metadata": {"name": f"kept-{number}"}})
        cluster.api.delete(f"{path}/kept-0")
        eventually(lambda: seen == {"kept-1", "kept-2", "kept-3"}, "everything heard of")
        mirror.stop()
        cluster.api.create(path, {"metadata": {"name": "last"}})  # ends the watch
