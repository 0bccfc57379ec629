"""Connections of clients in processes that are copies of the one that made them.

A copy has the connections of its parent: two that ask over one are given each other's answers. The
one rule: a client is not used in a process before it has let go of what it had in another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any

_MADE_IN = os.getpid()


class OwnConnections:
    """Which process each client has its connections in; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: dict[int, tuple[Any, int]] = {}  # id of a client -> itself, and its process

    def ensure(self, clients: Iterable[Any]) -> None:
        """Let clients go of the connections of another process; those of this one stay.

        Their ends in the other process stay open: a copy is closed.
        """
        here = os.getpid()
        with self._lock:
            for client in clients:
                _, process = self._process.get(id(client), (client, _MADE_IN))
                self._process[id(client)] = (client, here)  # kept: an id stays one client's
                if process != here:
                    _let_go(client)


def _let_go(client: Any) -> None:  # noqa: ANN401 - of whatever provider
    """Close what a client made by Stainless (OpenAI's, Anthropic's) has open, for httpx to reopen.

    `httpx.Client.close` would end the client itself.
    """
    http = getattr(client, "_client", None)
    transports = [getattr(http, "_transport", None), *getattr(http, "_mounts", {}).values()]
    for transport in transports:
        close = getattr(transport, "close", None)
        if callable(close):  # those that are awaited have none
            close()
