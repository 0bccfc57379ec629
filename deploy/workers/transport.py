"""Who may talk to a worker: its own user over a Unix socket, else only holders of a certificate.

A port of loopback is open to every user of the computer, and who calls a worker runs operators. So
without TLS there is no port, and a socket is its user's alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput

SERVER_NAME = "circinus-worker"
"""On the certificates of workers that are called by addresses that are not known beforehand."""

OPERATOR_KEY = "circinus-operator"
"""Trailing metadata that names the operator that failed."""
CALL_KEY = "circinus-call-bin"
"""Trailing metadata of a call to endpoints that failed: a `FailedCall`."""
FAULTS_KEY = "circinus-faults-bin"
"""What is wrong with the pipeline's input: an encoded list of [field, rule, value]."""
CAUSE_KEY = "circinus-cause"
"""Why a worker has to be replaced, in an answer about its health; left out: it need not be."""

LARGEST_MESSAGE = 64 * 2**20
"""Bytes of a call or an answer, unless the operator of the service sets another limit."""
_BESIDE = 2**16  # bytes that gRPC may count besides: we report who is over the limit

_log = logging.getLogger(__name__)
_UNIX = "unix:"
_LONGEST_SOCKET = 107  # bytes of its path


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of one side; both sides show certificates that the other's authority signed."""

    certificate: Path  # our own
    key: Path  # its private key
    authority: Path  # certificate authority of the other side
    server_name: str | None = None  # on servers' certificates; None: their addresses are

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Return key, certificate and authority; InvalidInput if a file cannot be read."""
        key, certificate, authority = self.key, self.certificate, self.authority
        try:
            return key.read_bytes(), certificate.read_bytes(), authority.read_bytes()
        except OSError as error:
            raise InvalidInput.of("tls", "must name readable PEM files", str(error)) from error

    def version(self) -> tuple[int, int] | None:
        """Return what differs once the files were replaced; None: they cannot be read now.

        Only the certificate is looked at: a mounted Secret is replaced as a whole.
        """
        try:
            status = self.certificate.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns


def files_in(folder: Path) -> TlsFiles:
    """Return the certificates of a folder, named as in a Secret that is mounted there."""
    certificate, key, authority = (folder / name for name in ("tls.crt", "tls.key", "ca.crt"))
    return TlsFiles(certificate=certificate, key=key, authority=authority, server_name=SERVER_NAME)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`; InvalidInput for another form."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidInput.of("address", "must be host:port", address)
    return host.strip("[]"), int(port)


def address_of(socket: Path) -> str:
    """Return the address of a Unix socket; InvalidInput if its path is longer than they can be."""
    longest = len(os.fsencode(socket.absolute()))
    rule = f"must be the path of a socket, of at most {_LONGEST_SOCKET} bytes"
    checks.require(longest <= _LONGEST_SOCKET, "address", rule, str(socket))
    return f"{_UNIX}{socket.absolute()}"


def socket_of(address: str) -> Path | None:
    """Return the Unix socket of an address; None: it is that of a port."""
    return Path(address.removeprefix(_UNIX)) if address.startswith(_UNIX) else None


def check_transport(address: str, tls: TlsFiles | None) -> None:
    """Raise InvalidInput unless the address may be used: without TLS only a Unix socket."""
    if (socket := socket_of(address)) is not None:
        address_of(socket)
        return
    split_address(address)
    if tls is None:
        rule = "must be a Unix socket, unix:PATH, unless TLS files are given"
        raise InvalidInput.of("address", rule, address)


def too_large(what: str, largest: int, size: int) -> str:
    """Return the sentence for what is too large to be sent."""
    rule = f"must have at most {largest} bytes (CIRCINUS_MESSAGE_LIMIT_BYTES)"
    return f"{what} {rule}, got {size}."


def message_options(largest: int) -> list[tuple[str, str | int]]:
    """Return the gRPC options for the largest message in bytes."""
    ways = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
    return [(way, largest + _BESIDE) for way in ways]


def server_credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    """Return credentials that demand the caller's certificate; changed files are read again.

    InvalidInput if they cannot be read now. What cannot be read later leaves things as they are.
    """
    return grpc.dynamic_ssl_server_credentials(
        _for_server(tls),
        _changed(tls),  # type: ignore[arg-type]  # None is no change: its stubs do not know
        require_client_authentication=True,
    )


def _for_server(tls: TlsFiles) -> grpc.ServerCertificateConfiguration:
    key, certificate, authority = tls.read()
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)


def _changed(tls: TlsFiles) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """Return what gRPC calls before every handshake: what to use from now on; None: as before."""
    known = tls.version()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal known
        version = tls.version()
        if version in (known, None):
            return None
        try:
            configuration = _for_server(tls)
        except InvalidInput as error:
            _log.warning("certificates_unreadable reason=%s", error)
            return None
        known = version
        _log.info("certificates_read_again certificate=%s", tls.certificate)
        return configuration

    return fetch


def open_channel(
    address: str, tls: TlsFiles | None, largest: int = LARGEST_MESSAGE
) -> grpc.aio.Channel:
    """Return a channel to a worker; with TLS it shows our certificate and checks the worker's."""
    check_transport(address, tls)
    # A lost local worker is not worth waiting for: it is started again elsewhere.
    options = [*message_options(largest), ("grpc.enable_retries", 0)]
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    key, certificate, authority = tls.read()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.aio.secure_channel(address, credentials, options=options)
