"""The links that are imitated, apart from those that are planned for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.store.store import Store
from circinus.api.use_cases.capacity import Emulation
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.infrastructure import Link
from tests.api.fakes import FakeDeployer, parts

LOCAL = PRESETS["local"]
THIN = Link(between=("edge", "device"), bandwidth_bytes_per_s=1e6, delay_s=0.1)


@pytest.fixture
def emulation(store: Store, clock: ManualClock, deployer: FakeDeployer) -> Emulation:
    return Emulation(now=LOCAL, deployer=deployer, events=store.events, clock=clock)


@pytest.mark.parametrize("between", [("device", "cloud"), ("device", "moon")])
def test_a_link_that_is_not_there_is_refused(
    emulation: Emulation, between: tuple[str, str]
) -> None:
    with pytest.raises(InvalidInput, match=r"must name emulated links \(device-edge, edge-cloud"):
        asyncio.run(emulation.set_links([THIN, replace(THIN, between=between)]))
    assert emulation.now is LOCAL
    assert emulation.events.latest() == 0


def test_a_link_of_the_networks_own_is_refused(emulation: Emulation) -> None:
    own = replace(emulation, now=PRESETS["three-tier"])
    with pytest.raises(InvalidInput, match="there are none"):
        asyncio.run(own.set_links([replace(THIN, between=("device", "mec"))]))


def test_links_left_out_stay_and_the_deployer_hears_of_all(
    emulation: Emulation, deployer: FakeDeployer
) -> None:
    asyncio.run(emulation.set_links([THIN]))
    now = asyncio.run(emulation.set_links([replace(THIN, between=("edge", "cloud"))]))
    assert [link.bandwidth_bytes_per_s for link in now.links] == [1e6, 1e6]
    assert all(link.emulated for link in now.links)
    assert now.tiers == LOCAL.tiers
    assert deployer.emulated is now is emulation.now


def test_what_changes_is_told_once(emulation: Emulation) -> None:
    for _ in range(2):
        asyncio.run(emulation.set_links([THIN]))
    [event] = emulation.events.since(0, 9)
    assert event.kind == "emulation.changed"
    assert event.words == "edge-device is imitated with 8 Mbit/s and 0.1 s"
    between = {"between": ["edge", "device"], "bandwidth_mbit_per_s": 8.0, "delay_s": 0.1}
    assert event.data == {"links": [between]}


@pytest.mark.parametrize(
    ("link", "field"),
    [
        ({"between": ["device"], "bandwidth_mbit_per_s": 1}, "links[0].between"),
        ({"between": ["device", "edge"], "bandwidth_mbit_per_s": 0}, "bandwidth_mbit_per_s"),
        ({"between": ["device", "device"], "bandwidth_mbit_per_s": 1}, "link device-device"),
        ({"between": ["device", "edge"]}, "bandwidth_mbit_per_s"),
    ],
)
def test_a_malformed_link_is_refused(tmp_path: Path, link: object, field: str) -> None:
    given = replace(parts(tmp_path, {}), infrastructure=LOCAL)
    client = TestClient(
        application_of(Service(given, FakeDeployer())), base_url="http://127.0.0.1"
    )
    before = client.get("/v1/emulation").json()
    response = client.patch("/v1/emulation", json={"links": [link]})
    assert response.status_code == 422, response.text
    assert field in response.json()["errors"][0]["field"]
    assert client.get("/v1/emulation").json() == before
    given.store.close()


def test_what_is_imitated_is_not_what_is_planned_for(tmp_path: Path) -> None:
    given = replace(parts(tmp_path, {}), infrastructure=LOCAL)
    client = TestClient(
        application_of(Service(given, FakeDeployer())), base_url="http://127.0.0.1"
    )
    link = {"between": ["device", "edge"], "bandwidth_mbit_per_s": 8, "delay_s": 0.5}
    shown = client.patch("/v1/emulation", json={"links": [link]}).json()
    assert shown == client.get("/v1/emulation").json()
    assert shown["links"][0]["bandwidth_bytes_per_s"] == 1e6
    assert shown["links"][0]["delay_s"] == 0.5
    planned = client.get("/v1/infrastructure").json()["links"][0]
    assert planned["bandwidth_bytes_per_s"] == LOCAL.links[0].bandwidth_bytes_per_s
    given.store.close()
