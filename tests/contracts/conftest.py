"""Every kind of database, for the tests of what is kept in one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from circinus.api.store.store import Store
from tests.contracts.databases import URLS, opened


@pytest.fixture(params=URLS, ids=lambda url_in: url_in.__name__)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    url: str = request.param(tmp_path)
    return url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An empty database."""
    made = opened(database_url)
    yield made
    made.dispose()


@pytest.fixture
def store(engine: Engine) -> Store:
    """An empty store."""
    return Store(engine)
