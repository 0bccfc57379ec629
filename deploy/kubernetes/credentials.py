"""Fills in the Secrets of a release that nobody else gives: its token, and workers' certificates.

The chart has them without data, so that what it renders never changes by itself and goes with the
release. What is there stays: only what is missing, broken or nearly over is made, so it may run
any number of times, and at once.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from circinus.deploy.kubernetes.api import Clash, Cluster, path_of
from circinus.deploy.kubernetes.certificates import Pair, Role, authority, lasts, signed
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_TOKEN_BYTES = 32
_TRIES = 5  # of a write that others are faster with: each finds what they made
_LEFT = 1 / 3  # of its days, below which a certificate is made anew

Data = Mapping[str, bytes]
"""What a Secret has, by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialNames:
    """Secrets that are there and are to be filled in; None: nobody needs that one."""

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
    """Make what is missing, workers before the service that calls them; give the Secrets written.

    InvalidInput if a Secret is not there, NotMade if certificates cannot be made; else as
    `Cluster`.
    """
    found = _Secrets(cluster, namespace)
    if names.authority is not None:
        signer = _pair(found.kept(names.authority, _authority))
        for name, role in ((names.workers, Role.WORKERS), (names.service, Role.SERVICE)):
            if name is not None:
                found.kept(name, _Certificate(role=role, by=signer, days=names.days))
    if names.token is not None:
        found.kept(names.token, _token)
    return tuple(found.written)


class _Secrets:
    """The Secrets of a namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.written: list[str] = []
        self._cluster, self._namespace = cluster, namespace

    def kept(self, name: str, better: Callable[[Data], Data | None]) -> Data:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Certificate:
    role: Role
    by: Pair
    days: int

    def __call__(self, data: Data) -> Data | None:
        ours = data.get("ca.crt") == self.by.certificate and data.get("tls.key")
        if ours and lasts(data.get("tls.crt", b""), self.days * _LEFT):
            return None
        made = signed(self.role, self.by, self.days)
        return {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": self.by.certificate}


def _pair(data: Data) -> Pair:
    return Pair(certificate=data["tls.crt"], key=data["tls.key"])
