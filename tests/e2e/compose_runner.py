"""Runs what a Compose file says as processes of this computer: commands, environment, files.

What needs containers is left out: images, users, limits, networks. Volumes are folders.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.service_process import ROOT, free_port

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?::([-?])([^}]*))?\}")


@dataclass
class RunningFile:
    """The services of a file.

    Attributes:
        document: The file.
        folder: Stands for its volumes and configs.
        given: Environment in which it is used.
    """

    document: Mapping[str, Any]
    folder: Path
    given: Mapping[str, str]
    published: dict[str, int] = field(default_factory=dict)  # service -> port here
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def interpolated(self, text: str) -> str:
        """Return a text with the values of variables, as Compose does."""

        def value(found: re.Match[str]) -> str:
            name, kind, more = found.groups()
            if found[0] == "$$":
                return "$"
            if name in self.given:
                return self.given[name]
            assert kind == "-", f"{name} {more}"
            return str(more)

        return _VARIABLE.sub(value, text)

    def here(self, name: str, text: str) -> str:
        """Return a text with paths of a container as those that stand for them."""
        service = self.document["services"][name]
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")[:2]
            text = text.replace(target, str(self.folder / source))
        for config in service.get("configs", ()):
            text = text.replace(config["target"], str(self.folder / config["source"]))
        return text

    def start(self, name: str) -> None:
        """Start a service."""
        service = self.document["services"][name]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nowhere"}
        for key, value in service.get("environment", {}).items():
            told = self.given.get(key) if value is None else self.interpolated(value)
            if told is not None:
                environment[key] = told
        for port in service.get("ports", ()):
            host, _, inside = self.interpolated(port).split(":")
            assert host == "127.0.0.1"
            assert environment["CIRCINUS_PORT"] == inside
            # Inside of a container nobody else has the port, and the host forwards to it.
            environment["CIRCINUS_PORT"] = str(self.published.setdefault(name, free_port()))
        for config in service.get("configs", ()):
            content = self.interpolated(self.document["configs"][config["source"]]["content"])
            (self.folder / config["source"]).write_text(self.here(name, content))
        words = [*service["entrypoint"], *map(self.interpolated, service["command"])]
        words = [sys.executable if word == "python3" else self.here(name, word) for word in words]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def is_healthy(self, name: str) -> bool:
        """Return what a service's health check says."""
        command, *words = self.document["services"][name]["healthcheck"]["test"]
        assert command == "CMD"
        words = [sys.executable if word == "python3" else self.here(name, word) for word in words]
        if name in self.published:
            words = [word.replace(":8350", f":{self.published[name]}") for word in words]
        return subprocess.run(words, capture_output=True, timeout=30, check=False).returncode == 0


@contextmanager
def composed(text: str, folder: Path, **given: str) -> Iterator[RunningFile]:
    """Run a file until the block is left; the sockets' folder must have a short path."""
    document = yaml.safe_load(text)
    running = RunningFile(document, folder, given)
    for volume in document["volumes"]:
        (folder / volume).mkdir(mode=0o700)
    try:
        for name, service in document["services"].items():
            for other in service.get("depends_on", ()):
                if other not in running.processes:
                    running.start(other)
            if name not in running.processes:
                running.start(name)
        yield running
    finally:
        for process in running.processes.values():
            process.terminate()
        codes = {name: each.wait(20) for name, each in running.processes.items()}
        assert set(codes.values()) == {0}, codes
