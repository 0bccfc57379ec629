"""What the demo found: predicted beside observed, and whether everything worked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from api.demo.cases import Case
from api.demo.traffic import CONFIDENCE, Observed
from api.rendering import formats
from api.rendering.tables import table
from api.schemas import MethodView, PlanView, QueryView, estimate_view
from pipelines.slo import ANY_LATENCY_S, Estimate, SloState

LEAST_REQUESTS = 200

_STYLES = {
    SloState.MET: "green",
    SloState.LIKELY: "green",
    SloState.UNPROVEN: "yellow",
    SloState.VIOLATED: "red",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A query that was served.

    Attributes:
        case: Its case.
        query: At the end.
        plan: That ran.
        observed: What its requests gave.
    """

    case: Case
    query: QueryView
    plan: PlanView
    observed: Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of the demo.

    Attributes:
        served: The queries that were served.
        problems: What did not work, in words; empty when everything did.
        elapsed_s: Wall-clock seconds of the demo.
        method: Of the service; None: it was not asked for.
    """

    served: Sequence[Served]
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
            "queries": [_document(served) for served in self.served],
        }


def comparison(served: Sequence[Served]) -> Iterator[RenderableType]:
    """Give predicted beside observed, for every query that was served."""
    made = table(
        "Predicted and observed (on inputs that were not planned on)",
        "query",
        "objective",
        "predicted",
        "observed",
        "SLO",
    )
    for item in served:
        slo = item.query.request.slo
        bound_s = ANY_LATENCY_S if slo.latency_s is None else slo.latency_s
        accuracy, latency = item.observed.accuracy, item.observed.mean_s
        made.add_row(
            item.case.name,
            f"accuracy >= {slo.accuracy:g}",
            formats.accuracy(item.plan.accuracy),
            formats.UNKNOWN if accuracy is None else formats.accuracy(estimate_view(accuracy)),
            _state(None if accuracy is None else accuracy.at_least(slo.accuracy)),
        )
        made.add_row(
            "",
            f"mean latency <= {formats.seconds(bound_s)}",
            formats.latency(item.plan.latency_s),
            formats.UNKNOWN if latency is None else formats.latency(estimate_view(latency)),
            _state(None if latency is None else latency.at_most(bound_s)),
        )
    yield made
    yield Text(f"  In brackets: {CONFIDENCE:.0%} confidence intervals. An SLO is met or violated")
    yield Text("  when the whole interval says so, else likely or unproven.")
    yield Text(_emulation(served))


def problems_of(served: Sequence[Served]) -> Iterator[str]:
    """Give what did not work about the requests."""
    answered = sum(len(item.observed.latency_s) for item in served)
    if answered < LEAST_REQUESTS:
        yield f"only {answered} requests were answered, {LEAST_REQUESTS} should be"
    for item in served:
        for failure in item.observed.failures_told():
            yield f"a request to {item.case.name} failed: {failure}"
        if len(item.observed.score) != len(item.observed.latency_s):
            yield f"answers of {item.case.name} were not scored"


def _state(state: SloState | None) -> Text:
    if state is None:
        return Text(formats.UNKNOWN)
    return Text(state.value, style=_STYLES[state])


def _emulation(served: Sequence[Served]) -> str:
    tiers = sorted({tier for item in served for tier in item.plan.emulated})
    parts = [f"the speed of {', '.join(tiers)}"] if tiers else []
    if any(item.observed.emulated for item in served):
        parts.append("the links between tiers")
    if not parts:
        return "  Nothing was emulated."
    return f"  Emulated on this computer by waiting: {' and '.join(parts)}."


def _document(served: Served) -> dict[str, object]:
    observed = served.observed
    return {
        "name": served.case.name,
        "query_id": served.query.id,
        "plan_id": served.plan.id,
        "planning": served.query.planning.model_dump(mode="json"),
        "objectives": served.query.request.slo.model_dump(mode="json"),
        "predicted": {
            "accuracy": served.plan.accuracy.model_dump(mode="json"),
            "latency_s": served.plan.latency_s.model_dump(mode="json"),
        },
        "observed": {
            "requests": len(observed.latency_s),
            "failed": len(observed.failures),
            "accuracy": _document_of(observed.accuracy),
            "mean_s": _document_of(observed.mean_s),
        },
        "emulated": observed.emulated or bool(served.plan.emulated),
    }


def _document_of(estimate: Estimate | None) -> object:
    return None if estimate is None else estimate_view(estimate).model_dump(mode="json")
