"""How a query is to be planned, as in files and bodies, and how it is, as in answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from circinus.api.schemas.base import Input, View
from circinus.deploy.methods import DEFAULT, METHODS, Method, method_of, parts_of
from circinus.pipelines import checks
from circinus.pipelines.model.query import SAMPLING, STOPPING, STRATEGIES, PlanningMethod


def _among(names: Iterable[str]) -> Callable[[str], str]:
    allowed = ", ".join(names)

    def known(value: str) -> str:
        checks.require(value in names, "", f"must be among {allowed}", value)
        return value

    return known


def _schema(names: Iterable[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(names)}


MethodName = Annotated[str, AfterValidator(_among(METHODS)), WithJsonSchema(_schema(METHODS))]
Strategy = Annotated[str, AfterValidator(_among(STRATEGIES)), WithJsonSchema(_schema(STRATEGIES))]
Stopping = Annotated[str, AfterValidator(_among(STOPPING)), WithJsonSchema(_schema(STOPPING))]
Sampling = Annotated[str, AfterValidator(_among(SAMPLING)), WithJsonSchema(_schema(SAMPLING))]


class PlanningRequest(Input):
    """How the query is planned; its parts replace those of the method."""

    method: MethodName | None = None
    """Whose parts plan it; left out: those of the service's method."""
    strategy: Strategy | None = Field(default=None, description="Proposes what to measure.")
    stopping: Stopping | None = None
    """Decides when a configuration was measured enough; not with `multi_fidelity`, which decides
    that itself."""
    sampling: Sampling | None = None
    """The order in which inputs are drawn."""


class PlanningView(View):
    """How a query is planned."""

    method: str | None = None
    """Name of the method with these parts; none: no method has them."""
    strategy: str = Field(description="Proposes what to measure.")
    stopping: str | None = None
    """Decides when a configuration was measured enough; none: the strategy does."""
    sampling: str = Field(description="The order in which inputs are drawn.")


class MethodView(View):
    """How a service plans, schedules and dispatches."""

    name: str = Field(description="Of the method; the policies below may be others than its own.")
    planning: PlanningView = Field(description="How it plans queries that leave it out.")
    scheduling: str = Field(description="Chooses the plans of live queries.")
    dispatch: str = Field(description="Chooses the instance of a request.")


def to_planning(request: PlanningRequest | None, method: Method) -> PlanningMethod:
    """Return how a query is planned: its own parts, else those of the planner's method.

    InvalidInput if the parts do not go together.
    """
    if request is None:
        return method.planning
    if request.method is not None:
        method = method_of(request.method, "planning.method")
    return method.planning.changed(**request.model_dump(exclude={"method"}))


def planning_view(planning: PlanningMethod) -> PlanningView:
    """Return the view of how a query is planned."""
    return PlanningView.model_validate(parts_of(planning))


def planned_by_default() -> PlanningView:
    """Return the planning of services that do not report theirs."""
    return planning_view(DEFAULT.planning)


def method_view(method: Method) -> MethodView:
    """Return what a service does by itself."""
    return MethodView.of(method, planning=planning_view(method.planning))
