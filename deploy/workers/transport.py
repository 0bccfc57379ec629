"""Who may talk to a worker: anybody on this computer, else only who shows a certificate."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from circinus.pipelines.errors import InvalidInput

SERVER_NAME = "circinus-worker"
"""On the certificates of workers that are called by addresses which nobody knows beforehand."""

OPERATOR_KEY = "circinus-operator"
FAULTS_KEY = "circinus-faults-bin"
"""What is wrong with the pipeline's input: an encoded list of [field, rule, value]."""
"""Trailing metadata that names the operator that failed."""

_LARGEST_MESSAGE = 256 * 2**20
MESSAGE_OPTIONS = (
    ("grpc.max_send_message_length", _LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of one side; both sides show certificates that the other's authority signed."""

    certificate: Path  # our own
    key: Path  # its private key
    authority: Path  # certificate authority of the other side
    server_name: str | None = None  # on servers' certificates; None: their addresses are

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Give key, certificate and authority; InvalidInput if a file cannot be read."""
        key, certificate, authority = self.key, self.certificate, self.authority
        try:
            return key.read_bytes(), certificate.read_bytes(), authority.read_bytes()
        except OSError as error:
            raise InvalidInput.of("tls", "must name readable PEM files", str(error)) from error


def files_in(folder: Path) -> TlsFiles:
    """Give the certificates of a folder, named as in a Secret that is mounted there."""
    certificate, key, authority = (folder / name for name in ("tls.crt", "tls.key", "ca.crt"))
    return TlsFiles(certificate=certificate, key=key, authority=authority, server_name=SERVER_NAME)


def split_address(address: str) -> tuple[str, int]:
    """Give host and port of `host:port` or `[v6]:port`; InvalidInput if it is not of that form."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidInput.of("address", "must be host:port", address)
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Give whether only this computer can reach the host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_transport(address: str, tls: TlsFiles | None) -> None:
    """Raise InvalidInput unless the address may be used: without TLS only a loopback one."""
    if tls is None and not is_loopback(split_address(address)[0]):
        rule = "must be a loopback address unless TLS files are given"
        raise InvalidInput.of("address", rule, address)


def server_credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    """Give credentials that demand a certificate of the caller."""
    key, certificate, authority = tls.read()
    return grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)


def open_channel(address: str, tls: TlsFiles | None) -> grpc.aio.Channel:
    """Give a channel to a worker; with TLS it shows our certificate and checks the worker's."""
    check_transport(address, tls)
    # A lost local worker is not worth waiting for: it is started again elsewhere.
    options: list[tuple[str, str | int]] = [*MESSAGE_OPTIONS, ("grpc.enable_retries", 0)]
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    key, certificate, authority = tls.read()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.aio.secure_channel(address, credentials, options=options)
