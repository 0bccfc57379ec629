"""`circinus doctor`: whether this machine has what Circinus needs."""

from __future__ import annotations

import os
import platform
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

import platformdirs
import typer
from rich.text import Text

from api.cli.command import command, leave
from api.cli.exits import ExitCode
from api.cli.options import DEFAULT_URL, Token, Url, connect
from api.cli.preparing import is_prepared
from api.cli.screen import Screen
from api.rendering import formats
from api.rendering.tables import table
from api.schemas import method_view
from pipelines.errors import CircinusError
from pipelines.registry import Listed, listed, registered

State = Literal["ok", "note", "fail"]
_STYLES = {"ok": "green", "note": "yellow", "fail": "red"}
_OLDEST_PYTHON = (3, 11)


class Check(NamedTuple):
    """What was found of one need.

    Attributes:
        name: The need.
        state: `fail` keeps Circinus from working, `note` is worth knowing.
        detail: In words.
    """

    name: str
    state: State
    detail: str


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "doctor")(doctor)


def doctor(screen: Screen, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Check this machine: Python, packages, folders, cores, shares, ports, pipelines, service."""
    checks = list(_checks(url, token))
    failed = [check for check in checks if check.state == "fail"]
    made = table("", "check", "", "what was found")
    for check in checks:
        made.add_row(check.name, Text(check.state, style=_STYLES[check.state]), Text(check.detail))
    made.title = None
    verdict = f"{len(failed)} problems." if failed else "Ready."
    document: dict[str, object] = {
        "ready": not failed,
        "checks": [check._asdict() for check in checks],
    }
    screen.show(made, verdict, document=document)
    leave(ExitCode.INTERNAL if failed else ExitCode.OK)


def _checks(url: str, token: str | None) -> Iterator[Check]:
    yield _python()
    yield _packages()
    yield _cores()
    yield _folder("cache folder", platformdirs.user_cache_path("circinus"))
    yield from _settings()
    yield _shares()
    yield from _pipelines()
    yield _service(url, token)


def _python() -> Check:
    fits = sys.version_info >= _OLDEST_PYTHON
    return Check("Python", "ok" if fits else "fail", platform.python_version())


def _packages() -> Check:
    try:
        needed = [name for line in requires("circinus") or () if (name := _base_package(line))]
    except PackageNotFoundError:
        return Check("packages", "note", "circinus runs from its source folder, uninstalled")
    missing = []
    for name in needed:
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "fail", f"missing: {', '.join(missing)}")
    return Check("packages", "ok", f"circinus {version('circinus')}, {len(needed)} packages")


def _base_package(requirement: str) -> str:
    """Give the name of a required package; empty for one of an extra."""
    specifier, _, marker = requirement.partition(";")
    name = "".join(c if c.isalnum() or c in "-_." else " " for c in specifier).split()[0]
    return "" if "extra" in marker else name


def _cores() -> Check:
    count = len(os.sched_getaffinity(0))
    detail = f"{count} for this process"
    if count == 1:
        return Check("cores", "note", f"{detail}: planning and serving will slow each other down")
    return Check("cores", "ok", detail)


def _folder(name: str, path: Path) -> Check:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        return Check(name, "fail", f"{path} is not writable ({error.strerror})")
    return Check(name, "ok", str(path))


def _settings() -> Iterator[Check]:
    from api.settings import Settings  # reads the environment: only when asked to

    try:
        settings = Settings()
    except ValueError as error:
        yield Check("settings", "fail", " ".join(str(error).split()))
        return
    prefix = "sqlite:///"
    if settings.database_url.startswith(prefix):
        file = Path(settings.database_url.removeprefix(prefix))
        yield _folder("database", file.parent)._replace(detail=str(file))
    else:
        yield Check("database", "note", "not SQLite: connected to when the service starts")
    yield _port(settings.host, settings.port)
    chosen = method_view(settings.chosen_method)
    yield Check("method", "ok", "; ".join(formats.method(chosen)))


def _port(host: str, port: int) -> Check:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return Check("port", "note", f"{host}:{port} is in use ({error.strerror})")
    return Check("port", "ok", f"{host}:{port} is free")


def _shares() -> Check:
    from deploy.cgroups import available  # tries it out: only when asked to

    found = available()
    if isinstance(found, str):
        return Check("shares", "note", f"enforced by duty cycle, no CPU quotas here: {found}")
    return Check("shares", "ok", f"enforced by CPU quotas (cgroup version {found.version})")


def _pipelines() -> Iterator[Check]:
    found = listed(registered())
    if not found:
        yield Check("pipelines", "fail", "none is registered")
    for one in found:
        yield _pipeline(one)


def _pipeline(one: Listed) -> Check:
    title = f"pipeline {one.name}"
    if one.pipeline is None or one.missing:
        return Check(title, "note", f"not available: {', '.join(map(str, one.missing))}")
    operators = len(one.pipeline.graph.operators)
    if not is_prepared(one.pipeline):
        hint = f"run `circinus prepare {one.name}`, or the first query will take longer"
        return Check(title, "note", f"{operators} operators; {hint}")
    return Check(title, "ok", f"{operators} operators, {one.pipeline.metric}")


def _service(url: str, token: str | None) -> Check:
    try:
        with connect(url, token) as client:
            found = client.health()
    except CircinusError as error:
        return Check("service", "note", str(error))
    return Check("service", "ok", f"version {found.version} at {url}")
