"""What tests of the control loops start from: an empty store, a clock and a deployer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Router
from starlette.types import ASGIApp

from circinus.api.http.data_plane import DataPlane
from circinus.api.serving.edge import ExactRoute
from circinus.api.store.store import Store
from circinus.pipelines.clock import ManualClock
from tests.api.fakes import FakeDeployer, sql_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = sql_store(tmp_path)
    yield made
    made.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def deployer() -> FakeDeployer:
    return FakeDeployer()


def routed(plane: DataPlane, others: ASGIApp) -> ASGIApp:
    """Return both as a serving process has them."""
    requests = ExactRoute("/v1/queries/{id}/requests", plane, methods=["POST"])
    return Router([requests], redirect_slashes=False, default=others)
