"""A scheduling problem and its schedules in JSON: for users' own problems and solvers.

A problem:

    {"tiers":   [{"name": "cloud", "machines": 8, "price_usd_per_hour": 3.7,
                  "dedicated": false}],
     "queries": [{"id": "q1", "weight": 2.0, "priority": 0, "tenant": "",
                  "plans": [{"id": "p0", "cost_usd_per_hour": 0.9,
                             "demand": [{"tier": "cloud", "share": 0.25}]}]}],
     "quotas":  {"acme": 0.5}}

`dedicated`, `weight`, `priority`, `tenant` and `quotas` may be left out. An item of a demand
sits whole on one machine; shares are in (0, 1]. A schedule, one per policy:

    {"policy": "priced", "objective": "goodput", "seconds": 0.4,
     "assignments": [{"query": "q1", "plan": "p0",
                      "machines": [{"tier": "cloud", "machine": 0, "share": 0.25}]}],
     "waiting": {"q2": "why"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Tier
from circinus.pipelines.plan import DemandItem
from circinus.scheduler.problem import Candidate, PlanOption, Problem, Schedule

T = TypeVar("T")
_REQUIRED = object()
_TIER = ("name", "machines", "price_usd_per_hour", "dedicated")


def problem_from_dict(document: object) -> Problem:
    """Give the problem that a document describes.

    Raises:
        InvalidInput: With the path of the first field that is wrong.
    """
    top = _mapping("problem", document, {"tiers", "queries", "quotas"})
    quotas = _field("problem", top, "quotas", dict, {})
    return Problem(
        tiers=tuple(
            _tier(f"tiers[{i}]", item)
            for i, item in enumerate(_field("problem", top, "tiers", list))
        ),
        candidates=tuple(
            _candidate(f"queries[{i}]", item)
            for i, item in enumerate(_field("problem", top, "queries", list))
        ),
        quotas={tenant: _field("quotas", quotas, tenant, float) for tenant in quotas},
    )


def problem_to_dict(problem: Problem) -> dict[str, object]:
    """Give the document of a problem; `problem_from_dict` reads it back. What runs is left out."""
    return {
        "tiers": [{name: getattr(tier, name) for name in _TIER} for tier in problem.tiers],
        "queries": [
            {
                "id": c.query_id,
                "weight": c.weight,
                "priority": c.priority,
                "tenant": c.tenant,
                "plans": [
                    {
                        "id": p.plan_id,
                        "cost_usd_per_hour": p.cost_usd_per_hour,
                        "demand": [item._asdict() for item in p.demand],
                    }
                    for p in c.plans
                ],
            }
            for c in problem.candidates
        ],
        "quotas": dict(problem.quotas),
    }


def schedule_to_dict(schedule: Schedule) -> dict[str, object]:
    """Give the document of a schedule."""
    return {
        "assignments": [
            {
                "query": a.query_id,
                "plan": a.plan_id,
                "machines": [slice_._asdict() for slice_ in a.machines],
            }
            for a in schedule.assignments
        ],
        "waiting": dict(schedule.waiting),
    }


def _tier(where: str, item: object) -> Tier:
    fields = _mapping(where, item, set(_TIER))
    return Tier(
        name=_field(where, fields, "name", str),
        machines=_field(where, fields, "machines", int),
        price_usd_per_hour=_field(where, fields, "price_usd_per_hour", float, 0.0),
        dedicated=_field(where, fields, "dedicated", bool, False),
    )


def _candidate(where: str, item: object) -> Candidate:
    fields = _mapping(where, item, {"id", "weight", "priority", "tenant", "plans"})
    plans = _field(where, fields, "plans", list)
    return Candidate(
        query_id=_field(where, fields, "id", str),
        weight=_field(where, fields, "weight", float, 1.0),
        priority=_field(where, fields, "priority", int, 0),
        tenant=_field(where, fields, "tenant", str, ""),
        plans=tuple(_plan(f"{where}.plans[{i}]", plan) for i, plan in enumerate(plans)),
    )


def _plan(where: str, item: object) -> PlanOption:
    fields = _mapping(where, item, {"id", "cost_usd_per_hour", "demand"})
    demand = []
    for i, entry in enumerate(_field(where, fields, "demand", list)):
        at = f"{where}.demand[{i}]"
        slot = _mapping(at, entry, {"tier", "share"})
        share = _field(at, slot, "share", float)
        checks.share(f"{at}.share", share)
        demand.append(DemandItem(_field(at, slot, "tier", str), share))
    return PlanOption(
        plan_id=_field(where, fields, "id", str),
        demand=tuple(demand),
        cost_usd_per_hour=_field(where, fields, "cost_usd_per_hour", float, 0.0),
    )


def _mapping(where: str, value: object, known: set[str]) -> Mapping[str, object]:
    checks.require(isinstance(value, dict), where, "must be an object", value)
    fields: dict[str, object] = value if isinstance(value, dict) else {}
    for name in fields:
        checks.among(f"a field of {where}", name, sorted(known))
    return fields


def _field(
    where: str,
    fields: Mapping[str, object],
    name: str,
    kind: type[T],
    default: object = _REQUIRED,
) -> T:
    value = fields.get(name, default)
    checks.require(value is not _REQUIRED, f"{where}.{name}", "must be given", "nothing")
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind is float and whole:
        value = float(value)  # type: ignore[arg-type]  # an int, as was just seen
    if not isinstance(value, kind) or (kind is int and not whole):
        rule = "must be a number" if kind is float else f"must be of type {kind.__name__}"
        raise InvalidInput.of(f"{where}.{name}", rule, value)
    return value
