"""Certificates of workers and of the service that calls them.

An authority that is made for one release signs one certificate for each role: workers' are good
for answering only, the service's for asking only. All files are PEM.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

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

from circinus.deploy.workers.transport import SERVER_NAME
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError

_AUTHORITY_DAYS = 3650  # what trusts it is not told of another one in time
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
