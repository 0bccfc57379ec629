"""What a search found of each configuration, told to whoever watches as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.plan import Plan
from circinus.planner.deployment.prediction import fastest
from circinus.planner.plans.plans import plan_of
from circinus.planner.strategy.protocol import Ending, Judgement, Measured, SearchSetting


class TrialState(StrEnum):
    """What is known of a configuration."""

    FEASIBLE = "feasible"  # it has a plan
    INACCURATE = "inaccurate"
    LATE = "late"  # on every placement
    DEAR = "dear"  # accurate and in time, for more than a cost SLO allows
    UNDECIDED = "undecided"  # more inputs might tell
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a configuration was found to do when it was measured last.

    A later one on more inputs takes the place of an earlier one of the same configuration.
    """

    configuration: Configuration
    inputs: int  # that it has met, `>= 0`
    state: TrialState
    plan: Plan | None  # its cheapest; without any, its fastest deployment; None: it failed
    spent_s: float  # operator seconds that the search had paid by then
    elapsed_s: float  # wall-clock seconds since the start


def state_of(
    setting: SearchSetting, measured: Measured, judgement: Judgement, *, has_plan: bool
) -> TrialState:
    """Return what is known of a configuration that did not fail."""
    slo, accuracy = setting.slo, judgement.accuracy or measured.accuracy
    if has_plan:
        return TrialState.FEASIBLE
    if measured.latency_s > slo.latency_s:
        return TrialState.LATE
    if measured.ending is Ending.INACCURATE or accuracy.high < slo.accuracy:
        return TrialState.INACCURATE
    bounds = (slo.cost_usd_per_hour, slo.cost_usd_per_1000_requests)
    if judgement.enough and any(bound is not None for bound in bounds):
        return TrialState.DEAR
    return TrialState.UNDECIDED


def fastest_plan(setting: SearchSetting, measured: Measured) -> Plan:
    """Return the deployment of a configuration that is fastest, at full shares."""
    spots = setting.placements_of(measured.configuration)
    best = fastest(setting.context, spots, measured.work)
    return plan_of(setting, best, best.full_steps, measured)
