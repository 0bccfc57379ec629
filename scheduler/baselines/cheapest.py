"""What the baselines share: a problem in which every query offers its cheapest plan only."""

from __future__ import annotations

from dataclasses import replace

from scheduler.problem import PlanOption, Problem


def cheapest_only(problem: Problem) -> Problem:
    """Give the problem with each query's locally best plan: the least money, then the first id."""

    def rank(plan: PlanOption) -> tuple[float, str]:
        return plan.cost_usd_per_hour, plan.plan_id

    narrowed = tuple(replace(c, plans=(min(c.plans, key=rank),)) for c in problem.candidates)
    return replace(problem, candidates=narrowed)
