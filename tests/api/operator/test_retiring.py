"""The end of a release, with an operator that is slow, and without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from circinus.api.operator.claims import FINALIZER, Retirement
from circinus.deploy.kubernetes.api import Absent, Clash, Cluster, Object
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput


@dataclass
class Held:
    """A cluster with objects that our finalizer holds; somebody acts at each list."""

    objects: dict[str, list[str]]  # name -> finalizers
    acts: Callable[[Held], object] = lambda _: None
    ending: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    def listed(self, path: str, **query: str) -> Object:
        assert query == {"labelSelector": "circinus.io/release=one"}
        self.acts(self)
        for name in [n for n, held in self.objects.items() if n in self.ending and not held]:
            del self.objects[name]
        return {"items": [self._document(name) for name in self.objects]}

    def delete(self, path: str) -> None:
        self.ending.add(path.rpartition("/")[2])
        self.calls.append(f"delete {path.rpartition('/')[2]}")

    def replace(self, path: str, body: dict[str, Any]) -> None:
        name = path.rpartition("/")[2]
        self.calls.append(f"replace {name}")
        assert (body["kind"], body["apiVersion"]) == ("PipelineQuery", "circinus.io/v1alpha1")
        self.objects[name] = body["metadata"]["finalizers"]

    def _document(self, name: str) -> Object:
        gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if name in self.ending else {}
        return {
            "metadata": {"name": name, "namespace": "ns", "finalizers": self.objects[name], **gone}
        }


def retirement(cluster: Held, clock: ManualClock, patience_s: float = 20.0) -> Retirement:
    return Retirement(
        cluster=cast("Cluster", cluster),
        namespaces=("ns",),
        release="one",
        clock=clock,
        patience_s=patience_s,
    )


def test_patience_below_zero_is_refused() -> None:
    with pytest.raises(InvalidInput, match="patience_s must be >= 0, got -1"):
        retirement(Held({}), ManualClock(), -1.0)


def test_without_the_definition_there_is_nothing_to_end() -> None:
    class Unknown(Held):
        def listed(self, path: str, **query: str) -> Object:
            raise Absent("list", "NotFound", "")

    retirement(Unknown({}), ManualClock()).run()


def test_what_others_hold_is_not_waited_for() -> None:
    cluster = Held({"q": ["others"]})
    clock = ManualClock()
    retirement(cluster, clock).run()
    assert cluster.calls == ["delete q"]
    assert clock.now() < 20.0


def test_while_an_operator_releases_objects_none_is_let_go() -> None:
    clock = ManualClock()
    begun = clock.now()

    def releases_one_in_15_s(cluster: Held) -> None:
        left = 4 - int((clock.now() - begun) / 15.0)
        for name in sorted(cluster.objects)[left:]:
            cluster.objects[name] = []

    cluster = Held({f"q-{n}": [FINALIZER] for n in range(4)}, releases_one_in_15_s)
    retirement(cluster, clock).run()
    assert cluster.objects == {}
    assert all(call.startswith("delete") for call in cluster.calls)
    assert clock.now() - begun >= 60.0


def test_where_nobody_releases_them_objects_are_let_go_after_the_patience() -> None:
    clock = ManualClock()
    begun = clock.now()
    cluster = Held({"a": [FINALIZER], "b": [FINALIZER, "others"]})
    retirement(cluster, clock).run()
    assert cluster.objects == {"b": ["others"]}
    assert cluster.calls == ["delete a", "delete b", "replace a", "replace b"]
    assert clock.now() - begun >= 20.0


def test_an_object_that_is_made_meanwhile_goes_too() -> None:
    def makes_one(cluster: Held) -> None:
        if "delete first" in cluster.calls and "delete late" not in cluster.calls:
            cluster.objects["late"] = []

    cluster = Held({"first": [FINALIZER]}, makes_one)
    retirement(cluster, ManualClock()).run()
    assert "delete late" in cluster.calls
    assert cluster.objects == {}


def test_who_changes_an_object_first_is_no_trouble() -> None:
    class Faster(Held):
        def replace(self, path: str, body: dict[str, Any]) -> None:
            if "clashed" not in self.calls:
                self.calls.append("clashed")
                raise Clash("replace", "Conflict", "the object has been modified")
            super().replace(path, body)

    cluster = Faster({"q": [FINALIZER]})
    retirement(cluster, ManualClock()).run()
    assert cluster.objects == {}
