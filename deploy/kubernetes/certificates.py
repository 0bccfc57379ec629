"""Certificates of workers and of the service that calls them, made by OpenSSL's program.

An authority that is made for one release signs one certificate for each role: workers' are good
for answering only, the service's for asking only. All files are PEM.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from circinus.deploy.workers.transport import SERVER_NAME
from circinus.pipelines.errors import CircinusError

_AUTHORITY_DAYS = 3650  # what trusts it does not hear of another one in time
_DAY_S = 86_400
_LONGEST_S = 60.0
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class NotMade(CircinusError):
    """OpenSSL is missing, or could not make a certificate."""


class Role(StrEnum):
    """Whose certificate; its value is the use that it is good for."""

    WORKERS = "serverAuth"
    SERVICE = "clientAuth"

    @property
    def host(self) -> str:
        """The name that it is for."""
        return SERVER_NAME if self is Role.WORKERS else "circinus-service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its private key."""

    certificate: bytes
    key: bytes


def authority() -> Pair:
    """Return a new authority; NotMade if there is no OpenSSL."""
    extensions = ("basicConstraints = critical, CA:TRUE", "keyUsage = critical, keyCertSign")
    return _made("circinus-workers", extensions, _AUTHORITY_DAYS, None)


def signed(role: Role, by: Pair, days: int) -> Pair:
    """Return a new certificate that is good for `days`, `>= 1`; NotMade if it cannot be made."""
    extensions = (
        "basicConstraints = critical, CA:FALSE",
        "keyUsage = critical, digitalSignature",
        f"extendedKeyUsage = {role.value}",
        f"subjectAltName = DNS:{role.host}",
    )
    return _made(role.host, extensions, days, by)


def lasts(certificate: bytes, days: float) -> bool:
    """Return whether a certificate is good for so many days more; one that is none is not."""
    with TemporaryDirectory() as name:
        file = Path(name, "certificate")
        file.write_bytes(certificate)
        seconds = str(round(days * _DAY_S))
        done = _run("x509", "-in", str(file), "-noout", "-checkend", seconds)
        return done.returncode == 0


def _made(subject: str, extensions: tuple[str, ...], days: int, by: Pair | None) -> Pair:
    with TemporaryDirectory() as name:
        folder = Path(name)
        lines = ["[req]", "prompt = no", "distinguished_name = of", "x509_extensions = extensions"]
        lines += ["[of]", f"CN = {subject}", "[extensions]", "subjectKeyIdentifier = hash"]
        (folder / "request").write_text("\n".join([*lines, *extensions, ""]), encoding="ascii")
        signing: list[str] = []
        if by is not None:
            (folder / "ca").write_bytes(by.certificate)
            (folder / "ca.key").write_bytes(by.key)
            signing = ["-CA", str(folder / "ca"), "-CAkey", str(folder / "ca.key")]
        files = ["-config", str(folder / "request"), "-out", str(folder / "made")]
        files += ["-keyout", str(folder / "made.key")]
        done = _run("req", "-x509", *_CURVE, "-days", str(days), *files, *signing)
        if done.returncode:
            raise NotMade(f"OpenSSL made no certificate of {subject}: {done.stderr.strip()}")
        return Pair(
            certificate=(folder / "made").read_bytes(), key=(folder / "made.key").read_bytes()
        )


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["openssl", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMade(f"certificates are made by the program openssl: {error}") from error
