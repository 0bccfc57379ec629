"""Circinus plans compound AI pipelines: what users import, re-exported from one place.

Nothing inside the project imports this package, so the packages below it may move without
breaking anyone who uses it.
"""

from pipelines.configuration import Configuration
from pipelines.dataset import Dataset, Example
from pipelines.errors import CircinusError, InvalidInput, OperatorFailed, Unavailable
from pipelines.infrastructure import Infrastructure, Link, Tier
from pipelines.langchain import Reading, configured, pipeline_from_runnable, runnable_of
from pipelines.operators import Knob, Operator, OperatorSpec, Scaling
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline
from pipelines.plan import Plan
from pipelines.query import PlanningLimits, Query
from pipelines.slo import Estimate, LatencyStatistic, Slo, SloState

__version__ = "0.1.0"

__all__ = [
    "CircinusError",
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
    "configured",
    "pipeline_from_runnable",
    "runnable_of",
]
