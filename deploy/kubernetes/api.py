"""A cluster's API server: the way to it, then JSON in, JSON out; one table maps its refusals.

Objects stay the documents that they are: manifests are rendered, compared and applied as such.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import kubernetes.client
import kubernetes.config
import kubernetes.watch
import urllib3
import urllib3.exceptions
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTResponse

from circinus.deploy.kubernetes.names import FIELD_MANAGER
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON has it."""

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT_S, _CONNECT_S = 30.0, 5.0
_RETRY_AFTER_S = 1.0
_TOO_MANY, _SERVER_ERROR = 429, 500
_JSON = "application/json"
PAGE = 500
"""Objects of a page of a list: what kubectl asks for, too."""

VERSIONS = {
    "ConfigMap": "v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "Service": "v1",
    "PodDisruptionBudget": "policy/v1",
    "Deployment": "apps/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
    "Pod": "v1",
    "Secret": "v1",
}
"""API version of every kind that is read or written in a namespace."""


class ClusterRefused(CircinusError):
    """The API server understood and refused; `words` are its own, and may be empty."""

    def __init__(self, doing: str, reason: str, words: str) -> None:
        self.words = words
        super().__init__(f"cannot {doing}: {words or reason}")


class Forbidden(ClusterRefused):
    """The account may not do it: a role is missing."""


class Absent(ClusterRefused):
    """There is no such object, or no such namespace."""


class Clash(ClusterRefused):
    """Another client changed the object first, or made one of the same name."""


class Expired(ClusterRefused):
    """What was watched from is forgotten: list again."""


_KINDS = {403: Forbidden, 404: Absent, 409: Clash, 410: Expired}


def collection_of(kind: str, namespace: str) -> str:
    """Return the path of the objects of a kind of `VERSIONS` in a namespace."""
    version = VERSIONS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = "networkpolicies" if kind == "NetworkPolicy" else f"{kind.lower()}s"
    return f"{root}/namespaces/{namespace}/{plural}"


def path_of(namespace: str, key: str) -> str:
    """Return the path of an object of `Kind/name`."""
    kind, name = key.split("/")
    return f"{collection_of(kind, namespace)}/{name}"


def key_of(document: Object) -> str:
    """Return `Kind/name`."""
    return f"{document['kind']}/{document['metadata']['name']}"


def connect(kubeconfig: Path | None = None) -> kubernetes.client.ApiClient:
    """Return a client of the cluster; InvalidInput if there is no way to one.

    None: by the pod's service account, else by what `KUBECONFIG` names, else by `~/.kube/config`.
    """
    chosen = kubernetes.client.Configuration()
    chosen.retries = False  # the caller decides what may be tried again
    try:
        if kubeconfig is None and _NAMESPACE_FILE.exists():
            kubernetes.config.load_incluster_config(client_configuration=chosen)  # type: ignore[no-untyped-call]
        else:
            path = None if kubeconfig is None else str(kubeconfig)
            kubernetes.config.load_kube_config(path, client_configuration=chosen)  # type: ignore[no-untyped-call]
    except (kubernetes.config.ConfigException, OSError) as error:
        value = str(kubeconfig or "the pod's service account, KUBECONFIG or ~/.kube/config")
        raise InvalidInput.of("kubeconfig", f"must lead to a cluster ({error})", value) from error
    client = kubernetes.client.ApiClient(chosen)
    client.user_agent = FIELD_MANAGER
    return client


def own_namespace(otherwise: str = "default") -> str:
    """Return the namespace of the pod that this runs in; `otherwise` outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return otherwise


class Cluster:
    """An API server. Calls block; safe to share between threads.

    Every method raises ClusterRefused, or a kind of it, for what the server refuses,
    and Unavailable when it cannot answer now.
    """

    def __init__(
        self, client: kubernetes.client.ApiClient, *, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.client = client
        self._timeout_s = timeout_s

    def get(self, path: str) -> Object | None:
        """Return an object; None: there is none."""
        try:
            return self._call("GET", path)
        except Absent:
            return None

    def listed(self, path: str, **query: str) -> Object:
        """Return a list, with the version to watch from."""
        return self._call("GET", path, query)

    def listed_whole(self, path: str, page: int = PAGE, /, **query: str) -> Object:
        """Return a whole list, with the version to watch from, by pages of one state.

        The server keeps a state for some minutes; when it has forgotten it on the way, the list is
        fetched anew and at once, as a further try page by page might be too slow again (so does
        Kubernetes' own client for Go).
        """
        chunk = self.listed(path, **query, limit=str(page))
        items = list(chunk["items"])
        try:
            while rest := chunk["metadata"].get("continue"):
                chunk = self.listed(path, **query, limit=str(page), **{"continue": rest})
                items += chunk["items"]
        except Expired:
            return self.listed(path, **query)
        return {**chunk, "items": items}

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """Create an object in a collection; return it as it was stored."""
        return self._call("POST", path, body=body)

    def replace(self, path: str, body: Mapping[str, Any]) -> Object:
        """Replace an object; with a resource version only if it is still that one."""
        return self._call("PUT", path, body=body)

    def apply(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        force: bool = False,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        """Apply an object on the server's side, as a field manager of ours."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        query |= {"dryRun": "All"} if dry_run else {}
        return self._call("PATCH", path, query, body, content="application/apply-patch+yaml")

    def merge(self, path: str, body: Mapping[str, Any]) -> Object:
        """Merge into an object; with a resource version only if it is still that one."""
        return self._call("PATCH", path, body=body, content="application/merge-patch+json")

    def delete(self, path: str) -> None:
        """Delete an object; gone already is fine."""
        with suppress(Absent):
            self._call("DELETE", path, {"propagationPolicy": "Background"})

    def watch(self, path: str, version: str, *, for_s: int, **query: str) -> Iterator[Object]:
        """Yield what changes in a collection after a version: `{"type", "object"}` each.

        Ends after `for_s` seconds at the latest; what then comes is watched from the last version.
        Expired if that is too old.
        """
        parameters = {
            **query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(for_s),
        }

        def opened(**_: object) -> urllib3.BaseHTTPResponse:
            raw: urllib3.BaseHTTPResponse
            raw = self._response("GET", path, parameters, more_s=for_s).response
            return raw

        # With a time-out it makes one request: the watcher decides how to go on.
        events = kubernetes.watch.Watch().stream(opened, timeout_seconds=for_s)  # type: ignore[no-untyped-call]
        with _translated_errors(f"watch {path}"), closing(events):
            yield from filter(None, events)

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        content: str = _JSON,
    ) -> Object:
        response = self._response(method, path, query or {}, body, content=content)
        with _translated_errors(f"{method} {path}"):
            data = response.read()  # type: ignore[no-untyped-call]
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
        more_s: float = 0.0,
    ) -> RESTResponse:
        doing = f"{method} {path}"
        request = self.client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": _JSON} | ({} if body is None else {"Content-Type": content}),
            body=body,
            auth_settings=["BearerToken"],
        )
        with _translated_errors(doing):
            timeout = (_CONNECT_S, self._timeout_s + more_s)
            response = self.client.call_api(*request, _request_timeout=timeout)
            if response.status < 400:
                return response
            data = response.read()  # type: ignore[no-untyped-call]
        raise _refusal(doing, response.status, _status(data))


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
        message = f"the cluster cannot answer now ({doing}: {words or reason})"
        return Unavailable(message, retry_after_s=pause)
    return _KINDS.get(status, ClusterRefused)(doing, reason, words)


@contextmanager
def _translated_errors(doing: str) -> Iterator[None]:
    """Raise Unavailable for what the connection raises, and a refusal for one of a watch."""
    try:
        yield
    except (urllib3.exceptions.HTTPError, ApiException) as error:
        if isinstance(error, ApiException) and error.status:
            raise _refusal(doing, error.status, {"message": error.reason}) from error
        message = f"the cluster does not answer ({doing}: {error})"
        raise Unavailable(message, retry_after_s=_RETRY_AFTER_S) from error
