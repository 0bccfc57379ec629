"""One browser for the tests of a file; each has a tab of its own.

Not for all files: while it is there, an event loop runs in this thread, and tests elsewhere could
start none.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started
