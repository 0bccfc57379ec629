"""What the pages for people have in common: they load nothing, from us or from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from starlette.responses import HTMLResponse

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
body { color: #1b1b1b; background: #fff }
code, pre { font-size: 0.9em } pre { overflow-x: auto; background: #f4f4f4; padding: 0.5rem }
input, button { font: inherit; padding: 0.4rem; margin: 0.4rem 0 } .fault { color: #a00000 }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'self'; "
    f"frame-ancestors 'none'; style-src 'sha256-{_HASH}'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """Give a page; the body is HTML, whatever is not ours escaped in it."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    text = f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'
    return HTMLResponse(text, status, HEADERS)
