"""Every implementation of `Store`, for the tests of its contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from circinus.api.store.store import Store
from tests.contracts.stores import MAKERS


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = request.param(tmp_path)
    yield made
    made.close()
