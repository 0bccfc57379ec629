"""Circinus plans compound AI pipelines: what users import, re-exported from one place.

The packages below it are links to the folders of the same names at the top of the repository.
Nothing in them imports a name from here, so they may move without breaking anyone who uses it.
"""

from typing import TYPE_CHECKING

from circinus.pipelines.configuration import Configuration
from circinus.pipelines.dataset import Dataset, Example
from circinus.pipelines.errors import CircinusError, InvalidInput, OperatorFailed, Unavailable
from circinus.pipelines.infrastructure import Infrastructure, Link, Tier
from circinus.pipelines.operators import Knob, Operator, OperatorSpec, Scaling
from circinus.pipelines.payload import Payload
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.plan import Plan
from circinus.pipelines.query import PlanningLimits, Query
from circinus.pipelines.slo import Estimate, LatencyStatistic, Slo, SloState

if TYPE_CHECKING:
    from circinus.api.bootstrap.library import plan
    from circinus.api.client import AsyncClient, Client
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
    "CircinusError",
    "Client",
    "Configuration",
    "Dataset",
    "Estimate",
    "Example",
    "Infrastructure",
    "InvalidInput",
    "Knob",
    "LatencyStatistic",
    "Link",
    "Operator",
    "OperatorFailed",
    "OperatorSpec",
    "Payload",
    "Pipeline",
    "Plan",
    "PlanningLimits",
    "Query",
    "Reading",
    "Scaling",
    "Slo",
    "SloState",
    "Tier",
    "Unavailable",
    "__version__",
    "as_one",
    "configured",
    "pipeline_from_runnable",
    "plan",
    "runnable_of",
]

_OF_CLIENT = {"AsyncClient", "Client"}
_OF_LANGCHAIN = {"Reading", "as_one", "configured", "pipeline_from_runnable", "runnable_of"}


def __getattr__(name: str) -> object:
    """Import what few need when it is asked for: every process loads this."""
    if name == "plan":
        from circinus.api.bootstrap import library

        return library.plan
    if name in _OF_CLIENT:
        from circinus.api import client

        return getattr(client, name)
    if name in _OF_LANGCHAIN:
        from circinus.pipelines import langchain

        return getattr(langchain, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
