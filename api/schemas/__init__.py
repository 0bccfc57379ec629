"""What crosses the edge of the service: the query file, request bodies and answers.

pydantic stays in this package, in the settings and in the routes; everything further in works on
the frozen values of `pipelines`. What comes in is strict (no unknown field, no number from text,
no NaN); what goes out may grow, so readers of an answer ignore fields they do not know.
"""

from __future__ import annotations

from api.schemas.bill import BillView, CostView, ForecastView, bill_view
from api.schemas.catalogue import (
    EmulationBody,
    InfrastructureView,
    KnobView,
    LinkBody,
    LinkView,
    MachinesBody,
    OperatorView,
    PipelineList,
    PipelineView,
    TierView,
    infrastructure_view,
    pipeline_view,
    to_links,
)
from api.schemas.deployments import DeploymentView, InstanceView, ObservedView
from api.schemas.explanation import ExplanationView, ReplanBody, WhatIfBody, WhatIfView
from api.schemas.faults import faults_of
from api.schemas.planning import (
    MethodView,
    PlanningRequest,
    PlanningView,
    method_view,
    planning_view,
)
from api.schemas.plans import (
    DemandView,
    EstimateView,
    PlanList,
    PlanView,
    estimate_view,
    plan_view,
)
from api.schemas.problem import FaultView, HealthView, Problem
from api.schemas.progress import (
    Outcome,
    ProgressView,
    QueryPage,
    QueryView,
    ReplannedView,
    SearchView,
    ShortfallView,
    finished_view,
    progress_view,
    shortfall_view,
)
from api.schemas.query import DataSource, LimitsRequest, QueryRequest, SloRequest, to_query
from api.schemas.requests import ExampleReference, RequestBody, RequestReply
from api.schemas.schedule import (
    ArrivalInput,
    AssignmentView,
    DisplacedView,
    MachineShare,
    PreviewBody,
    ScheduleView,
    TierUse,
    WaitingView,
)

__all__ = [
    "ArrivalInput",
    "AssignmentView",
    "BillView",
    "CostView",
    "DataSource",
    "DemandView",
    "DeploymentView",
    "DisplacedView",
    "EmulationBody",
    "EstimateView",
    "ExampleReference",
    "ExplanationView",
    "FaultView",
    "ForecastView",
    "HealthView",
    "InfrastructureView",
    "InstanceView",
    "KnobView",
    "LimitsRequest",
    "LinkBody",
    "LinkView",
    "MachineShare",
    "MachinesBody",
    "MethodView",
    "ObservedView",
    "OperatorView",
    "Outcome",
    "PipelineList",
    "PipelineView",
    "PlanList",
    "PlanView",
    "PlanningRequest",
    "PlanningView",
    "PreviewBody",
    "Problem",
    "ProgressView",
    "QueryPage",
    "QueryRequest",
    "QueryView",
    "ReplanBody",
    "ReplannedView",
    "RequestBody",
    "RequestReply",
    "ScheduleView",
    "SearchView",
    "ShortfallView",
    "SloRequest",
    "TierUse",
    "TierView",
    "WaitingView",
    "WhatIfBody",
    "WhatIfView",
    "bill_view",
    "estimate_view",
    "faults_of",
    "finished_view",
    "infrastructure_view",
    "method_view",
    "pipeline_view",
    "plan_view",
    "planning_view",
    "progress_view",
    "shortfall_view",
    "to_links",
    "to_query",
]
