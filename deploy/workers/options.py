"""What a worker process is told on its command line, and back."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.shares import Enforcement, Pace
from deploy.tls import TlsFiles
from deploy.workers.transport import check_transport, split_address
from pipelines import checks
from pipelines.operators import KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a worker serves, how fast, and where.

    Attributes:
        pipeline: Reference, see `pipelines.registry`.
        allow_import: Whether `module:attribute` may be used.
        operators: Which ones it serves, at least one.
        configuration: {operator: {knob: value}} of the whole pipeline.
        tier: Which it stands for.
        pace: Share and speed that it keeps to.
        bind: `host:port`; port 0 takes a free one.
        tls: Needed for any other than a loopback address.
        health: `host:port` that tells health only, in the clear, for probes that cannot speak
            TLS; None: only `bind` tells.
        parent: Process with whose end it ends too; None: it lives on.
        memory_bytes: Most memory beyond the loaded pipeline, `> 0`; None: any.
    """

    pipeline: str
    allow_import: bool = False
    operators: tuple[str, ...]
    configuration: Mapping[str, Mapping[str, KnobValue]] = field(default_factory=dict)
    tier: str
    pace: Pace = field(default_factory=Pace)
    bind: str = "127.0.0.1:0"
    tls: TlsFiles | None = None
    health: str | None = None
    parent: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        checks.require(
            len(self.operators) > 0, "operators", "must have at least one", self.operators
        )
        if self.memory_bytes is not None:
            checks.positive("memory_bytes", self.memory_bytes)
        check_transport(self.bind, self.tls)
        if self.health is not None:
            split_address(self.health)

    def arguments(self) -> list[str]:
        """Give the command line that `parse` reads."""
        words = ["--pipeline", self.pipeline, "--operators", ",".join(self.operators)]
        words += ["--configuration", json.dumps(self.configuration), "--tier", self.tier]
        words += ["--share", repr(self.pace.share), "--speed", repr(self.pace.speed)]
        words += ["--enforcement", self.pace.enforcement.value, "--bind", self.bind]
        if self.allow_import:
            words.append("--allow-import")
        if self.parent is not None:
            words += ["--parent", str(self.parent)]
        if self.health is not None:
            words += ["--health", self.health]
        if self.memory_bytes is not None:
            words += ["--memory-bytes", str(self.memory_bytes)]
        if self.tls is not None:
            words += ["--tls-certificate", str(self.tls.certificate)]
            words += ["--tls-key", str(self.tls.key)]
            words += ["--tls-authority", str(self.tls.authority)]
        return words


def parse(arguments: Sequence[str]) -> WorkerOptions:
    """Give the options of a command line; a malformed one ends the process with code 2.

    Raises:
        InvalidInput: If a value breaks a rule.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    files = (given.tls_certificate, given.tls_key, given.tls_authority)
    if any(files) and not all(files):
        parser.error("--tls-certificate, --tls-key and --tls-authority go together")
    return WorkerOptions(
        pipeline=given.pipeline,
        allow_import=given.allow_import,
        operators=tuple(given.operators.split(",")),
        configuration=given.configuration,
        tier=given.tier,
        pace=Pace(enforcement=given.enforcement, share=given.share, speed=given.speed),
        bind=given.bind,
        tls=TlsFiles(certificate=files[0], key=files[1], authority=files[2])
        if all(files)
        else None,
        health=given.health,
        parent=given.parent,
        memory_bytes=given.memory_bytes,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.workers.server",
        description="Serve operators of a pipeline over gRPC.",
    )
    add = parser.add_argument
    add("--pipeline", required=True, help="registered name, or module:attribute")
    add("--allow-import", action="store_true", help="permit module:attribute")
    add("--operators", required=True, help="names, separated by commas")
    add("--configuration", type=json.loads, default={}, help="{operator: {knob: value}}")
    add("--tier", required=True, help="the tier it stands for")
    add("--share", type=float, default=1.0, help="of one core, in (0, 1]")
    add("--enforcement", type=Enforcement, default=Enforcement.NONE, help="of the share")
    add("--speed", type=float, default=1.0, help="emulated by waiting, in (0, 1]")
    add("--bind", default="127.0.0.1:0", help="host:port; TLS unless loopback")
    add("--tls-certificate", type=Path, help="PEM file of the server's certificate")
    add("--tls-key", type=Path, help="PEM file of its private key")
    add("--tls-authority", type=Path, help="PEM file of the callers' authority")
    add("--health", help="host:port for health only, in the clear")
    add("--parent", type=int, help="pid of the process with which to end")
    add("--memory-bytes", type=int, help="most memory beyond the loaded pipeline")
    return parser
