"""Lets a browser show the token once: a link or an EventSource cannot carry it.

    cookie   EXPIRES.MAC, with MAC the HMAC of EXPIRES under the token

Nothing is remembered: keeper and service check the cookie by the token alone, and another token
ends every session. A cookie that was stolen holds until it expires.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, QueryParams
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from circinus.api.http.pages import HEADERS, page
from circinus.pipelines.clock import Clock

LOGIN, LOGOUT = "/login", "/logout"
SESSION_S = 12 * 3600
LARGEST_FORM = 8192
"""Bytes of what is handed in."""
_AFTER = "/"  # where a login leads that was not on the way to anywhere
_WRONG_S = 0.3  # that a wrong token takes
_SEE_OTHER = 303


@dataclass(frozen=True, slots=True)
class Login:
    """Hands out sessions for a token, and knows them again. Safe to share between threads."""

    token: str
    cookie: str  # its name
    clock: Clock

    def has_session(self, headers: Headers) -> bool:
        """Return whether a request shows the cookie of a session that goes on."""
        try:
            shown = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        expires, _, mac = ("" if shown is None else shown.value).partition(".")
        # As bytes: compare_digest refuses text beyond ASCII.
        same = hmac.compare_digest(mac.encode(), self._mac(expires).encode())
        return same and expires.isdecimal() and self.clock.timestamp() < int(expires)

    def page_instead(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the way to the login for somebody who follows a link; None: it is no browser."""
        if scope["method"] != "GET" or "text/html" not in headers.get("accept", ""):
            return None
        query = scope["query_string"].decode("latin-1")
        wanted = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"{LOGIN}?next={quote(wanted, safe='')}", _SEE_OTHER, HEADERS)

    async def answer(self, scope: Scope, headers: Headers, form: bytes) -> Response:
        """Answer a request for `LOGIN` or `LOGOUT`."""
        secure = scope["scheme"] == "https" or headers.get("x-forwarded-proto") == "https"
        if scope["method"] in ("GET", "HEAD") and scope["path"] == LOGIN:
            return _form(QueryParams(scope["query_string"]).get("next", ""))
        if scope["method"] != "POST":
            allowed = {"Allow": "GET, POST" if scope["path"] == LOGIN else "POST"}
            return Response(status_code=405, headers=allowed)
        if scope["path"] == LOGOUT:
            leave = RedirectResponse(LOGIN, _SEE_OTHER, HEADERS)
            self._set(leave, "", 0, secure=secure)
            return leave
        given = {name: values[0] for name, values in parse_qs(form.decode("latin-1")).items()}
        wanted = _local(given.get("next", ""))
        if not hmac.compare_digest(given.get("token", "").encode(), self.token.encode()):
            await asyncio.sleep(_WRONG_S)
            return _form(wanted, "This is not the token of the service.", 401)
        enter = RedirectResponse(wanted, _SEE_OTHER, HEADERS)
        expires = str(int(self.clock.timestamp()) + SESSION_S)
        self._set(enter, f"{expires}.{self._mac(expires)}", SESSION_S, secure=secure)
        return enter

    def _set(self, response: Response, value: str, max_age_s: int, *, secure: bool) -> None:
        response.set_cookie(
            self.cookie, value, max_age_s, secure=secure, httponly=True, samesite="strict"
        )

    def _mac(self, expires: str) -> str:
        return hmac.new(self.token.encode(), f"session {expires}".encode(), "sha256").hexdigest()


def _form(wanted: str, violation: str = "", status: int = 200) -> Response:
    return page(
        "login.html",
        {"action": LOGIN, "wanted": _local(wanted), "violation": violation},
        status=status,
    )


def _local(wanted: str) -> str:
    """Return where to go, if it is a path of ours: two slashes of any kind begin another host."""
    ours = wanted.startswith("/") and wanted[1:2] not in ("/", "\\") and wanted.isprintable()
    return wanted if ours and wanted.isascii() else _AFTER
