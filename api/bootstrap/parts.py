"""The parts that the service and its planning workers have alike.

What serves is no part of these: a planning worker starts without importing it.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from circinus.api.bootstrap.registry import RegisteredPipelines, read_quotas
from circinus.api.query_file import read_infrastructure
from circinus.api.settings import ExecutorKind, Settings
from circinus.api.store.engine import connect, files_of, migrate
from circinus.api.store.failures import DatabaseFull
from circinus.api.store.ownership import owned
from circinus.api.store.store import Store
from circinus.api.use_cases.datasets import ExamplesHere, ExampleSource
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.profiling.examples import ExampleFiles
from circinus.deploy.workers.process import PRIVATE
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.scheduler.policies.priced import Migration
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.problem import Objective
from circinus.scheduler.rolling.ageing import Ageing
from circinus.scheduler.rolling.scheduler import Upkeep


def require_fit(settings: Settings) -> None:
    """Raise InvalidInput for settings that a service cannot start with, before all else."""
    RegisteredPipelines.of(settings.extra_pipelines)
    alone = settings.executor_choice.kind is ExecutorKind.IN_PROCESS
    rule = (
        "must be pool, worker:TIER, ray or ray:ADDRESS in a service: what hangs must not hold it"
    )
    checks.require(not alone, "executor", rule, settings.executor)


@contextmanager
def opened_parts(settings: Settings) -> Iterator[ServiceParts]:
    """Return the parts of the one service of its database, which is brought up to date.

    InvalidInput if the settings are unfit; DatabaseFailed if the database is, or cannot be
    reached, or has another service. A service starts on a full disk.
    """
    require_fit(settings)
    engine = connect(settings.database_url)
    name = f"process {os.getpid()} on {socket.gethostname()}, port {settings.port}"
    with owned(engine, name) as require_owned:
        migrate(engine)
        with closing(Store(engine)) as store:
            with suppress(DatabaseFull):
                store.try_writing()
            yield replace(parts_of(settings, store), require_owned=require_owned)


def make_planning_parts(settings: Settings) -> ServiceParts:
    """Return the parts of a planning worker; the tables must exist.

    What planning imports is loaded here, so that the first query need not wait for it.
    """
    import_module("circinus.planner.search.loop")
    return parts_of(settings, Store(connect(settings.database_url)))


def parts_of(settings: Settings, store: Store) -> ServiceParts:
    """Return the parts over an open store."""
    price = settings.migration_price
    migration = None if price is None else Migration(price=price)
    policies = {
        objective: scheduling_policy(
            settings.chosen_method.scheduling, Terms(objective=objective, migration=migration)
        )
        for objective in Objective
    }
    upkeep = Upkeep(
        policy=policies[settings.scheduling_objective],
        ageing=Ageing(
            growth_s=settings.ageing_growth_s,
            limit_s=settings.ageing_limit_s,
            turn_s=settings.ageing_turn_s,
        ),
        every_s=settings.reschedule_s,
    )
    return ServiceParts(
        settings=settings,
        infrastructure=read_infrastructure(settings.infrastructure),
        catalogue=RegisteredPipelines.of(settings.extra_pipelines),
        store=store,
        clock=SystemClock(),
        upkeep=upkeep,
        quotas=read_quotas(settings.quotas),
        policies=policies,
    )


def make_examples(parts: ServiceParts) -> ExampleSource:
    """Return what makes the examples that requests name, apart unless operators run here, too."""
    settings = parts.settings
    if settings.executor_choice.kind is ExecutorKind.IN_PROCESS:
        return ExamplesHere(parts.catalogue.pipeline)
    return ExampleFiles(settings.datasets, settings.examples_limit_bytes)


def tighten(settings: Settings) -> None:
    """Restrict our files to their owner; files of others stay as they are.

    The folders that settings name may hold other things, so they keep their modes.
    """
    for path in _written(settings):
        with suppress(OSError):  # gone, or on a file system without modes
            facts = path.lstat()
            if facts.st_uid == os.getuid() and not stat.S_ISLNK(facts.st_mode):
                path.chmod(stat.S_IMODE(facts.st_mode) & ~PRIVATE)


def _written(settings: Settings) -> Iterator[Path]:
    yield from files_of(settings.database_url)
    yield from settings.worker_logs.glob("*.log")
    yield from settings.datasets.glob("d-*")
    if settings.outputs is not None:
        yield from settings.outputs.glob("[0-9a-f][0-9a-f]")
