"""What requests to plans gave: predicted beside observed, and whether everything worked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import RenderableType
from rich.text import Text
from scipy import stats

from circinus.api.cli.rendering import formats
from circinus.api.cli.rendering.tables import table
from circinus.api.schemas.planning import MethodView
from circinus.api.schemas.plans import EstimateView, PlanView
from circinus.api.schemas.progress import QueryView
from circinus.pipelines.slo import ANY_LATENCY_S, Estimate, SloState

LEAST_REQUESTS = 200
CONFIDENCE = 0.95

_MOST_FAILURES_TOLD = 3
_STYLES = {
    SloState.MET: "green",
    SloState.LIKELY: "green",
    SloState.UNPROVEN: "yellow",
    SloState.VIOLATED: "red",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTraffic:
    """What the requests to one query gave.

    Attributes:
        latency_s: Of every request that was answered.
        score: Of every request that was answered.
        failures: Of the others, in words.
        emulated: Whether a tier or link on the way is emulated.
    """

    latency_s: tuple[float, ...]
    score: tuple[float, ...]
    failures: tuple[str, ...]
    emulated: bool

    @property
    def accuracy(self) -> Estimate | None:
        """Mean score, with its interval; None: of fewer than two answers."""
        return _mean(self.score)

    @property
    def mean_s(self) -> Estimate | None:
        """Mean latency, with its interval; None: of fewer than two answers."""
        return _mean(self.latency_s)

    def failures_told(self) -> Sequence[str]:
        """Give the first few unlike failures."""
        return list(dict.fromkeys(self.failures))[:_MOST_FAILURES_TOLD]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedQuery:
    """A query that was served.

    Attributes:
        name: For people.
        query: At the end.
        plan: That ran.
        observed: What its requests gave.
    """

    name: str
    query: QueryView
    plan: PlanView
    observed: ObservedTraffic

    def document(self) -> dict[str, object]:
        """Give what `--json` tells of it."""
        plan, observed = self.plan, self.observed
        accuracy, mean_s = _view(observed.accuracy), _view(observed.mean_s)
        return {
            "name": self.name,
            "query_id": self.query.id,
            "plan_id": plan.id,
            "planning": self.query.planning.model_dump(mode="json"),
            "objectives": self.query.request.slo.model_dump(mode="json"),
            "predicted": {
                "accuracy": plan.accuracy.model_dump(mode="json"),
                "latency_s": plan.latency_s.model_dump(mode="json"),
            },
            "observed": {
                "requests": len(observed.latency_s),
                "failed": len(observed.failures),
                "accuracy": None if accuracy is None else accuracy.model_dump(mode="json"),
                "mean_s": None if mean_s is None else mean_s.model_dump(mode="json"),
            },
            "emulated": observed.emulated or bool(plan.emulated),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of the demo.

    Attributes:
        served: The queries that were served.
        problems: What did not work, in words; empty when everything did.
        elapsed_s: Wall-clock seconds of the demo.
        method: Of the service; None: it was not asked for.
    """

    served: Sequence[ServedQuery]
    problems: Sequence[str]
    elapsed_s: float
    method: MethodView | None = None

    @property
    def worked(self) -> bool:
        """Whether everything did."""
        return not self.problems

    def document(self) -> dict[str, object]:
        """Give the report for machines."""
        return {
            "worked": self.worked,
            "problems": list(self.problems),
            "method": None if self.method is None else self.method.model_dump(mode="json"),
            "elapsed_s": round(self.elapsed_s, 1),
            "queries": [served.document() for served in self.served],
        }


def comparison(served: Sequence[ServedQuery]) -> Iterator[RenderableType]:
    """Give predicted beside observed, for every query that was served."""
    title = "Predicted and observed (on inputs that were not planned on)"
    rows = (row for item in served for row in _compared(item))
    yield table(title, "query", "objective", "predicted", "observed", "SLO", rows=rows)
    yield f"  In brackets: {CONFIDENCE:.0%} confidence intervals. An SLO is met or violated"
    yield "  when the whole interval says so, else likely or unproven."
    emulated = sorted({tier for item in served for tier in item.plan.emulated})
    parts = [f"the speed of {', '.join(emulated)}"] if emulated else []
    if any(item.observed.emulated for item in served):
        parts.append("the links between tiers")
    waits = f"Emulated on this computer by waiting: {' and '.join(parts)}."
    yield f"  {waits if parts else 'Nothing was emulated.'}"


def _compared(item: ServedQuery) -> Iterator[Sequence[RenderableType]]:
    slo, plan = item.query.request.slo, item.plan
    bound_s = ANY_LATENCY_S if slo.latency_s is None else slo.latency_s
    accuracy, mean_s = item.observed.accuracy, item.observed.mean_s
    yield (
        item.name,
        f"accuracy >= {slo.accuracy:g}",
        formats.accuracy(plan.accuracy),
        formats.accuracy(_view(accuracy)),
        _state(None if accuracy is None else accuracy.at_least(slo.accuracy)),
    )
    yield (
        "",
        f"mean latency <= {formats.seconds(bound_s)}",
        formats.latency(plan.latency_s),
        formats.latency(_view(mean_s)),
        _state(None if mean_s is None else mean_s.at_most(bound_s)),
    )


def problems_of(served: Sequence[ServedQuery]) -> Iterator[str]:
    """Give what did not work about the requests."""
    answered = sum(len(item.observed.latency_s) for item in served)
    if answered < LEAST_REQUESTS:
        yield f"only {answered} requests were answered, {LEAST_REQUESTS} should be"
    for item in served:
        for failure in item.observed.failures_told():
            yield f"a request to {item.name} failed: {failure}"
        if len(item.observed.score) != len(item.observed.latency_s):
            yield f"answers of {item.name} were not scored"


def _state(state: SloState | None) -> Text:
    return Text(formats.UNKNOWN) if state is None else Text(state.value, style=_STYLES[state])


def _view(estimate: Estimate | None) -> EstimateView | None:
    return None if estimate is None else EstimateView.of(estimate)


def _mean(values: Sequence[float]) -> Estimate | None:
    """Give the mean with its Student interval; None of fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) / n**0.5
    half = spread * float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1))
    return Estimate(value=mean, low=mean - half, high=mean + half, confidence=CONFIDENCE, inputs=n)
