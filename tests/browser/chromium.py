"""A real browser for tests: Debian's chromium, which may reach the service under test alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

REQUIRED = "CIRCINUS_TEST_BROWSER"
"""Set to `required` where tests fail without chromium; otherwise they are skipped."""
DESKTOP, PHONE, WALL = (1280, 800), (390, 844), (3840, 2160)
SIZES_AND_THEMES = {
    "desktop, dark": (DESKTOP, True),
    "phone, light": (PHONE, False),
    "wall, light": (WALL, False),
}
"""Whether a page fits depends on the size alone, its contrasts on the theme."""
_GRAVE = {"serious", "critical"}


@contextmanager
def browser() -> Iterator[Browser]:
    """Return a browser without a window; skips the test where there is none, unless it must be."""
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get(REQUIRED) == "required":
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    # Tests may run as root, where chromium has no sandbox.
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@dataclass
class Visit:
    """A tab that looks at one service; what it must not do is kept for the end of the test."""

    page: Page
    origin: str
    elsewhere: list[str] = field(default_factory=list)  # URLs asked for of others
    complaints: list[str] = field(default_factory=list)  # of scripts, and of the content policy

    def __post_init__(self) -> None:
        self.page.on("request", self._asked)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: str) -> Page:
        """Open a page of the service, and give it."""
        self.page.goto(f"{self.origin}{path}")
        return self.page

    def assert_accessible(self) -> None:
        """Fail if the page, as it stands, has a serious problem for assistive technology."""
        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        grave = [
            f"{each['id']}: {each['help']}: {[node['html'] for node in each['nodes']]}"
            for each in found
            if each["impact"] in _GRAVE
        ]
        assert not grave, grave

    def assert_kept_to_itself(self) -> None:
        """Fail if the page asked anybody else for anything, or broke a rule of its own."""
        assert not self.elsewhere
        assert not self.complaints, self.complaints

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:", "blob:")):
            self.elsewhere.append(request.url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)


@contextmanager
def visiting(
    started: Browser, origin: str, size: tuple[int, int] = DESKTOP, *, dark: bool = False
) -> Iterator[Visit]:
    """Return a tab of its own, which must have kept to itself by the end."""
    context = started.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        bypass_csp=False,
    )
    try:
        visit = Visit(context.new_page(), origin)
        yield visit
        visit.assert_kept_to_itself()
    finally:
        context.close()
