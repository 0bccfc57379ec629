"""Methods: which parts plan, schedule and dispatch, as one value with a name.

One rule: planning and serving, in the product or in a study, start from a value of this page;
`deploy.planning`, `scheduler.policies.registry` and `scheduler.dispatch.policies` make the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from circinus.pipelines import checks
from circinus.pipelines.model.query import PlanningMethod
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.problem import SCHEDULING_POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Everything that decides, from a query to the instance of a request."""

    name: str
    planning: PlanningMethod = field(default_factory=PlanningMethod)  # of queries that name none
    scheduling: str = SCHEDULING_POLICIES[0]  # chooses the plans of live queries
    dispatch: str = DISPATCH_POLICIES[0]  # chooses the instance of a request


DEFAULT = Method(name="default")
"""Ours."""

PUBLISHED = Method(
    name="published",
    planning=PlanningMethod(strategy="cmbo", stopping="t_test", sampling="stratified"),
    scheduling="greedy",
    dispatch="kairos",
)
"""The papers': Circinus 4.1 to 4.3 with appendix A.4, Kairos 5.1."""

MOST_EARLIER = 10
"""Earlier queries that planning starts from, the newest, unless it is as published."""

METHODS: Mapping[str, Method] = {method.name: method for method in (DEFAULT, PUBLISHED)}


def method_of(name: str, field: str = "method") -> Method:
    """Return the method of a name; InvalidInput, about `field`, if there is none."""
    checks.among(field, name, METHODS)
    return METHODS[name]


def method_where(fits: Callable[[Method], bool]) -> str | None:
    """Return the name of the first method that fits; None: none does."""
    return next((method.name for method in METHODS.values() if fits(method)), None)


def name_of(planning: PlanningMethod) -> str | None:
    """Return the name of the method that plans so; None: none does."""
    return method_where(lambda method: method.planning == planning)


def goes_to_the_end(planning: PlanningMethod) -> bool:
    """Return whether a search so ends at a limit alone, or when nothing is left to measure.

    As published (Circinus 4.2, algorithm 1); others end when going on is not worth it.
    """
    return planning.strategy == PUBLISHED.planning.strategy


def most_earlier(planning: PlanningMethod) -> int | None:
    """Return how many earlier queries planning so starts from, the newest; None: all.

    As published it chooses the most similar among all (Circinus 4.2).
    """
    return None if planning.strategy == PUBLISHED.planning.strategy else MOST_EARLIER


def parts_of(planning: PlanningMethod) -> dict[str, str]:
    """Return how a query is planned as query files write it: every part, and the name if any."""
    parts = {"method": name_of(planning), **asdict(planning)}
    return {part: name for part, name in parts.items() if name is not None}
