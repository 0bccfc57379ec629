"""The parts that the service and its planning workers have alike.

What serves is no part of these: a planning worker starts without importing it.
"""

from __future__ import annotations

from importlib import import_module

from circinus.api.bootstrap.registry import RegisteredPipelines, read_quotas
from circinus.api.query_file import read_infrastructure
from circinus.api.settings import Settings
from circinus.api.store.engine import connect
from circinus.api.store.store import Store
from circinus.api.use_cases.parts import ServiceParts
from circinus.pipelines.clock import SystemClock
from circinus.scheduler.policies.priced import Migration
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.rolling.ageing import Ageing
from circinus.scheduler.rolling.scheduler import Upkeep


def make_planning_parts(settings: Settings) -> ServiceParts:
    """Return the parts of a planning worker; the tables must exist.

    What planning imports is loaded here, so that the first query need not wait for it.
    """
    import_module("circinus.planner.search.loop")
    return parts_of(settings, Store(connect(settings.database_url)))


def parts_of(settings: Settings, store: Store) -> ServiceParts:
    """Return the parts over an open store."""
    price = settings.migration_price
    terms = Terms(migration=None if price is None else Migration(price=price))
    upkeep = Upkeep(
        policy=scheduling_policy(settings.chosen_method.scheduling, terms),
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
    )
