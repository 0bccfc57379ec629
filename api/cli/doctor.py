"""`circinus doctor`: whether this machine, or a cluster, has what Circinus needs."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Annotated

import platformdirs
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.text import Text

from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.kubernetes.deploying import ClusterOptions
from circinus.api.cli.machine import is_prepared
from circinus.api.cli.options import Token, Url, connect
from circinus.api.operator.definition import definition
from circinus.api.query_file import read_document
from circinus.api.schemas.planning import method_view
from circinus.api.schemas.violations import violations_of
from circinus.api.settings import DEFAULT_URL, Settings
from circinus.api.store.engine import connect as open_database
from circinus.api.store.engine import require_known
from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.store import Store
from circinus.api.text import formats, tables
from circinus.api.text.screen import Screen
from circinus.deploy.kubernetes.fitness.check import Check
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.registry import ListedPipeline, listed, registered

_STYLES = {"ok": "green", "note": "yellow", "fail": "red"}
_OLDEST_PYTHON = (3, 11)


def doctor(
    screen: Screen,
    url: Url = DEFAULT_URL,
    token: Token = None,
    cluster: Annotated[bool, "Check the Kubernetes cluster in place of this machine."] = False,
    values: Annotated[
        Path | None, "Of the chart, as helm takes them: what they need; default: all of it."
    ] = None,
    *,
    way: ClusterOptions,
) -> None:
    """Check this machine: Python, packages, folders, cores, shares, ports, pipelines, service.

    With --cluster: the API server, rights, definition, nodes of tiers, GPUs, DNS, storage.
    """
    if not cluster:
        _show(screen, [*_checks(), _service(url, token)])
        return
    from circinus.deploy.kubernetes.fitness.cluster import look
    from circinus.deploy.kubernetes.fitness.needs import ClusterNeeds, needs_of, runs_as_pod

    installs = not (way.kubeconfig is None and runs_as_pod())
    if values is None:
        needs = ClusterNeeds(namespace=way.namespace, installs=installs)
    else:
        needs = needs_of(read_document(values), namespace=way.namespace, installs=installs)
    _show(screen, [*look(way.server(), needs, definition())])


def _show(screen: Screen, checks: Sequence[Check]) -> None:
    failed = sum(check.state == "fail" for check in checks)
    rows = (
        (one.name, Text(one.state, _STYLES[one.state]), " -> ".join(filter(None, words)))
        for one in checks
        for words in [(one.detail, one.remedy)]
    )
    screen.show(
        tables.table(None, "check", "", "what was found", rows=rows),
        f"{failed} problem{'s' if failed > 1 else ''}." if failed else "Ready.",
        document={"ready": not failed, "checks": checks},
    )
    leave(ExitCode.INTERNAL if failed else ExitCode.OK)


def _checks() -> Iterator[Check]:
    fits = sys.version_info >= _OLDEST_PYTHON
    yield Check("Python", "ok" if fits else "fail", platform.python_version())
    yield _packages()
    count = len(os.sched_getaffinity(0))
    alone = ": planning and serving will slow each other down" if count == 1 else ""
    yield Check("cores", "note" if alone else "ok", f"{count} for this process{alone}")
    yield _folder("cache folder", platformdirs.user_cache_path("circinus"))
    yield from _settings()
    yield _shares()
    pipelines = listed(registered())
    if not pipelines:
        yield Check("pipelines", "fail", "none is registered")
    yield from map(_pipeline, pipelines)


def _packages() -> Check:
    try:
        lines = requires("circinus") or ()
    except PackageNotFoundError:
        return Check("packages", "note", "circinus runs from its source folder, uninstalled")
    needed = [re.split(r"[^\w.-]", line)[0] for line in lines if "extra ==" not in line]
    if missing := [name for name in needed if not any(distributions(name=name))]:
        return Check("packages", "fail", f"missing: {', '.join(missing)}")
    return Check("packages", "ok", f"circinus {version('circinus')}, {len(needed)} packages")


def _folder(name: str, path: Path) -> Check:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        return Check(name, "fail", f"{path} is not writable ({error.strerror})")
    return Check(name, "ok", str(path))


def _settings() -> Iterator[Check]:
    try:
        settings = Settings()
    except ValidationError as error:  # its own words repeat secrets
        violations = violations_of(error, model=Settings)
        yield Check("settings", "fail", " ".join(map(str, violations)))
        return
    except SettingsError as error:
        yield Check("settings", "fail", str(error))
        return
    yield _database(settings.database_url)
    yield _port(settings.host, settings.port)
    parts = formats.method(method_view(settings.chosen_method))
    yield Check("method", "ok", "; ".join(parts))


def _database(url: str) -> Check:
    prefix = "sqlite:///"
    file = Path(url.removeprefix(prefix)) if url.startswith(prefix) else None
    if file is not None and not file.exists():
        check = _folder("database", file.parent)
        return check if check.state == "fail" else replace(check, detail=f"{file}, not made yet")
    try:
        engine = open_database(url)
        with closing(Store(engine)):
            require_known(engine)
    except DatabaseFailed as error:
        return Check("database", "fail", error.whole)
    except CircinusError as error:
        return Check("database", "fail", str(error))
    return Check("database", "ok", engine.url.render_as_string() if file is None else str(file))


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
    from circinus.deploy.local.cgroups import available  # tries it out: only in this command

    support = available()
    if isinstance(support, str):
        return Check("shares", "note", f"enforced by duty cycle, no CPU quotas here: {support}")
    return Check("shares", "ok", f"enforced by CPU quotas (cgroup version {support.version})")


def _pipeline(one: ListedPipeline) -> Check:
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
            health = client.health()
    except CircinusError as error:
        return Check("service", "note", str(error))
    return Check("service", "ok", f"version {health.version} at {url}")
