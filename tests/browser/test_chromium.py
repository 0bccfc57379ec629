"""That what watches over pages sees what it should."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import visiting

_SOUND = '<html lang="en"><title>t</title><main><h1>Plans</h1></main>'
_PAGES = {
    "/sound": _SOUND,
    "/elsewhere": f'{_SOUND}<img alt="x" src="http://127.0.0.1:9/x.png">',
    "/inline": f"{_SOUND}<script>document.title = 'run'</script>",
    "/nameless": f'{_SOUND}<input type="text">',
}


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = _PAGES.get(self.path, "").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Security-Policy", "script-src 'self'")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("path", ["/elsewhere", "/inline"])
def test_a_page_that_asks_others_or_breaks_its_policy_is_caught(
    chromium: Browser, origin: str, path: str
) -> None:
    def look() -> None:
        with visiting(chromium, origin) as visit:
            visit.open(path)
            visit.page.wait_for_timeout(100)

    with pytest.raises(AssertionError):
        look()


def test_a_field_without_a_name_is_a_serious_problem(chromium: Browser, origin: str) -> None:
    with visiting(chromium, origin) as visit:
        visit.open("/nameless")
        with pytest.raises(AssertionError, match="label"):
            visit.assert_accessible()


def test_a_sound_page_passes(chromium: Browser, origin: str) -> None:
    with visiting(chromium, origin) as visit:
        assert visit.open("/sound").title() == "t"
        visit.assert_accessible()
