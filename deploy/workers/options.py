"""The options of a worker process, and its command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from circinus.deploy.workers.shares import Enforcement, Pace
from circinus.deploy.workers.transport import (
    LARGEST_MESSAGE,
    TlsFiles,
    check_transport,
    split_address,
)
from circinus.pipelines import checks
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, RateLimits
from circinus.pipelines.model.operators import KnobValue

_PACE = ("enforcement", "share", "speed", "devices")
_TLS = ("certificate", "key", "authority")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a worker serves, how fast, and where."""

    pipeline: str  # reference, see `pipelines.registry`
    allow_import: bool = False  # whether `module:attribute` may be used
    operators: tuple[str, ...]  # which ones it serves, at least one
    configuration: Mapping[str, Mapping[str, KnobValue]] = field(default_factory=dict)  # of all
    tier: str  # which it stands for
    pace: Pace = field(default_factory=Pace)  # share and speed that it keeps to
    bind: str  # `unix:PATH`, or with TLS `host:port`; port 0 takes a free one
    tls: TlsFiles | None = None  # needed for a port
    health: str | None = None  # `host:port` that serves it without TLS; None: only `bind` does
    memory_bytes: int | None = None  # most memory beyond the loaded pipeline, `> 0`; None: any
    message_bytes: int = LARGEST_MESSAGE  # of the largest call or answer, `> 0`
    endpoints: tuple[Endpoint, ...] = ()  # that its operators may call
    concurrent: int | None = None  # calls served at once, `>= 1`; None: as its operators take

    def __post_init__(self) -> None:
        some = len(self.operators) > 0
        checks.require(some, "operators", "must have at least one", self.operators)
        checks.positive("memory_bytes", self.memory_bytes)
        checks.positive("message_bytes", self.message_bytes)
        checks.at_least("concurrent", self.concurrent, 1)
        check_transport(self.bind, self.tls)
        if self.health is not None:
            split_address(self.health)

    def arguments(self) -> list[str]:
        """Return the command line that `parse` reads."""
        endpoints = [asdict(each) for each in self.endpoints]
        values = {
            "--pipeline": self.pipeline,
            "--operators": ",".join(self.operators),
            "--configuration": json.dumps(self.configuration),
            "--tier": self.tier,
            "--share": repr(self.pace.share),
            "--speed": repr(self.pace.speed),
            "--enforcement": self.pace.enforcement.value,
            "--devices": self.pace.devices or None,
            "--bind": self.bind,
            "--allow-import": self.allow_import or None,
            "--health": self.health,
            "--memory-bytes": self.memory_bytes,
            "--message-bytes": self.message_bytes,
            "--endpoints": json.dumps(endpoints) if endpoints else None,
            "--concurrent": self.concurrent,
            **{f"--tls-{file}": getattr(self.tls, file, None) for file in _TLS},
        }
        words: list[str] = []
        for option, value in values.items():
            if value is not None:
                words += (option,) if value is True else (option, str(value))
        return words


def parse(arguments: Sequence[str]) -> WorkerOptions:
    """Return the options of a command line; a malformed one ends the process with code 2.

    Raises InvalidInput if a value breaks a rule.
    """
    parser = argparse.ArgumentParser(
        prog="python -m circinus.deploy.workers.server",
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
    add("--devices", action="store_true", help="it has a GPU: what waits for one is work")
    add("--speed", type=float, default=1.0, help="emulated by waiting, in (0, 1]")
    add("--bind", required=True, help="unix:PATH, its user's alone, or with TLS host:port")
    add("--tls-certificate", type=Path, help="PEM file of the server's certificate")
    add("--tls-key", type=Path, help="PEM file of its private key")
    add("--tls-authority", type=Path, help="PEM file of the callers' authority")
    add("--health", help="host:port for health only, in the clear")
    add("--memory-bytes", type=int, help="most memory beyond the loaded pipeline")
    add("--message-bytes", type=int, default=LARGEST_MESSAGE, help="of a call or an answer")
    add(
        "--endpoints",
        type=_endpoints,
        default=(),
        help="that operators may call, as JSON",
    )
    add("--concurrent", type=int, help="calls at a time, instead of what operators take")
    values = vars(parser.parse_args(arguments))
    operators = tuple(values.pop("operators").split(","))
    files = {name: values.pop(f"tls_{name}") for name in _TLS}
    if any(files.values()) and not all(files.values()):
        parser.error("--tls-certificate, --tls-key and --tls-authority go together")
    pace = Pace(**{name: values.pop(name) for name in _PACE})
    tls = TlsFiles(**files) if all(files.values()) else None
    return WorkerOptions(**values, operators=operators, pace=pace, tls=tls)


def _endpoints(text: str) -> tuple[Endpoint, ...]:
    return endpoints_from(json.loads(text))


def endpoints_from(documents: Sequence[Mapping[str, Any]]) -> tuple[Endpoint, ...]:
    """Return the endpoints of which `asdict` made the documents."""
    return tuple(
        Endpoint(
            **{
                **each,
                "price": CallPrice(**each["price"]),
                "limits": RateLimits(**each["limits"]),
            }
        )
        for each in documents
    )
