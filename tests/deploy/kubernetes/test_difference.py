from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.inventory import difference, record_of, revisions
from circinus.deploy.kubernetes.manifests import render
from circinus.deploy.kubernetes.pods import RenderSettings
from tests.deploy.scheduled_plans import scheduled_chain

SERVICE: Object = {
    "kind": "Service",
    "metadata": {"name": "s", "labels": {"a": "1"}},
    "spec": {"ports": [{"port": 1}], "selector": {}},
}
KEY = "Service/s"


def changed(**spec: Any) -> Object:  # noqa: ANN401 - any JSON
    found = copy.deepcopy(SERVICE)
    found["spec"] |= spec
    return found


@pytest.mark.parametrize(
    ("live", "told"),
    [
        (changed(ports=[{"port": 2}]), "spec.ports[0].port: 2 -> 1"),
        (changed(ports=[]), "spec.ports: [] -> [{'port': 1}]"),
        ({**SERVICE, "metadata": {"name": "s"}}, "metadata.labels: absent -> {'a': '1'}"),
    ],
)
def test_what_differs_is_told_with_its_path(live: Object, told: str) -> None:
    assert difference([SERVICE], {KEY: live}).change == {KEY: (told,)}


def test_what_the_server_or_others_added_does_not_count() -> None:
    live = changed(clusterIP="None", ports=[{"port": 1, "protocol": "TCP"}])
    del live["spec"]["selector"]  # the server leaves out what is empty

    found = difference([SERVICE], {KEY: live})
    assert found.is_empty
    assert found.unchanged == 1


@pytest.mark.parametrize(
    ("wanted", "live", "same"),
    [("1024Mi", "1Gi", True), ("0.5", "500m", True), ("1Gi", "1G", False), ("x", "1", False)],
)
def test_amounts_are_compared_as_such_and_no_other_text(
    wanted: str, live: str, *, same: bool
) -> None:
    def of(amount: str, label: str) -> Object:
        resources = {"requests": {"memory": amount}}
        volumes = [{"emptyDir": {"sizeLimit": amount}}]
        return changed(containers=[{"resources": resources}], volumes=volumes, label=label)

    assert difference([of(wanted, "1")], {KEY: of(live, "1")}).is_empty == same
    assert not difference([of(wanted, "1024Mi")], {KEY: of(wanted, "1Gi")}).is_empty


def test_what_is_missing_is_created_and_what_nobody_wants_is_pruned() -> None:
    found = difference([SERVICE], {"Service/old": SERVICE})

    assert found.create == (KEY,)
    assert found.prune == ("Service/old",)
    assert found.to_apply == {KEY}


@given(st.integers(1, 999))
def test_a_record_gives_back_what_was_applied(number: int) -> None:
    rendered = render(scheduled_chain("q", ["device", "edge"]), RenderSettings(namespace="n"))

    (found,) = revisions([record_of(rendered, number)])

    assert (found.number, found.rendered) == (number, rendered)


def test_revisions_are_in_the_order_of_their_numbers() -> None:
    rendered = render(scheduled_chain("q", ["edge"]), RenderSettings())
    records = [record_of(rendered, number) for number in (10, 2, 1)]

    assert [each.number for each in revisions(records)] == [1, 2, 10]
