"""Who may talk to the service.

With a token: whoever shows it. Without: whoever reaches loopback under a loopback
name; a web page that points its own name at 127.0.0.1 (DNS rebinding) is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from api.errors import Unauthorised, WrongHost
from api.settings import is_loopback

GUARDED = ("/v1", "/metrics")
_SCHEME = "bearer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Checks requests before anything else looks at them.

    Attributes:
        token: What must be shown; None: nothing, but only loopback names are served.
    """

    token: str | None = field(default=None, repr=False)

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Return if the request may go on.

        Args:
            path: Of the request.
            headers: Names in lower case.

        Raises:
            WrongHost: If there is no token and the host is not loopback.
            Unauthorised: If the path is guarded and the token is missing or wrong.
        """
        if self.token is None:
            _check_host(headers.get("host", ""))
        elif any(path == own or path.startswith(f"{own}/") for own in GUARDED):
            _check_token(self.token, headers.get("authorization", ""))


def _check_host(host: str) -> None:
    name = host if host.startswith("[") and host.endswith("]") else host.rpartition(":")[0] or host
    if not is_loopback(name):
        raise WrongHost(
            f"Host must be a loopback name while the service has no token, got {host[:80]!r}."
        )


def _check_token(token: str, header: str) -> None:
    scheme, _, shown = header.partition(" ")
    # As bytes: compare_digest refuses text beyond ASCII, and the time says nothing.
    same = hmac.compare_digest(shown.strip().encode(), token.encode())
    if scheme.lower() != _SCHEME or not same:
        raise Unauthorised("Authorization must be 'Bearer' and the token of the service.")
