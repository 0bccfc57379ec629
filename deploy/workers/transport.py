"""Who may talk to a worker: anybody on this computer, else only who shows a certificate."""

from __future__ import annotations

import ipaddress

import grpc

from deploy.tls import TlsFiles
from pipelines.errors import InvalidInput

_LARGEST_MESSAGE = 256 * 2**20
MESSAGE_OPTIONS = (
    ("grpc.max_send_message_length", _LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
)


def split_address(address: str) -> tuple[str, int]:
    """Give host and port of `host:port` or `[v6]:port`.

    Raises:
        InvalidInput: If it is not of that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidInput.of("address", "must be host:port", address)
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Give whether only this computer can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_transport(address: str, tls: TlsFiles | None) -> None:
    """Raise unless the address may be used: without TLS it must be a loopback address.

    Raises:
        InvalidInput: If it may not.
    """
    host, _ = split_address(address)
    if tls is None and not is_loopback(host):
        raise InvalidInput.of(
            "address", "must be a loopback address unless TLS files are given", address
        )


def server_credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    """Give credentials that demand a certificate of the caller."""
    key, certificate, authority = tls.read()
    return grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)


def channel_options(tls: TlsFiles | None) -> tuple[tuple[str, str | int], ...]:
    """Give the options of a channel to a worker."""
    if tls is None or tls.server_name is None:
        return MESSAGE_OPTIONS
    return (*MESSAGE_OPTIONS, ("grpc.ssl_target_name_override", tls.server_name))


def channel_credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    """Give credentials that show our certificate and check the worker's."""
    key, certificate, authority = tls.read()
    return grpc.ssl_channel_credentials(authority, key, certificate)
