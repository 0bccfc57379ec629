"""Labels and owners of what a release makes, and who the owner is."""

from __future__ import annotations

from typing import cast

import pytest

from circinus.deploy.kubernetes.api import Absent, Cluster, Object
from circinus.deploy.kubernetes.ownership import (
    RELEASE,
    ObjectOwner,
    WorkerOwners,
    belonging,
    check_release,
    deployment_named,
    selector_of_workers,
)
from circinus.deploy.kubernetes.pods import RenderSettings, worker_objects
from circinus.pipelines.errors import InvalidInput
from tests.deploy.kubernetes.test_worker_objects import spec

UID = "0f5a7d3c-9d2e-4a55-8a0b-1c6f2b7d9e10"
SERVICE = ObjectOwner(api_version="apps/v1", kind="Deployment", name="one", uid="d-1")
QUERY = ObjectOwner(api_version="circinus.io/v1alpha1", kind="PipelineQuery", name="q", uid=UID)


class Listing:
    """A cluster that lists objects, or knows no such kind; `asked` are the selectors."""

    def __init__(self, *found: Object, absent: bool = False) -> None:
        self.found = found
        self.absent = absent
        self.asked: list[dict[str, str]] = []

    def listed(self, path: str, **query: str) -> Object:
        self.asked.append(query)
        if self.absent:
            raise Absent("list", "NotFound", "the server could not find the requested resource")
        return {"items": list(self.found)}


def owners(cluster: Listing, **keys: str) -> WorkerOwners:
    return WorkerOwners(
        cluster=cast("Cluster", cluster),
        namespace="ns",
        release="one",
        key_of=keys.get,
        service=SERVICE,
    )


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a" * 54, "a/b"])
def test_a_release_has_a_name_that_helm_would_take(name: str) -> None:
    with pytest.raises(InvalidInput, match="release must be at most 53 of a-z, 0-9"):
        check_release(name)


@pytest.mark.parametrize("name", ["a", "a" * 53, "prod-1", "v1.2"])
def test_names_that_helm_takes_are_taken(name: str) -> None:
    check_release(name)


def test_an_owner_that_is_not_there_is_named() -> None:
    words = r"owner must be a Deployment of namespace ns, got 'one'\."
    with pytest.raises(InvalidInput, match=words):
        deployment_named(cast("Cluster", Listing()), "ns", "one")


def test_an_owner_is_found_by_its_name() -> None:
    cluster = Listing({"metadata": {"name": "one", "uid": "d-1"}})
    assert deployment_named(cast("Cluster", cluster), "ns", "one") == SERVICE
    assert cluster.asked == [{"fieldSelector": "metadata.name=one"}]


@pytest.mark.parametrize("key", [None, "chosen-by-a-client", f"{UID}x/1", UID[:-1]])
def test_a_query_that_came_of_no_object_is_the_services(key: str | None) -> None:
    cluster = Listing()
    keys = {} if key is None else {"q-1": key}
    assert owners(cluster, **keys).of("q-1") == SERVICE
    assert cluster.asked == []


def test_an_object_elsewhere_or_of_another_release_owns_nothing() -> None:
    cluster = Listing()
    assert owners(cluster, **{"q-1": f"{UID}/1"}).of("q-1") == SERVICE
    assert cluster.asked == [{"labelSelector": f"{RELEASE}=one"}]


def test_a_cluster_without_the_custom_resource_has_no_objects_that_own() -> None:
    assert owners(Listing(absent=True), **{"q-1": f"{UID}/1"}).of("q-1") == SERVICE


def test_a_query_that_came_of_an_object_is_its_and_objects_are_listed_once() -> None:
    cluster = Listing({"metadata": {"name": "q", "uid": UID}})
    found = owners(cluster, **{"q-1": f"{UID}/1", "q-2": f"{UID}/2"})
    assert [found.of("q-1"), found.of("q-2")] == [QUERY, QUERY]
    assert len(cluster.asked) == 1


def test_what_a_release_makes_bears_its_name_and_owner_on_pods_too() -> None:
    for document in worker_objects(spec(), RenderSettings()):
        ours = belonging(document, "one", QUERY)
        labels = [ours["metadata"]["labels"]]
        if ours["kind"] == "Deployment":
            labels.append(ours["spec"]["template"]["metadata"]["labels"])
        for each in labels:
            assert each["app.kubernetes.io/instance"] == each[RELEASE] == "one"
            chosen = selector_of_workers("one").split(",")
            assert dict(part.split("=") for part in chosen).items() <= each.items()
        assert ours["metadata"]["ownerReferences"] == [QUERY.reference]
        assert RELEASE not in document["metadata"]["labels"]  # that is another document
        assert "ownerReferences" not in belonging(document, "one", None)["metadata"]


def test_the_pods_that_a_deployment_selects_are_as_before() -> None:
    _, deployment = worker_objects(spec(), RenderSettings())
    ours = belonging(deployment, "one", None)
    selector = ours["spec"]["selector"]["matchLabels"]
    assert selector == deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= ours["spec"]["template"]["metadata"]["labels"].items()
