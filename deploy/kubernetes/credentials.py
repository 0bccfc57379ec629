"""Fills in the Secrets of a release that users leave out: its token, and workers' certificates.

The chart has them without data, so that what it renders never changes by itself. Only what is
missing, broken or nearly over is made, so it may run any number of times, and at once. A release
has an authority of its own, which signs a certificate for each role. All files are PEM.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from circinus.deploy.kubernetes.api import Clash, Cluster, path_of
from circinus.deploy.workers.transport import SERVER_NAME
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError, InvalidInput

_AUTHORITY_DAYS = 3650  # what trusts it does not learn of another one in time
_EARLIER = timedelta(minutes=5)  # clocks of nodes differ


class NotMade(CircinusError):
    """A certificate could not be made."""


class Role(Enum):
    """Whose certificate; its value is the use that it is good for."""

    WORKERS = ExtendedKeyUsageOID.SERVER_AUTH
    SERVICE = ExtendedKeyUsageOID.CLIENT_AUTH

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
    """Return a new authority."""
    extensions = (x509.BasicConstraints(ca=True, path_length=None), _usage(signs=True))
    return _made("circinus-workers", [(each, True) for each in extensions], _AUTHORITY_DAYS, None)


def signed(role: Role, by: Pair, days: int) -> Pair:
    """Return a new certificate that is good for `days`, `>= 1`; NotMade if `by` cannot sign."""
    extensions = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage([role.value]), False),
        (x509.SubjectAlternativeName([x509.DNSName(role.host)]), False),
    ]
    return _made(role.host, extensions, days, by)


def lasts(certificate: bytes, days: float) -> bool:
    """Return whether a certificate is good for so many days more; one that is none is not."""
    try:
        ends = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return False
    return ends > _now() + timedelta(days=days)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().timestamp(), UTC)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _made(
    subject: str, extensions: list[tuple[x509.ExtensionType, bool]], days: int, by: Pair | None
) -> Pair:
    """Return a certificate of a new key; `extensions` with whether each is critical."""
    key, now = ec.generate_private_key(ec.SECP256R1()), _now()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    issuer, signer = name, key
    if by is not None:
        try:
            issuer = x509.load_pem_x509_certificate(by.certificate).subject
            loaded = load_pem_private_key(by.key, password=None)
        except ValueError as error:
            raise NotMade(f"no certificate of {subject} can be signed: {error}") from error
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise NotMade(f"no certificate of {subject} can be signed: it takes a key of a curve")
        signer = loaded
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _EARLIER,
        not_valid_after=now + timedelta(days=days),
    )
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    for extension, critical in [*extensions, (own, False), (above, False)]:
        builder = builder.add_extension(extension, critical=critical)
    return Pair(
        certificate=builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_TOKEN_BYTES = 32
_TRIES = 5  # of a write that others are faster with: each finds what they made
_LEFT = 1 / 3  # of its days, below which a certificate is made anew

Data = Mapping[str, bytes]
"""What a Secret has, by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialNames:
    """Secrets that are there and are to be filled in; None: that one is not needed."""

    token: str | None = None  # key `token`
    authority: str | None = None  # that signs the others; `tls.crt`, `tls.key`
    workers: str | None = None  # `tls.crt`, `tls.key`, `ca.crt`
    service: str | None = None  # the same
    days: int = 365  # that certificates are good for, `>= 1`

    def __post_init__(self) -> None:
        checks.require(self.days >= 1, "days", "must be >= 1", self.days)
        for field in ("token", "authority", "workers", "service"):
            name = getattr(self, field)
            fits = name is None or _NAME.fullmatch(name) is not None
            checks.require(fits, field, "must be the name of a Secret", name)
        alone = self.authority is None and bool(self.workers or self.service)
        checks.require(not alone, "authority", "must be given with workers or service", None)


def fill_in(cluster: Cluster, namespace: str, names: CredentialNames) -> tuple[str, ...]:
    """Make what is missing, workers before the service that calls them; return Secrets written.

    InvalidInput if a Secret is not there, NotMade if certificates cannot be made; else as
    `Cluster`.
    """
    target = _Secrets(cluster, namespace)
    if names.authority is not None:
        data = target.filled(names.authority, _authority)
        signer = Pair(certificate=data["tls.crt"], key=data["tls.key"])
        for name, role in ((names.workers, Role.WORKERS), (names.service, Role.SERVICE)):
            if name is not None:
                target.filled(name, partial(_certificate, role=role, by=signer, days=names.days))
    if names.token is not None:
        target.filled(names.token, _token)
    return tuple(target.written)


class _Secrets:
    """The Secrets of a namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.written: list[str] = []
        self._cluster, self._namespace = cluster, namespace

    def filled(self, name: str, better: Callable[[Data], Data | None]) -> Data:
        """Return what a Secret has, made better if that is needed."""
        path = path_of(self._namespace, f"Secret/{name}")
        for left in reversed(range(_TRIES)):
            secret = self._cluster.get(path)
            if secret is None:
                rule = f"must be there in namespace {self._namespace}: the chart brings it"
                raise InvalidInput.of("secret", rule, name)
            there = secret.get("data") or {}
            data = {key: b64decode(value) for key, value in there.items()}
            made = better(data)
            if made is None:
                return data
            encoded = {key: b64encode(value).decode() for key, value in made.items()}
            try:
                self._cluster.replace(path, {**secret, "data": {**there, **encoded}})
            except Clash:
                if not left:
                    raise
                continue
            self.written.append(name)
            return made
        raise AssertionError("the last try returned or raised")  # pragma: no cover


def _token(data: Data) -> Data | None:
    if data.get("token", b"").strip():
        return None
    return {"token": secrets.token_urlsafe(_TOKEN_BYTES).encode()}


def _authority(data: Data) -> Data | None:
    if data.get("tls.key") and lasts(data.get("tls.crt", b""), 0):
        return None
    made = authority()
    return {"tls.crt": made.certificate, "tls.key": made.key}


def _certificate(data: Data, *, role: Role, by: Pair, days: int) -> Data | None:
    ours = data.get("ca.crt") == by.certificate and data.get("tls.key")
    if ours and lasts(data.get("tls.crt", b""), days * _LEFT):
        return None
    made = signed(role, by, days)
    return {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": by.certificate}
