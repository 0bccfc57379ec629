"""Dispatch policies by the names that settings, studies and pages call them.

One rule: whoever wants a policy by name gets it here, so that what a study measures is what a
service runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from circinus.pipelines import checks
from circinus.scheduler.dispatch.baselines import (
    Clockwork,
    FcfsDispatch,
    SizeThreshold,
)
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.matching import MinCostMatching
from circinus.scheduler.dispatch.plan_ahead import PlanAhead

_MADE: Mapping[str, CompiledPolicy] = {
    "plan_ahead": PlanAhead(),
    "kairos": MinCostMatching(),
    "fcfs": FcfsDispatch(),
    "fcfs_reject": FcfsDispatch(rejects=True),
    "drs": SizeThreshold(),
    "clockwork": Clockwork(),
    "clockwork_reject": Clockwork(rejects=True),
}


def dispatch_policy(name: str) -> CompiledPolicy:
    """Return the policy of a name; InvalidInput if there is none of that name."""
    checks.among("dispatch_policy", name, _MADE)
    return _MADE[name]
