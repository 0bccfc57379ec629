"""Pages of a service without processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from tests.api.fakes import FakeDeployer, parts
from tests.api.test_app import LOOPBACK, Connect


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    services: list[Service] = []

    def make(deployer: FakeDeployer | None = None, **settings: object) -> TestClient:
        services.append(Service(parts(tmp_path, settings), deployer or FakeDeployer()))
        app = application_of(services[-1])
        return TestClient(app, base_url=LOOPBACK, follow_redirects=False)

    yield make
    for service in services:
        service.parts.store.close()
