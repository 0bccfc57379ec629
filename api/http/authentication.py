"""Which clients may use a service: the token or a browser's session, known hosts, pages of ours.

With a token: clients that send it, or the cookie that a browser received for it. Without: clients
that reach loopback under a loopback name. A plain ASGI middleware around everything, so that
unknown paths, too, reveal nothing without a token.

    cookie   EXPIRES.MAC, with MAC the HMAC of EXPIRES under the token

Nothing is stored: every process checks the cookie by the token alone, and another token ends every
session. A stolen cookie holds until it expires. A browser sends its cookies along with any page's
request, and reaches addresses that the page's server does not. So a host name must be one of ours
(a foreign one may point here: DNS rebinding). Pages of ours alone may send a change. Other
programs send neither Origin nor Sec-Fetch-Site, and pass.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from socket import gethostname
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, QueryParams
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from circinus.api.http.bodies import read_body
from circinus.api.http.errors import CrossSite, Unauthorised, WrongHost, answer_of
from circinus.api.http.loop_lag import LoopLag
from circinus.api.http.pages import HEADERS, STATIC, page
from circinus.api.settings import is_loopback
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import CircinusError, Violation

LOGIN, LOGOUT = "/login", "/logout"
OPEN = frozenset({"/healthz", "/readyz", LOGIN, LOGOUT})
"""Paths that need no token."""
SESSION_S = 12 * 3600
_LARGEST_FORM = 8192  # bytes of a login
_SCHEME = "bearer"
_ARRIVED = "circinus.arrived"  # when the head of a request was there
_AFTER = "/"  # where a login leads that was not on the way to anywhere
_WRONG_S = 0.3  # that a wrong token takes
_SEE_OTHER = 303
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OURS = frozenset({"same-origin", "none"})  # none: its user typed the address
_DEFAULT_PORTS = (":80", ":443")
_CHARS = 80  # characters of what is refused


def arrival_in(scope: Scope) -> float:
    """Return when a request's head had arrived, on the system's clock."""
    arrived: float = scope[_ARRIVED]
    return arrived


def is_guarded(path: str) -> bool:
    """Return whether a path is for those who show the token, where there is one."""
    return path not in OPEN and not path.startswith(STATIC)


class Authentication:
    """Lets permitted clients through to the service, or answers with a problem document.

    With a token of None clients need none, but only loopback names are served; with one, names of
    this computer and `hosts`. The arrival of a request counts as `lag` earlier than it was read:
    its head waited for a busy event loop.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        lag: LoopLag | None = None,
        hosts: Sequence[str] = (),
        cookie: str = "circinus",
    ) -> None:
        self._app, self._token, self._clock, self._lag = app, token, SystemClock(), lag
        self._hosts, self._names = tuple(hosts), (gethostname().lower(), *hosts)
        self._login = None if token is None else Login(token, cookie, self._clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        if scope["type"] == "http":
            lag_s = 0.0 if self._lag is None else self._lag.seconds()
            scope[_ARRIVED] = self._clock.now() - lag_s
            try:
                response = await self._answered(scope, receive)
            except CircinusError as error:
                response = answer_of(error, scope)
            if response is not None:
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the answer to who may not pass, or logs in or out; None: the request may pass."""
        headers, login = Headers(scope=scope), self._login
        if login is None:
            _require_loopback(headers)
        else:
            _require_host(headers, self._names)
        _require_same_site(scope["method"], headers, self._hosts)
        if login is None:
            return None
        if scope["path"] in (LOGIN, LOGOUT):
            return await login.answer(
                scope, headers, await read_body(headers, receive, _LARGEST_FORM)
            )
        if (
            not is_guarded(scope["path"])
            or self._shows_token(headers)
            or login.has_session(headers)
        ):
            return None
        if (page := login.page_instead(scope, headers)) is not None:
            return page
        raise Unauthorised("Authorization must be 'Bearer' and the token of the service.")

    def _shows_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # As bytes: compare_digest refuses text beyond ASCII, and its time reveals nothing.
        same = hmac.compare_digest(token.strip().encode(), (self._token or "").encode())
        return scheme.lower() == _SCHEME and same


@dataclass(frozen=True, slots=True)
class Login:
    """Issues sessions for a token, and verifies them. Safe to share between threads."""

    token: str
    cookie: str  # its name
    clock: Clock

    def has_session(self, headers: Headers) -> bool:
        """Return whether a request has the cookie of a session that has not expired."""
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        expires, _, mac = ("" if cookie is None else cookie.value).partition(".")
        # As bytes: compare_digest refuses text beyond ASCII.
        same = hmac.compare_digest(mac.encode(), self._mac(expires).encode())
        return same and expires.isdecimal() and self.clock.timestamp() < int(expires)

    def page_instead(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the redirect to the login for a browser that follows a link; None: it is none."""
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
        fields = {name: values[0] for name, values in parse_qs(form.decode("latin-1")).items()}
        wanted = _local(fields.get("next", ""))
        if not hmac.compare_digest(fields.get("token", "").encode(), self.token.encode()):
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


def _require_loopback(headers: Headers) -> None:
    """Raise WrongHost unless a request names this computer by a loopback name."""
    host = headers.get("host", "")
    if not _is_loopback(_name(host)):
        rule = "Host must be a loopback name while the service has no token"
        raise WrongHost(f"{rule}, got {host[:_CHARS]!r}.")


def _require_host(headers: Headers, known: Sequence[str]) -> None:
    """Raise WrongHost unless a request names one of the hosts, an address or a loopback name.

    Of the hosts `*` is any, and `.example.org` any below it.
    """
    host = headers.get("host", "")
    if not _is_known(_name(host).lower(), tuple(known)):
        rule = "Host must be an address, this computer's name or among CIRCINUS_ALLOWED_HOSTS"
        raise WrongHost(f"{rule}, got {host[:_CHARS]!r}.")


def _require_same_site(method: str, headers: Headers, known: Sequence[str]) -> None:
    """Raise CrossSite if a page that is none of ours sends a change.

    Ours are those of the host that the request names, and of `known` hosts: a proxy may have
    changed its name.
    """
    if method in _SAFE:
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in _OURS:
        rule = "must be same-origin or none for what changes anything"
        raise CrossSite(Violation("Sec-Fetch-Site", rule, repr(site[:_CHARS])))
    if origin is not None and not _is_ours(origin, headers.get("host", ""), known):
        raise CrossSite(Violation("Origin", "must be that of the service", repr(origin[:_CHARS])))


def _is_ours(origin: str, host: str, known: Sequence[str]) -> bool:
    try:
        place = urlsplit(origin).netloc.lower()
    except ValueError:  # brackets without an address in them
        return False
    place = _without_default_port(place)
    return bool(place) and (place == _without_default_port(host.lower()) or place in known)


def _without_default_port(host: str) -> str:
    for port in _DEFAULT_PORTS:
        host = host.removesuffix(port)
    return host


def _name(host: str) -> str:
    """Return a host without its port."""
    bare = host.startswith("[") and host.endswith("]")
    return host if bare else host.rpartition(":")[0] or host


_is_loopback = lru_cache(maxsize=64)(is_loopback)


@lru_cache(maxsize=64)
def _is_known(name: str, known: tuple[str, ...]) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        below = any(each[0] == "." and name.endswith(each) for each in known)
        return "*" in known or name in known or below or is_loopback(name)
    return True
