"""What the operator of a service decides, read from the environment: `CIRCINUS_<NAME>`.

Clients never set any of it. The only module of `api` that looks at the environment.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from platformdirs import user_data_dir
from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from circinus.api.executor_choice import ExecutorChoice, executor_choice
from circinus.deploy.methods import DEFAULT, Method, method_of
from circinus.pipelines import checks
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.problem import SCHEDULING_POLICIES

DEFAULT_PORT = 8350


def default_database_url() -> str:
    """Give the SQLite file in the user's data folder, as a URL."""
    return f"sqlite:///{Path(user_data_dir('circinus')) / 'circinus.sqlite3'}"


def default_planning_workers() -> int:
    """Give one worker per core that this process may use, one core left for the service."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


class Settings(BaseSettings):
    """Settings of one service.

    Attributes:
        database_url: Where queries, plans and measurements live; SQLite or PostgreSQL.
        host: Address to listen on; anything but loopback needs a token.
        port: To listen on.
        token: What clients must show as `Authorization: Bearer`; None: loopback only, no token.
        infrastructure: Name of a preset, or path of an infrastructure file.
        planning_workers: Processes that plan.
        log_level: Least level of the event lines on stderr.
        extra_pipelines: `module:attribute` of pipelines to register besides the installed ones,
            separated by commas.
        body_limit_bytes: Largest request body.
        examples_limit: Most examples of a pipeline that a client may ask for.
        queue_limit: Most queries that may wait for planning before new ones are refused.
        lease_s: A planning worker that is silent for so long has lost its query.
        crash_limit: A query whose planning workers die so often becomes `failed`.
        reconcile_s: Seconds between two looks at what should be deployed.
        drift_s: Seconds between two looks at whether deployed plans still give what they were
            planned for.
        quotas: The largest part of each shared tier that a tenant's queries may hold together:
            `acme=0.5,lab=0.25`, or the path of a YAML file of `tenant: part`. A tenant that is not
            named may hold everything.
        ageing_growth_s: Seconds of waiting that add a query's weight once more.
        ageing_limit_s: Seconds of waiting after which a query may take the place of any other.
        ageing_turn_s: Seconds that it keeps that place against others who waited too long.
        reschedule_s: Seconds between two whole schedules while somebody has a claim to machines
            that others hold.
        method: How queries are planned that do not say, and what schedules and dispatches:
            `default` or `published`.
        scheduling_policy: What chooses the plans of live queries: `priced`, `greedy`, `ilp`,
            `fcfs`, `local_best`; None: the method's.
        dispatch_policy: What chooses the instance of a request: `plan_ahead`, `kairos`, `fcfs`,
            `fcfs_reject`, `drs`, `clockwork`, `clockwork_reject`; None: the method's.
        migration_price: What moving a running query must win, in parts of its benefit; None:
            what runs is never moved for the sake of a better schedule.
        outputs: Folder in which outputs of operators are kept for later queries and restarts;
            None: they are kept in memory, while a query is planned. Whoever changes an operator
            changes its version, or finds its old outputs here.
        outputs_limit_bytes: Most bytes of it.
        worker_logs: Folder for the logs of deployed instances.
        target: Where plans run: processes of this computer, or pods of the cluster that this
            service runs in (or that `KUBECONFIG` names).
        namespace: Of the pods; None: the service's own.
        worker_image: Of the pods.
        worker_pull_policy: Of that image.
        worker_environment: Folder of every node with the Python packages; None: the image has
            them.
        worker_tls: Folder with `tls.crt`, `tls.key` and `ca.crt`, to call workers in pods with.
        worker_tls_secret: Secret of the namespace with the same files, for the workers.
        machine_cpu: CPU that a machine of every tier stands for; a worker asks for its share.
        machine_memory: Likewise.
        discovery: Whether the machines of shared tiers are counted from the cluster's nodes.
        executor: What runs operators while planning: `in-process`, `pool`, `worker:TIER`, `ray` or
            `ray:ADDRESS`.
        executor_workers: How many inputs are measured at once, other than in-process.
        call_timeout_s: Most seconds of one operator run, other than in-process.
        call_memory_bytes: Most memory of what runs operators beyond the loaded pipeline, other
            than in-process.
    """

    model_config = SettingsConfigDict(
        env_prefix="CIRCINUS_", frozen=True, env_ignore_empty=True, extra="ignore"
    )

    database_url: str = Field(default_factory=default_database_url)
    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    token: SecretStr | None = None
    infrastructure: str = "local"
    planning_workers: int = Field(default_factory=default_planning_workers, ge=1, le=256)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    extra_pipelines: Annotated[tuple[str, ...], NoDecode] = ()
    body_limit_bytes: int = Field(default=2**20, ge=1)
    examples_limit: int = Field(default=10_000, ge=1, le=100_000)
    queue_limit: int = Field(default=1000, ge=1)
    lease_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    crash_limit: int = Field(default=3, ge=1)
    reconcile_s: float = Field(default=0.25, gt=0, allow_inf_nan=False)
    drift_s: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    quotas: str = ""
    ageing_growth_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    ageing_limit_s: float = Field(default=3600.0, ge=0, allow_inf_nan=False)
    ageing_turn_s: float = Field(default=600.0, ge=0, allow_inf_nan=False)
    reschedule_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    method: str = DEFAULT.name
    scheduling_policy: str | None = None
    dispatch_policy: str | None = None
    migration_price: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    outputs: Path | None = None
    outputs_limit_bytes: int = Field(default=2 * 2**30, ge=0)
    worker_logs: Path = Field(default_factory=lambda: Path(user_data_dir("circinus")) / "logs")
    target: Literal["local", "kubernetes"] = "local"
    namespace: str | None = None
    worker_image: str = "circinus/worker:latest"
    worker_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    worker_environment: str | None = None
    worker_tls: Path = Path("/etc/circinus-tls")
    worker_tls_secret: str = "circinus-workers-tls"
    machine_cpu: str = "1"
    machine_memory: str = "2Gi"
    discovery: bool = False
    executor: str = "in-process"
    executor_workers: int = Field(default=1, ge=1)
    call_timeout_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    call_memory_bytes: int = Field(default=2 * 2**30, ge=1)

    @field_validator("extra_pipelines", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @model_validator(mode="after")
    def _guarded(self) -> Settings:
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"host must be a loopback address while CIRCINUS_TOKEN is not set, "
                f"got {self.host!r}."
            )
        _ = self.executor_choice  # is a choice
        chosen = self.chosen_method
        for field, policy, names in (
            ("scheduling_policy", chosen.scheduling, SCHEDULING_POLICIES),
            ("dispatch_policy", chosen.dispatch, DISPATCH_POLICIES),
        ):
            checks.among(field, policy, names)
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
            timeout_s=self.call_timeout_s,
            memory_bytes=self.call_memory_bytes,
        )

    @property
    def token_text(self) -> str | None:
        """The token in the clear; None when there is none."""
        return None if self.token is None else self.token.get_secret_value()


def is_loopback(host: str) -> bool:
    """Give whether a host name or address can only mean this machine."""
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
