"""Every measured configuration with the reason why it is taken, or is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from circinus.api.schemas.plans import PlanView
from circinus.api.schemas.progress import TrialView
from circinus.api.schemas.query import SloRequest
from circinus.api.text import formats
from circinus.planner.search.trials import TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTrial:
    """A row of the table."""

    trial: TrialView
    number: int | None  # of its plan on the front; None: it has none there
    why: str  # it is taken, or is not


def candidates(
    trials: Sequence[TrialView], plans: Sequence[PlanView], slo: SloRequest, chosen: str | None
) -> Sequence[JudgedTrial]:
    """Return the candidates, the best first: plans of the front, other plans, then the nearest."""
    numbers: dict[str, int] = {}
    for number, plan in enumerate(plans, start=1):  # a configuration may have several
        numbers.setdefault(_key(plan.configuration), number)
    taken = {_key(plan.configuration) for plan in plans if plan.id == chosen}

    def told(trial: TrialView) -> JudgedTrial:
        key = _key(trial.configuration)
        if key in taken:
            return JudgedTrial(trial=trial, number=numbers[key], why="the schedule chose its plan")
        if key in numbers:
            return JudgedTrial(trial=trial, number=numbers[key], why="on the front, not chosen")
        return JudgedTrial(trial=trial, number=None, why=_why_not(trial, plans, slo))

    return sorted(map(told, trials), key=_order)


def _key(configuration: Mapping[str, Mapping[str, object]]) -> str:
    return repr(sorted((o, sorted(knobs.items())) for o, knobs in configuration.items()))


def _order(one: JudgedTrial) -> tuple[bool, int, bool, float, float]:
    trial, accuracy = one.trial, one.trial.accuracy
    feasible = trial.state is TrialState.FEASIBLE
    cost = trial.cost_usd_per_hour if feasible else None
    known = -1.0 if accuracy is None or accuracy.value is None else accuracy.value
    return one.number is None, one.number or 0, not feasible, cost or 0.0, -known


def _why_not(trial: TrialView, plans: Sequence[PlanView], slo: SloRequest) -> str:
    accuracy, latency = formats.accuracy(trial.accuracy), formats.latency(trial.latency_s)
    cost = formats.dollars(trial.cost_usd_per_hour)
    if trial.state is TrialState.FEASIBLE:
        return _beaten(trial, plans)
    if slo.latency_s is None:  # then it is for the machines that are too few for the throughput
        late = "machines do not hold the copies that the throughput needs"
    else:
        bound = formats.seconds(slo.latency_s)
        late = f"{latency} where it is fastest, at most {bound} asked"
    most = formats.dollars(slo.cost_usd_per_hour)
    return {
        TrialState.INACCURATE: f"accuracy {accuracy}, at least {slo.accuracy:g} asked",
        TrialState.LATE: late,
        TrialState.DEAR: f"{cost}, at most {most} asked",
        TrialState.UNDECIDED: f"accuracy {accuracy} so far does not tell about {slo.accuracy:g}",
        TrialState.FAILED: "an operator failed",
    }[trial.state]


def _beaten(trial: TrialView, plans: Sequence[PlanView]) -> str:
    if not plans:
        return "a plan, while the search goes on"
    accuracy = None if trial.accuracy is None else trial.accuracy.value
    for number, plan in enumerate(plans, start=1):
        better = (plan.accuracy.value or 0.0) - (accuracy or 0.0)
        less = (trial.cost_usd_per_hour or 0.0) - plan.cost_usd_per_hour
        if better >= 0 and less >= 0:
            gains = [
                *([f"{better:.3g} more accurate"] if better > 0 else []),
                *([f"{formats.dollars(less)} cheaper"] if less > 0 else []),
            ]
            return f"plan {number} is {' and '.join(gains) or 'as good'}"
    return "a plan, but none that the front needs"
