"""A proxy before an API server, with manners as told: it refuses, loses answers or is silent."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import httpx
from kubernetes.client import ApiClient, Configuration

from circinus.deploy.kubernetes.api import Cluster as Connected
from circinus.deploy.kubernetes.api import connect
from tests.cluster.cluster import Cluster

_HANDED_ON = ("Authorization", "Content-Type", "Accept")
_BUSY = {"kind": "Status", "reason": "ServiceUnavailable", "message": "too much to do"}
_STALE = {"kind": "Status", "reason": "Expired", "message": "the continue token is too old"}


class Manner(Enum):
    """What becomes of a request."""

    POLITE = "it is answered"
    BUSY = "503, and nothing is done"
    FORGETFUL = "it is done, and the answer is lost; a watch is cut after its first event"
    SILENT = "nothing, and no answer"
    STALE = "410 to what goes on with a list, else it is answered"


Manners = Callable[[int, str], Manner]
"""Is given the number of the request, from 1, and its method."""


@contextmanager
def rude(cluster: Cluster, manners: Manners, *, timeout_s: float = 30.0) -> Iterator[Connected]:
    """Return a client of a cluster whose API server has these manners."""
    way = connect(cluster.kubeconfig).configuration
    server = _Server(way.host, way.ssl_ca_cert, manners)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        configuration = Configuration(host=f"http://127.0.0.1:{server.server_port}")
        configuration.retries = way.retries
        configuration.api_key = dict(way.api_key)
        configuration.api_key_prefix = dict(way.api_key_prefix)
        client = ApiClient(configuration)
        yield Connected(client, timeout_s=timeout_s)
        client.rest_client.pool_manager.clear()
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
        server.upstream.close()


class _Server(ThreadingHTTPServer):
    def __init__(self, url: str, authority: str | None, manners: Manners) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = httpx.Client(
            base_url=url, verify=ssl.create_default_context(cafile=authority), timeout=60.0
        )
        self.manners = manners
        self.numbers = itertools.count(1)
        self.over = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        self.close_connection = True
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        manner = self.server.manners(next(self.server.numbers), self.command)
        with suppress(OSError, httpx.HTTPError):  # whoever asked may be gone
            if manner is Manner.SILENT:
                self.server.over.wait(60.0)
            elif manner is Manner.BUSY:
                self._answer(503, json.dumps(_BUSY).encode())
            elif manner is Manner.STALE and "continue" in parse_qs(urlsplit(self.path).query):
                self._answer(410, json.dumps(_STALE).encode())
            elif "watch" in parse_qs(urlsplit(self.path).query):
                self._hand_on_watch(lose=manner is Manner.FORGETFUL)
            else:
                self._hand_on(body, lose=manner is Manner.FORGETFUL)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def _hand_on(self, body: bytes, *, lose: bool) -> None:
        reply = self.server.upstream.request(
            self.command, self.path, content=body, headers=self._told()
        )
        if lose:
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._answer(reply.status_code, reply.content)

    def _hand_on_watch(self, *, lose: bool) -> None:
        with self.server.upstream.stream("GET", self.path, headers=self._told()) as reply:
            self.send_response(reply.status_code)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in reply.iter_raw():
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                if lose or self.server.over.is_set():
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
            self.wfile.write(b"0\r\n\r\n")

    def _told(self) -> dict[str, str]:
        return {name: value for name, value in self.headers.items() if name.title() in _HANDED_ON}

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
