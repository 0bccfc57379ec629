"""The Compose file of a plan: its workers, and what answers requests, on one host. Pure.

A service for each instance: replicas would share a command, and with it a socket. Workers listen
at Unix sockets in a volume that lives in memory and is their user's alone, so nothing of theirs is
at a port; requests come to the one port there is, on loopback, with a token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from circinus.deploy.kubernetes.names import WORKER_IMAGE
from circinus.deploy.kubernetes.resources import MachineShape
from circinus.deploy.runtime.instances import InstanceSpec, refuse_callers
from circinus.deploy.workers.shares import Enforcement, enforcement_for
from circinus.deploy.workers.transport import LARGEST_MESSAGE
from circinus.pipelines import checks

QUERY, PLAN, PIPELINE = "io.circinus.query", "io.circinus.plan", "io.circinus.pipeline"
TIER, MACHINE_TYPE = "io.circinus.tier", "io.circinus.machine-type"
"""Labels; those of the last line are of workers alone."""
FRONT = "requests"
"""Service that answers requests."""
WORKER, PLAN_SERVER = "circinus.deploy.workers.server", "circinus.api.serving.plan_server"
SOCKETS, PLAN_FILE = "/run/circinus", "/etc/circinus/plan.json"
PORT = 8350

_USER = 10001
_GRACE = "15s"
# On its limit from the start: what takes 6 s alone takes 120 s on a share of 0.05.
_STARTS_WITHIN = "300s"
_TOKEN = "${CIRCINUS_TOKEN:?must be set: whoever sends requests shows it}"
_AT = f"127.0.0.1:${{CIRCINUS_PORT:-{PORT}}}:{PORT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeSettings:
    """What all services of a file have in common."""

    image: str = WORKER_IMAGE  # of all of them, with the pipeline in it
    machine: MachineShape = field(default_factory=MachineShape)  # of tiers that state none
    message_bytes: int = LARGEST_MESSAGE  # of the largest call or answer

    def __post_init__(self) -> None:
        checks.require(self.image != "", "image", "must not be empty", self.image)


def addresses(count: int) -> list[str]:
    """Return where the instances of a plan listen, in their order."""
    return [f"unix:{SOCKETS}/{number}.sock" for number in range(count)]


def render(
    instances: Sequence[InstanceSpec], plan_file: str, settings: ComposeSettings
) -> dict[str, Any]:
    """Return the file of a plan's instances, at least one; `plan_file` is for what answers.

    Equal plans and settings give equal files. InvalidInput if one of the instances calls.
    """
    refuse_callers(instances, "a service of a Compose file")
    key = instances[0].key
    labels = {QUERY: key.query_id, PLAN: key.plan_id, PIPELINE: instances[0].pipeline_reference}
    workers = {
        f"{spec.tier.name}-{number}": _worker(spec, address, labels, settings)
        for number, (spec, address) in enumerate(
            zip(instances, addresses(len(instances)), strict=True)
        )
    }
    return {
        "name": f"circinus-{key.plan_id}",
        "services": {FRONT: _front(labels, list(workers), settings), **workers},
        "volumes": {
            "sockets": {
                "driver_opts": {
                    "type": "tmpfs",
                    "device": "tmpfs",
                    "o": f"uid={_USER},gid={_USER},mode=0700",
                }
            }
        },
        "configs": {"plan": {"content": _literal(plan_file)}},
    }


def as_yaml(document: Mapping[str, Any]) -> str:
    """Return a file as its text."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=99)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as lines, and nothing as an alias of something else."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def _front(
    labels: Mapping[str, str], workers: list[str], settings: ComposeSettings
) -> dict[str, Any]:
    ask = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/readyz', timeout=4)"
    return {
        **_service(PLAN_SERVER, [PLAN_FILE], labels, settings),
        "environment": {
            "CIRCINUS_HOST": "0.0.0.0",
            "CIRCINUS_PORT": str(PORT),
            "CIRCINUS_TOKEN": _TOKEN,
            # As they are where the file is used, if they are set there.
            "CIRCINUS_ALLOWED_HOSTS": None,
            "CIRCINUS_METHOD": None,
        },
        "configs": [{"source": "plan", "target": PLAN_FILE}],
        "ports": [_AT],
        "depends_on": workers,
        "healthcheck": _health(ask, interval="10s"),
    }


def _worker(
    spec: InstanceSpec, address: str, labels: Mapping[str, str], settings: ComposeSettings
) -> dict[str, Any]:
    enforcement = enforcement_for(spec.operators, spec.share, cgroups=True)
    options = replace(
        spec.options(enforcement, address),
        allow_import=":" in spec.pipeline_reference,
        message_bytes=settings.message_bytes,
    )
    own = {**labels, TIER: spec.tier.name}
    if spec.machine_type is not None:
        own[MACHINE_TYPE] = spec.machine_type
    # What a share of a batched operator means, its worker sees to: it is no part of the CPU.
    limited = spec.share if enforcement is Enforcement.CGROUP else 1.0
    socket = address.removeprefix("unix:")
    shape = settings.machine.of(spec.tier)
    return {
        **_service(WORKER, options.arguments(), own, settings),
        "cpus": shape.milli_cpu(limited) / 1000,
        "mem_reservation": f"{max(shape.mebibytes(spec.share), 1)}m",
        # What a worker needs in memory does not grow with its share of the time.
        "mem_limit": f"{max(shape.mebibytes(1.0), 1)}m",
        # Cheap, as it runs on the worker's share. Callers check that it serves.
        "healthcheck": _health(
            f"import socket as s; s.socket(s.AF_UNIX).connect({socket!r})", interval="30s"
        ),
    }


def _service(
    module: str, command: Sequence[str], labels: Mapping[str, str], settings: ComposeSettings
) -> dict[str, Any]:
    """Return what all have: they may do as little as runs. Their own files are read-only."""
    return {
        "image": settings.image,
        "entrypoint": ["python3", "-m", module],
        "command": [_literal(word) for word in command],
        "labels": dict(labels),
        "user": f"{_USER}:{_USER}",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": ["/tmp"],
        "volumes": [f"sockets:{SOCKETS}"],
        "init": True,
        "restart": "unless-stopped",
        "stop_grace_period": _GRACE,
    }


def _health(check: str, *, interval: str) -> dict[str, Any]:
    return {
        "test": ["CMD", "python3", "-S", "-c", check],
        "interval": interval,
        "timeout": "5s",
        "start_period": _STARTS_WITHIN,
    }


def _literal(text: str) -> str:
    """Return a text that Compose does not put the values of variables into."""
    return text.replace("$", "$$")


def compact(document: object) -> str:
    """Return the text of a plan file."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
