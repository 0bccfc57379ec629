"""What the operator of a service decides, read from the environment: `CIRCINUS_<NAME>`.

Clients never set any of it. The only module of `api` that looks at the environment.
"""

from __future__ import annotations

import ipaddress
import os
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any, Literal

from platformdirs import user_data_path
from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from circinus.deploy.kubernetes.names import WORKER_IMAGE
from circinus.deploy.methods import DEFAULT, Method, method_of
from circinus.pipelines import checks
from circinus.pipelines.io.datasets import LARGEST_DATASET
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.problem import COST_USD_PER_HOUR, SCHEDULING_POLICIES, Objective

# A thousandth of a second to a year; likewise how many, and bytes to a tebibyte.
Seconds = Annotated[float, Field(ge=0.001, le=3.2e7)]
Waiting = Annotated[float, Field(ge=0, le=3.2e7)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=1, le=2**40)]


DEFAULT_URL = "http://127.0.0.1:8350"


class _Environment(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="CIRCINUS_", frozen=True, env_ignore_empty=True, extra="ignore"
    )

    token: SecretStr | None = None  # of clients; None: none is required

    @property
    def token_text(self) -> str | None:
        """The token in the clear; None when there is none."""
        return None if self.token is None else self.token.get_secret_value()


class ServiceAddress(_Environment):
    """Where clients find the service, and the token that they show there."""

    url: str = DEFAULT_URL


def service_address(url: str | None, token: str | None) -> ServiceAddress:
    """Return an address; parts that are None or empty are those of the environment."""
    values = {"url": url, "token": token}
    return ServiceAddress(**{name: value for name, value in values.items() if value})  # type: ignore[arg-type]  # pydantic's to check


class ExecutorKind(StrEnum):
    """What runs operators."""

    IN_PROCESS = "in-process"  # the process that plans
    POOL = "pool"  # worker processes of this computer
    WORKER = "worker"  # deployed gRPC workers of a tier: `worker:TIER`
    RAY = "ray"  # actors of a Ray cluster: `ray` for one of this computer's own, or `ray:ADDRESS`


_HOST = re.compile(r"\*|\.?[A-Za-z0-9]([A-Za-z0-9.-]{0,252})")
FORMS = "in-process, pool, worker:TIER, ray or ray:ADDRESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorChoice:
    """What runs operators, and how."""

    kind: ExecutorKind = ExecutorKind.POOL
    detail: str = ""  # the tier or the address; empty: none
    workers: int = 1  # so many inputs are measured at once, `>= 1`; 1 in-process
    calling: int = 1  # the same where operators call endpoints, `>= 1`; never less than `workers`
    timeout_s: float = 60.0  # most of one call, `> 0`; not in the process that plans
    memory_bytes: int = 2 * 2**30  # most of a worker beyond the loaded pipeline, `> 0`

    def __post_init__(self) -> None:
        checks.require(self.workers >= 1, "executor.workers", "must be >= 1", self.workers)
        checks.require(self.calling >= 1, "executor.calling", "must be >= 1", self.calling)
        checks.positive("executor.timeout_s", self.timeout_s)
        checks.positive("executor.memory_bytes", self.memory_bytes)
        alone = self.kind is ExecutorKind.IN_PROCESS and self.workers > 1
        checks.require(not alone, "executor.workers", "must be 1 in-process", self.workers)
        needed = self.kind is ExecutorKind.WORKER
        fits = self.kind is ExecutorKind.RAY or bool(self.detail) == needed
        checks.require(fits, "executor", f"must be {FORMS}", f"{self.kind}:{self.detail}")


def executor_choice(text: str, **how: int | float) -> ExecutorChoice:
    """Return the choice that a text of one of the `FORMS` names, else InvalidInput."""
    kind, _, detail = text.partition(":")
    checks.require(kind in set(ExecutorKind), "executor", f"must be {FORMS}", text)
    return ExecutorChoice(kind=ExecutorKind(kind), detail=detail, **how)  # type: ignore[arg-type]  # checked there


def _data(name: str) -> Path:
    return user_data_path("circinus") / name


def _runtime() -> Path:
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder, "circinus") if folder else Path(gettempdir(), f"circinus-{os.getuid()}")


class Settings(_Environment):
    """Settings of one service; `docs/service.md` describes each of them in full."""

    # Where queries, plans and measurements live; SQLite or PostgreSQL.
    database_url: str = Field(default_factory=lambda: f"sqlite:///{_data('circinus.sqlite3')}")
    host: str = "127.0.0.1"  # anything but loopback needs a token
    port: int = Field(default=8350, ge=0, le=65535)
    # With a token, names that it answers to besides this computer's; `.example.org`: any below it
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    infrastructure: str = "local"  # preset or file
    # One per core that this process may use, one core left for the service.
    planning_workers: int = Field(
        default_factory=lambda: max(1, len(os.sched_getaffinity(0)) - 1), ge=1, le=256
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    extra_pipelines: Annotated[tuple[str, ...], NoDecode] = ()  # `module:attribute`, by commas
    connection_limit: Count = 500  # of clients; so many again are answered to retry later
    control_limit: Count = 100  # requests in hand that are not for deployments
    stream_limit: Count = 2000  # streams of events that are open; they are none of the others
    body_limit_bytes: Bytes = 2**20
    message_limit_bytes: int = Field(default=64 * 2**20, ge=2**16, le=2**30)  # to and from workers
    dataset_limit_bytes: Bytes = 64 * 2**20  # of a data set that is handed over
    dataset_inputs_limit: int = Field(default=LARGEST_DATASET, ge=1, le=LARGEST_DATASET)
    datasets: Path = Field(default_factory=lambda: _data("datasets"))  # where they are unpacked
    examples_limit: int = Field(default=10_000, ge=1, le=100_000)  # that a client may request
    examples_limit_bytes: Bytes = 2**30  # of those that requests name, on disk
    queue_limit: Count = 5000  # queries that wait for planning
    lease_s: Seconds = 30.0  # a planning worker that is silent for so long has lost its query
    planning_grace_s: Seconds = 180.0  # beyond its time, or a wish to cancel, before it is killed
    crash_limit: Count = 3  # of the planning workers of one query
    reconcile_s: Seconds = 0.25  # between two looks at what should be deployed
    drift_s: Seconds = 5.0  # between two looks at whether deployed plans still perform as planned
    quotas: str = ""  # `tenant=part,...` of each shared tier, or a YAML file; others: everything
    ageing_growth_s: Seconds = 600.0  # of waiting, that add a query's weight once more
    ageing_limit_s: Waiting = 3600.0  # after which a query may take the place of any other
    ageing_turn_s: Waiting = 600.0  # that it holds that place against others that waited too long
    reschedule_s: Seconds = 60.0  # between two whole schedules while a query has a claim
    method: str = DEFAULT.name
    scheduling_policy: str | None = None  # None: the method's
    dispatch_policy: str | None = None  # likewise
    # Goodput of the machines there are, or all queries at least cost on machines that are rented.
    scheduling_objective: Objective = Objective.GOODPUT
    # What these and calls may cost together, with the objective cost alone; None: any money.
    most_usd_per_hour: float | None = Field(default=None, ge=0, le=COST_USD_PER_HOUR.most)
    # What moving a running query must win, in parts of its benefit; None: it is never moved.
    migration_price: float | None = Field(default=None, ge=0, le=1000)
    # Folder of outputs of operators, for later queries and restarts; None: in memory, for queries
    # that are planned one after the other. A changed operator needs another version, or
    # gets old ones.
    outputs: Path | None = None
    outputs_limit_bytes: int = Field(default=2 * 2**30, ge=0, le=2**50)
    # Folder that only its user may enter: of sockets between service and serving process, by port.
    runtime: Path = Field(default_factory=_runtime)
    # That should follow this service: what serves no more is ended when all have left it.
    dispatchers: int = Field(default=0, ge=0, le=1000)
    keeper_waits_s: Seconds = 60.0  # for a service, when its own was killed
    worker_logs: Path = Field(default_factory=lambda: _data("logs"))
    # Of what `circinus.plan` measured until it was interrupted; no service uses it.
    interrupted: Path = Field(default_factory=lambda: _data("interrupted"))
    target: Literal["local", "kubernetes"] = "local"  # where plans run
    namespace: str | None = None  # of the pods; None: the service's own
    # Whose the pods are, as `helm install` named it: two services of a namespace differ in it.
    release: str = Field(default="circinus", pattern=r"^[a-z0-9]([a-z0-9.-]{0,51}[a-z0-9])?$")
    # Deployment of the namespace with which the cluster deletes the pods; None: they stay.
    owner: str | None = None
    worker_image: str = WORKER_IMAGE  # with a tag other than latest, or a digest
    worker_pod_template: str = ""  # a YAML file, or the document; see `read_pod_template`
    worker_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    worker_environment: str | None = None  # folder of the nodes with the packages; None: no need
    worker_tls: Path = Path("/etc/circinus-tls")  # `tls.crt`, `tls.key`, `ca.crt` of the service
    worker_tls_secret: str = "circinus-workers-tls"  # with the same, for the workers
    machine_cpu: str = "1"  # that a machine of every tier stands for
    machine_memory: str = "2Gi"
    discovery: bool = False  # whether machines of shared tiers are counted from the nodes
    executor: str = "pool"  # of a service not in-process: what hangs there would hold it for good
    executor_workers: int = Field(default=1, ge=1, le=1024)  # inputs measured at once
    # The same where operators call endpoints: they wait, so there may be more than cores.
    calling_workers: int = Field(default=8, ge=1, le=1024)
    call_timeout_s: Seconds = 60.0  # of one operator run, other than in-process
    call_memory_bytes: int = Field(default=2 * 2**30, ge=1, le=2**50)  # beyond the loaded pipeline

    @field_validator("extra_pipelines", "allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST.fullmatch(name):
                raise ValueError(f"each must be a host's name without port, or *, got {name!r}.")
        return tuple(name.lower() for name in names)

    @model_validator(mode="after")
    def _guarded(self) -> Settings:
        if self.token is None and not is_loopback(self.host):
            rule = "must be a loopback address while CIRCINUS_TOKEN is not set"
            raise ValueError(f"host {rule}, got {self.host!r}.")
        _ = self.executor_choice  # is a choice
        chosen = self.chosen_method
        checks.among("scheduling_policy", chosen.scheduling, SCHEDULING_POLICIES)
        checks.among("dispatch_policy", chosen.dispatch, DISPATCH_POLICIES)
        require_rented(self.scheduling_objective, self.most_usd_per_hour)
        return self

    @property
    def chosen_method(self) -> Method:
        """The method, with the policies that were set in place of its own."""
        method = method_of(self.method)
        return replace(
            method,
            scheduling=self.scheduling_policy or method.scheduling,
            dispatch=self.dispatch_policy or method.dispatch,
        )

    @property
    def executor_choice(self) -> ExecutorChoice:
        """What runs operators while planning."""
        return executor_choice(
            self.executor,
            workers=self.executor_workers,
            calling=self.calling_workers,
            timeout_s=self.call_timeout_s,
            memory_bytes=self.call_memory_bytes,
        )

    def executor_with(self, kind: str | None, workers: int | None) -> ExecutorChoice:
        """Return the same of another kind, one of the `FORMS`, or width; None: as it is.

        Another kind has one worker by default. InvalidInput if there is no such kind.
        """
        if kind is None and workers is None:
            return self.executor_choice
        width = (1 if kind else self.executor_workers) if workers is None else workers
        named = executor_choice(kind or self.executor, workers=width)
        return replace(
            self.executor_choice,
            kind=named.kind,
            detail=named.detail,
            workers=named.workers,
            calling=self.calling_workers if workers is None else workers,
        )

    @property
    def guarded_by(self) -> Mapping[str, Any]:
        """The arguments of `Authentication`; two services of a host differ in them."""
        hosts = (self.host.lower(), *self.allowed_hosts)
        return {"token": self.token_text, "hosts": hosts, "cookie": f"circinus-{self.port}"}


def require_rented(objective: Objective, most_usd_per_hour: float | None) -> None:
    """Raise InvalidInput for a limit of dollars where no machine is rented."""
    rented = objective is Objective.COST or most_usd_per_hour is None
    rule = "must be left out unless the scheduling objective is cost"
    checks.require(rented, "most_usd_per_hour", rule, most_usd_per_hour)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def pin_numeric_threads() -> None:
    """Let processes started from here use one numeric thread each.

    Planning times operators, and several workers share the cores. Numeric libraries read this
    when they are loaded, so it is set in the parent, before a worker starts.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def allow_descriptors() -> None:
    """Raise this process's limit of descriptors, within reason: each client takes two.

    The default of systems is often 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_DESCRIPTORS = 16_384
