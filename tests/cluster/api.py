"""A bare client of a Kubernetes API server, so that tests look at it with other eyes than ours."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

Object = dict[str, Any]
_NOT_FOUND = 404
_POLL_S = 0.1


class Api:
    """JSON in, JSON out, over paths."""

    def __init__(self, url: str, token: str, authority: Path) -> None:
        self._url = url
        self._token = token
        self._authority = authority
        self._client: httpx.Client | None = None

    def is_ready(self) -> bool:
        """Whether it answers that it is ready."""
        try:
            return self._connected().get("/readyz").is_success
        except (httpx.TransportError, OSError):
            return False

    def get(self, path: str, **query: str) -> Object | None:
        """Return an object or a list; None when there is none."""
        reply = self._connected().get(path, params=query)
        if reply.status_code == _NOT_FOUND:
            return None
        return _answer(reply)

    def items(self, path: str, **query: str) -> list[Object]:
        """Return the objects of a list."""
        found: list[Object] = (self.get(path, **query) or {}).get("items", [])
        return found

    def text(self, path: str) -> str:
        """Return what is no JSON, such as a log."""
        reply = self._connected().get(path)
        if reply.is_error:
            raise RuntimeError(f"GET {path}: {reply.text}")
        return reply.text

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """Create an object in a collection."""
        return _answer(self._connected().post(path, json=body))

    def merge(self, path: str, body: Mapping[str, Any]) -> Object:
        """Change parts of an object."""
        header = {"Content-Type": "application/merge-patch+json"}
        return _answer(self._connected().patch(path, json=body, headers=header))

    def delete(self, path: str) -> None:
        """Delete an object; gone already is fine."""
        reply = self._connected().delete(path)
        if reply.status_code != _NOT_FOUND:
            _answer(reply)

    def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> httpx.Client:
        if self._client is None:  # the certificate is there once the server was
            context = ssl.create_default_context(cafile=str(self._authority))
            header = {"Authorization": f"Bearer {self._token}"}
            self._client = httpx.Client(
                base_url=self._url, verify=context, headers=header, timeout=30.0
            )
        return self._client


def eventually(condition: Callable[[], object], what: str, *, timeout_s: float = 60.0) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: If it does not.
    """
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {timeout_s:g} s"
        time.sleep(_POLL_S)


def _answer(reply: httpx.Response) -> Object:
    if reply.is_error:
        raise RuntimeError(f"{reply.request.method} {reply.request.url}: {reply.text}")
    found: Object = reply.json()
    return found
