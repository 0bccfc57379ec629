"""What the pages for people have in common: their templates, what they may load, and how.

A page loads nothing but our own files, and nothing of it is a script or a style in its text: what
a hostile name may write into it is text. Values are escaped; an unknown one is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from circinus.api.phases import QueryPhase
from circinus.api.text import formats

_ROOM = Path(__file__).with_name("ui")
STATIC = "/ui/static/"
"""Below it are the files that pages load; they are the same for all clients, and no secret."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with none, our forms would have no origin
    "X-Content-Type-Options": "nosniff",
}
SECTIONS = {
    "Queries": "/",
    "Schedule": "/ui/schedule",
    "Infrastructure": "/ui/infrastructure",
    "Events": "/ui/events",
    "Submit": "/ui/submit",
}
"""The navigation: name -> path."""


def page(
    template: str, context: Mapping[str, object], *, section: str = "", status: int = 200
) -> HTMLResponse:
    """Return a page, or a part of one, from a template; `section` is where it is in `SECTIONS`."""
    text = _environment().get_template(template).render({**context, "section": section})
    return HTMLResponse(text, status, HEADERS)


@cache
def static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the files that pages load: name -> content and the version that names it in paths."""
    files = {path.name: path.read_bytes() for path in sorted((_ROOM / "static").iterdir())}
    return {name: (text, blake2b(text, digest_size=9).hexdigest()) for name, text in files.items()}


def _static(name: str) -> str:
    """Return the path of a file, which changes with the file."""
    return f"{STATIC}{name}?v={static_files()[name][1]}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_ROOM / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "formats": formats,
        "phases": list(QueryPhase),
        "sections": SECTIONS,
        "static": _static,
    }
    return made
