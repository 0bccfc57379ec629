"""A scheduling problem and its schedules in JSON: for users' own problems and solvers.

The form of a problem is in docs/studies/scheduling.md; `limits` names tiers that stand for limits
of endpoints. A schedule, one per policy:

    {"policy": "priced", "objective": "goodput", "seconds": 0.4,
     "assignments": [{"query": "q1", "plan": "p0",
                      "machines": [{"tier": "cloud", "machine": 0, "share": 0.25}]}],
     "waiting": {"q2": "why"}}
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import inf, isfinite
from typing import TypeVar

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.problem import Candidate, PlanOption, Problem, Schedule

T = TypeVar("T")
_REQUIRED = object()
_TOP = ("tiers", "queries", "quotas", "limits", "most_usd_per_hour")
_TIER = ("name", "machines", "price_usd_per_hour", "dedicated")
_PLAN = ("id", "cost_usd_per_hour", "calls_usd_per_hour", "demand")
_QUERY = ("id", "weight", "priority", "tenant", "plans")


def problem_from_dict(document: object) -> Problem:
    """Return the problem of a document; InvalidInput with the path of the first wrong field."""
    top = _Fields("problem", document, _TOP)
    quotas = top.get("quotas", dict, {})
    shares = _Fields("quotas", quotas, quotas)
    limits = top.get("limits", dict, {})
    words = _Fields("limits", limits, limits)
    return Problem(
        tiers=tuple(map(_tier, top.objects("tiers", _TIER))),
        candidates=tuple(map(_candidate, top.objects("queries", _QUERY))),
        quotas={tenant: shares.get(tenant, float) for tenant in quotas},
        limits={tier: words.get(tier, str) for tier in limits},
        most_usd_per_hour=top.get("most_usd_per_hour", float, inf),
    )


def problem_to_dict(problem: Problem) -> dict[str, object]:
    """Return the document of a problem, for `problem_from_dict`. What runs is left out."""
    most = problem.most_usd_per_hour
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
                        "calls_usd_per_hour": p.calls_usd_per_hour,
                        "demand": [item._asdict() for item in p.demand],
                    }
                    for p in c.plans
                ],
            }
            for c in problem.candidates
        ],
        "quotas": dict(problem.quotas),
        "limits": dict(problem.limits),
        **({"most_usd_per_hour": most} if isfinite(most) else {}),  # JSON has no infinity
    }


def schedule_to_dict(schedule: Schedule) -> dict[str, object]:
    """Return the document of a schedule."""
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


def _tier(fields: _Fields) -> Tier:
    return Tier(
        name=fields.get("name", str),
        machines=fields.get("machines", int),
        price_usd_per_hour=fields.get("price_usd_per_hour", float, 0.0),
        dedicated=fields.get("dedicated", bool, False),
    )


def _candidate(fields: _Fields) -> Candidate:
    plans = list(fields.objects("plans", _PLAN))
    return Candidate(
        query_id=fields.get("id", str),
        weight=fields.get("weight", float, 1.0),
        priority=fields.get("priority", int, 0),
        tenant=fields.get("tenant", str, ""),
        plans=tuple(map(_plan, plans)),
    )


def _plan(fields: _Fields) -> PlanOption:
    demand = []
    for item in fields.objects("demand", ("tier", "share")):
        share = item.get("share", float)
        checks.share(f"{item.where}.share", share)
        demand.append(DemandItem(item.get("tier", str), share))
    return PlanOption(
        plan_id=fields.get("id", str),
        demand=tuple(demand),
        cost_usd_per_hour=fields.get("cost_usd_per_hour", float, 0.0),
        calls_usd_per_hour=fields.get("calls_usd_per_hour", float, 0.0),
    )


class _Fields:
    """An object of a document, which has no other fields than known ones."""

    def __init__(self, where: str, value: object, known: Collection[str]) -> None:
        checks.require(isinstance(value, dict), where, "must be an object", value)
        self.where = where
        self._fields: dict[str, object] = value if isinstance(value, dict) else {}
        for name in self._fields:
            checks.among(f"a field of {where}", name, sorted(known))

    def get(self, name: str, kind: type[T], default: object = _REQUIRED) -> T:
        """Return a field of some type; whole numbers are numbers, too."""
        where, value = f"{self.where}.{name}", self._fields.get(name, default)
        checks.require(value is not _REQUIRED, where, "must be given", "nothing")
        whole = isinstance(value, int) and not isinstance(value, bool)
        if kind is float and whole:
            value = float(value)  # type: ignore[arg-type]  # an int, as just checked
        if not isinstance(value, kind) or (kind is int and not whole):
            rule = "must be a number" if kind is float else f"must be of type {kind.__name__}"
            raise InvalidInput.of(where, rule, value)
        return value

    def objects(self, name: str, known: Collection[str]) -> Iterator[_Fields]:
        """Yield the objects of a list, one after the other."""
        at = name if self.where == "problem" else f"{self.where}.{name}"
        for i, item in enumerate(self.get(name, list)):
            yield _Fields(f"{at}[{i}]", item, known)
