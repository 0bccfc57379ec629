"""Which names the service answers to, and which pages may make a browser act on it.

A browser sends what it holds along with any page's request, and reaches addresses that the page's
server does not. So a name must be one of ours (a foreign one may point here: DNS rebinding), and
what changes anything must come from a page of ours. Other programs say nothing of pages, and pass.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from circinus.api.http.errors import CrossSite, WrongHost
from circinus.api.settings import is_loopback
from circinus.pipelines.errors import Violation

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OURS = frozenset({"same-origin", "none"})  # none: its user typed the address
_DEFAULT_PORTS = (":80", ":443")
_SHOWN = 80  # characters of what is refused


def require_loopback(headers: Headers) -> None:
    """Raise WrongHost unless a request names this computer by a loopback name."""
    host = headers.get("host", "")
    if not _is_loopback(_name(host)):
        rule = "Host must be a loopback name while the service has no token"
        raise WrongHost(f"{rule}, got {host[:_SHOWN]!r}.")


def require_host(headers: Headers, known: Sequence[str]) -> None:
    """Raise WrongHost unless a request names one of the hosts, an address or a loopback name.

    Of the hosts `*` is any, and `.example.org` any below it.
    """
    host = headers.get("host", "")
    if not _is_known(_name(host).lower(), tuple(known)):
        rule = "Host must be an address, this computer's name or among CIRCINUS_ALLOWED_HOSTS"
        raise WrongHost(f"{rule}, got {host[:_SHOWN]!r}.")


def require_same_site(method: str, headers: Headers, known: Sequence[str]) -> None:
    """Raise CrossSite if a page that is none of ours asks for a change.

    Ours are those of the host that the request names, and of `known` hosts: a proxy may have given
    it another name.
    """
    if method in _SAFE:
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in _OURS:
        rule = "must be same-origin or none for what changes anything"
        raise CrossSite(Violation("Sec-Fetch-Site", rule, repr(site[:_SHOWN])))
    if origin is not None and not _is_ours(origin, headers.get("host", ""), known):
        raise CrossSite(Violation("Origin", "must be that of the service", repr(origin[:_SHOWN])))


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
