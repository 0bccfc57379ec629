"""Where operators connect to without having declared it.

An operator that calls a hosted model undeclared would be planned as free. One audit hook
of the interpreter sees every host name that is looked up and every socket that is
connected, whichever library does it, before the first byte leaves. The one rule: an operator that
declares neither calls nor `network` reaches no model that may cost money.

| where it connects to | |
| --- | --- |
| a provider that genai-prices lists, or the base URL of a model | refused, which ends planning |
| anything else | noted where it is measured, logged where it serves |

The hook sees nothing of programs that an operator starts, of sockets of libraries in C
(gRPC, libcurl), and of connections that were open before.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from ipaddress import ip_address
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.price_list import is_provider, provider_of
from circinus.pipelines.model.profile import Unplannable

_HOW = (
    "declare calls and tell what they use (report_usage), or make the chat model outside of "
    "functions; network=True declares what costs nothing"
)
_BASE_URL = re.compile(r"([A-Z0-9]+)(_[A-Z0-9_]+)?_(BASE_URL|API_BASE|API_URL|ENDPOINT)")
"""Environment variables in which clients of hosted models look for their address."""
_PORTS = {"http": 80, "https": 443}

_log = logging.getLogger(__name__)


class Watch:
    """One run of an operator, as a context manager; at its end Unplannable if it was refused.

    A refusal is no Exception where it is raised: clients would try again, and functions go on
    with something else.
    """

    __slots__ = ("_looked_up", "_noted", "_refusal", "_token", "declared", "is_over", "operator")

    def __init__(self, operator: str, *, declared: bool) -> None:
        self.operator, self.declared = operator, declared
        self._noted = _noted.get()
        self._refusal: InvalidInput | None = None
        self._token: Token[Watch | None] | None = None
        self._looked_up = False  # whether it knows numbers by their names
        self.is_over = False

    def __enter__(self) -> None:
        _install()
        self._token = _current.set(self)
        _active.append(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self.is_over = True
        _active.remove(self)
        if self._token is not None:
            _current.reset(self._token)
        if self._refusal is not None:
            raise self._refusal from error

    def connect(self, at: Address) -> None:
        """Refuse or note a connection that is about to be made."""
        if self.declared:
            return
        if (model := _model_at(at)) is not None:
            rule = f"must name what it calls there ({model}): {_HOW}"
            self._refusal = Unplannable.of(f"operator {self.operator}.calls", rule, str(at))
            raise _Refused(str(self._refusal))
        if at.is_number and self._looked_up:
            return
        self._looked_up |= not at.is_number
        if self._noted is not None:
            self._noted[str(at)] = None
        elif (self.operator, at) not in _logged:
            _logged.add((self.operator, at))
            _log.warning("undeclared_connection operator=%s to=%s", self.operator, at)


class Address(NamedTuple):
    """Where an operator connects to."""

    host: str  # a name in small letters, or a number; `localhost` for all of the loopback
    port: int | None  # None: not known

    @classmethod
    def of(cls, host: str | bytes, port: object) -> Address:
        """Return it for a host and a port as sockets take them."""
        text = host.decode("idna") if isinstance(host, bytes) else host
        name = text.partition("%")[0].rstrip(".").lower()
        number = str(_PORTS.get(str(port), port))
        at = cls(name, int(number) if number.isdigit() else None)
        return (
            at._replace(host="localhost") if at.is_number and ip_address(name).is_loopback else at
        )

    @classmethod
    def of_url(cls, url: str) -> Address | None:
        """Return it for the address of a service; None: it is none."""
        try:
            parts = urlsplit(url)
            port = parts.port or parts.scheme
        except ValueError:
            return None
        return cls.of(parts.hostname, port) if parts.hostname else None

    @property
    def is_number(self) -> bool:
        """Whether it is no name."""
        try:
            return bool(ip_address(self.host))
        except ValueError:
            return False

    def __str__(self) -> str:
        """Return `host:port`, without the ports of the web."""
        plain = self.port is None or self.port in _PORTS.values()
        return self.host if plain else f"{self.host}:{self.port}"


class _Refused(BaseException):
    """A connection was not made."""


_current: ContextVar[Watch | None] = ContextVar("watch", default=None)
_noted: ContextVar[dict[str, None] | None] = ContextVar("noted", default=None)
_active: list[Watch] = []  # runs of this process, the newest last
_models: dict[Address, str] = {}  # base URLs of the models of chains that this process has read
_logged: set[tuple[str, Address]] = set()
_installed = threading.Event()
_installing = threading.Lock()
_operators_alone = threading.Event()


@contextmanager
def measured() -> Iterator[Mapping[str, None]]:
    """Record inside where operators connect undeclared, instead of logging it.

    The caller reports it with the figures.
    """
    noted: dict[str, None] = {}
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def is_measured() -> bool:
    """Return whether what runs now is measured, see `measured`."""
    return _noted.get() is not None


def remark_on(operator: str, host: str) -> str:
    """Return the remark on an operator that connects to a host undeclared."""
    return (
        f"{operator} connects to {host} and declares neither calls nor network=True: what that "
        "costs is not in the figures"
    )


def add_model(url: str, name: str) -> None:
    """Remember that a model is called at a base URL, for all operators of this process."""
    if (at := Address.of_url(url)) is not None:
        _models[at] = f"where {name} is called"


def runs_operators_alone() -> None:
    """Take every thread of this process for an operator's: nothing else of it connects."""
    _operators_alone.set()


def _install() -> None:
    """Add the audit hook for connections, once: a hook cannot be removed again."""
    if not _installed.is_set():
        with _installing:
            if not _installed.is_set():
                sys.addaudithook(_on_audit_event)
                _installed.set()


def _on_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo":
        _connects(arguments[0], arguments[1])
    elif event == "socket.connect":
        sock, to = arguments
        if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
            _connects(to[0], to[1])


def _connects(host: object, port: object) -> None:
    if isinstance(host, str | bytes) and host and (run := _running()) is not None:
        run.connect(Address.of(host, port))


def _running() -> Watch | None:
    """Return the run that this thread works for; None: for none, so that it is the runtime's own.

    A thread or a loop may outlive the run that started it, and work for the next one. Whose run
    a thread works for that has none of its own is not known where there are several.
    """
    run = _current.get()
    if run is None and not _operators_alone.is_set():
        return None
    if (run is None or run.is_over) and _active:
        return next((one for one in _active if one.declared), _active[-1])
    return run


def _model_at(at: Address) -> str | None:
    """Return what is called at an address, in words; None: no model that is known."""
    if at in _models:
        return _models[at]
    for name, url in os.environ.items():  # noqa: TID251 - where clients look, when they connect
        named = _BASE_URL.fullmatch(name)
        if named and Address.of_url(url) == at and is_provider(named[1]):
            return f"where {name} points"
    provider = None if at.is_number or at.host == "localhost" else provider_of(at.host)
    return None if provider is None else f"models of {provider}"
