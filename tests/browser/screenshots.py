"""Takes the pictures of docs/pages of a service that runs, such as `circinus demo --keep` leaves.

python -m tests.browser.screenshots http://127.0.0.1:8000 docs/pages
"""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
from PIL import Image

from tests.browser.chromium import DESKTOP, PHONE, Visit, browser, visiting

_COLOURS = 128  # of a picture: a third of the bytes, and nobody sees it
_TOP = 1010  # pixels of a query's page, for `overview.png`
_LOOKS = {"wide": (DESKTOP, False), "phone": (PHONE, False), "dark": (DESKTOP, True)}


def take(origin: str, folder: Path) -> None:
    """Write a picture of each page in each look, `PAGE-LOOK.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    queries = httpx.get(f"{origin}/v1/queries", trust_env=False).json()["items"]
    serving = next(each["id"] for each in queries if each["phase"] == "serving")
    pages = {
        "queries": "/",
        "query": f"/ui/queries/{serving}",
        "schedule": "/ui/schedule",
        "infrastructure": "/ui/infrastructure",
        "events": "/ui/events",
        "submit": "/ui/submit",
    }
    with browser() as started:
        for look, (size, dark) in _LOOKS.items():
            with visiting(started, origin, size, dark=dark) as visit:
                for name, path in pages.items():
                    _take(visit, path, folder / f"{name}-{look}.png")
    with Image.open(folder / "query-wide.png") as picture:
        picture.crop((0, 0, picture.width, _TOP)).save(folder / "overview.png", optimize=True)


def _take(visit: Visit, path: str, file: Path) -> None:
    page = visit.open(path)
    page.wait_for_timeout(1500)  # what it asks for by itself
    visit.assert_accessible()
    page.screenshot(path=file, full_page=True)
    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(_COLOURS)
    small.save(file, optimize=True)


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]))
