"""A cluster's API server: JSON in, JSON out, over paths; one table maps its refusals.

Objects stay the documents that they are: manifests are rendered, compared and applied as such.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

import kubernetes.client
import urllib3
import urllib3.exceptions
from kubernetes.client.exceptions import ApiException

from deploy.kubernetes.errors import Clash, ClusterRefused, Expired, Forbidden
from pipelines.errors import Unavailable

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON has it."""

FIELD_MANAGER = "circinus"
_TIMEOUT_S = 30.0
_RETRY_AFTER_S = 1.0
_NOT_FOUND, _TOO_MANY, _SERVER_ERROR = 404, 429, 500
_KINDS = {403: Forbidden, 409: Clash, 410: Expired}
_JSON = "application/json"


class Cluster:
    """An API server. Calls block; safe to share between threads.

    Every method raises Forbidden, Clash, Expired or ClusterRefused for what the server refuses,
    and Unavailable when it cannot answer now.
    """

    def __init__(
        self, client: kubernetes.client.ApiClient, *, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.client = client
        self._timeout_s = timeout_s

    def get(self, path: str) -> Object | None:
        """Give an object; None: there is none."""
        try:
            return self._call("GET", path)
        except ClusterRefused as refusal:
            if refusal.status == _NOT_FOUND:
                return None
            raise

    def listed(self, path: str, **query: str) -> Object:
        """Give a list, with the version to watch from."""
        return self._call("GET", path, query)

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """Create an object in a collection; give it as it was stored."""
        return self._call("POST", path, body=body)

    def replace(self, path: str, body: Mapping[str, Any]) -> Object:
        """Replace an object; with a resource version only if it is still that one."""
        return self._call("PUT", path, body=body)

    def apply(
        self, path: str, body: Mapping[str, Any], *, force: bool = False, dry_run: bool = False
    ) -> Object:
        """Apply an object on the server's side, as our field manager."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        return self._call("PATCH", path, query, body, content="application/apply-patch+yaml")

    def delete(self, path: str, *, propagation: str = "Background") -> None:
        """Delete an object; gone already is fine."""
        try:
            self._call("DELETE", path, {"propagationPolicy": propagation})
        except ClusterRefused as refusal:
            if refusal.status != _NOT_FOUND:
                raise

    def watch(self, path: str, version: str, *, for_s: int, **query: str) -> Iterator[Object]:
        """Give what changes in a collection after a version: `{"type", "object"}` each.

        Ends after `for_s` seconds at the latest; what then comes is watched from the last version.

        Raises:
            Expired: If the version is too old.
        """
        asked = {
            **query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(for_s),
        }
        doing = f"watch {path}"
        response = self._response("GET", path, asked, timeout_s=for_s + self._timeout_s)
        try:
            for line in _lines(response, doing):
                event: Object = json.loads(line)
                if event["type"] == "ERROR":
                    raise _refusal(doing, int(event["object"].get("code", 500)), event["object"])
                yield event
        finally:
            response.close()

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        content: str = _JSON,
    ) -> Object:
        response = self._response(
            method, path, query or {}, body, content=content, timeout_s=self._timeout_s
        )
        try:
            data = response.data
        except urllib3.exceptions.HTTPError as error:
            raise _no_answer(f"{method} {path}", error) from error
        answer: Object = json.loads(data) if data else {}
        return answer

    def _response(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        *,
        content: str = _JSON,
        timeout_s: float,
    ) -> urllib3.BaseHTTPResponse:
        doing = f"{method} {path}"
        text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        headers = self._headers(content if body is not None else None)
        try:
            response = self.client.rest_client.pool_manager.request(
                method,
                f"{self.client.configuration.host}{path}{'?' if text else ''}{text}",
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=5.0, read=timeout_s),
                retries=False,
                preload_content=False,
            )
            if response.status < 400:
                return response
            data = response.data
        except (urllib3.exceptions.HTTPError, ApiException) as error:
            raise _no_answer(doing, error) from error
        raise _refusal(doing, response.status, _status(data))

    def _headers(self, content: str | None) -> dict[str, str]:
        found = {"Accept": _JSON, "User-Agent": "circinus"}
        if content is not None:
            found["Content-Type"] = content
        auth = self.client.configuration.auth_settings()
        for setting in auth.values():
            if setting["in"] == "header" and setting["value"]:
                found[str(setting["key"])] = str(setting["value"])
        return found


def _lines(response: urllib3.BaseHTTPResponse, doing: str) -> Iterator[bytes]:
    rest = b""
    try:
        for chunk in response.stream(None):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line)
    except urllib3.exceptions.HTTPError as error:
        raise _no_answer(doing, error) from error


def _status(data: bytes) -> Object:
    try:
        document = json.loads(data)
    except ValueError:  # a proxy in between
        return {"message": data[:200].decode(errors="replace")}
    return document if isinstance(document, dict) else {}


def _refusal(doing: str, status: int, document: Mapping[str, Any]) -> ClusterRefused | Unavailable:
    reason = str(document.get("reason") or f"HTTP {status}")
    words = str(document.get("message") or "")
    if status == _TOO_MANY or status >= _SERVER_ERROR:
        details = document.get("details") or {}
        pause = float(details.get("retryAfterSeconds") or _RETRY_AFTER_S)
        told = f"the cluster cannot answer now ({doing}: {words or reason})"
        return Unavailable(told, retry_after_s=pause)
    return _KINDS.get(status, ClusterRefused)(doing, status, reason, words)


def _no_answer(doing: str, error: Exception) -> Unavailable:
    told = f"the cluster does not answer ({doing}: {error})"
    return Unavailable(told, retry_after_s=_RETRY_AFTER_S)
