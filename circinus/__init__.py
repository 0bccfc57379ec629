"""Circinus plans compound AI pipelines: what users import, re-exported from one place.

The packages below it are links to the folders of the same names at the top of the repository.
Nothing in them imports a name from here, so they may move without breaking anyone who uses it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from circinus.pipelines.errors import CircinusError, InvalidInput, OperatorFailed, Unavailable
from circinus.pipelines.execution.calling import report_usage
from circinus.pipelines.execution.metrics import Judge, SetMetric
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import (
    CallPrice,
    CallRetries,
    Endpoint,
    EndpointCall,
    RateLimits,
    Usage,
)
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Scaling
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Estimate, LatencyStatistic, Slo, SloState
from circinus.pipelines.model.tiers import Tier

if TYPE_CHECKING:
    from circinus.api.client import AsyncClient, Client
    from circinus.api.library.planned import Planned, load
    from circinus.api.library.planning import plan, plan_async
    from circinus.pipelines.langchain import (
        Reading,
        as_one,
        configured,
        pipeline_from_runnable,
        runnable_of,
    )

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "CallPrice",
    "CallRetries",
    "CircinusError",
    "Client",
    "Configuration",
    "Dataset",
    "Endpoint",
    "EndpointCall",
    "Estimate",
    "Example",
    "Infrastructure",
    "InvalidInput",
    "Judge",
    "Knob",
    "LatencyStatistic",
    "Link",
    "Operator",
    "OperatorFailed",
    "OperatorSpec",
    "Payload",
    "Pipeline",
    "Plan",
    "Planned",
    "PlanningLimits",
    "Query",
    "RateLimits",
    "Reading",
    "Scaling",
    "SetMetric",
    "Slo",
    "SloState",
    "Tier",
    "Unavailable",
    "Usage",
    "__version__",
    "as_one",
    "configured",
    "load",
    "pipeline_from_runnable",
    "plan",
    "plan_async",
    "report_usage",
    "runnable_of",
]

_HOMES = {
    "circinus.api.client": ("AsyncClient", "Client"),
    "circinus.api.library.planned": ("Planned", "load"),
    "circinus.api.library.planning": ("plan", "plan_async"),
    "circinus.pipelines.langchain": (
        *("Reading", "as_one", "configured"),
        *("pipeline_from_runnable", "runnable_of"),
    ),
}


def __getattr__(name: str) -> object:
    """Import rarely used names on access: every process loads this module."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
