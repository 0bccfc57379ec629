"""The certificates of one side of a connection; the values only, no gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import InvalidInput

SERVER_NAME = "circinus-worker"
"""On the certificates of workers that are called by addresses which nobody knows beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of one side; both sides show certificates that the other's authority signed.

    Attributes:
        certificate: Our own.
        key: Its private key.
        authority: Certificate authority of the other side.
        server_name: Name on the certificates of servers that are called by address, as pods are;
            None: their addresses are on them.
    """

    certificate: Path
    key: Path
    authority: Path
    server_name: str | None = None

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Give key, certificate and authority.

        Raises:
            InvalidInput: If a file cannot be read.
        """
        try:
            return (
                self.key.read_bytes(),
                self.certificate.read_bytes(),
                self.authority.read_bytes(),
            )
        except OSError as error:
            raise InvalidInput.of("tls", "must name readable PEM files", str(error)) from error


def files_in(folder: Path) -> TlsFiles:
    """Give the certificates of a folder, named as in a Secret that is mounted there."""
    return TlsFiles(
        certificate=folder / "tls.crt",
        key=folder / "tls.key",
        authority=folder / "ca.crt",
        server_name=SERVER_NAME,
    )
