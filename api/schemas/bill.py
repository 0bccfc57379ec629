"""What planning a query costs: expected before, paid and saved afterwards."""

from __future__ import annotations

from api.schemas.base import View
from planner.bill import Bill, Cost, Forecast


class CostView(View):
    """What some runs cost; a run is one operator on one input."""

    runs: int = 0
    """How many, warm-ups not counted."""
    seconds: float = 0.0
    """Operator seconds on the reference machine."""
    usd: float = 0.0
    """US dollars at the reference tier's price."""


class ForecastView(View):
    """What planning is expected to cost, the query's limits considered."""

    low: CostView
    """Lower end of the interval."""
    expected: CostView
    """In the middle."""
    high: CostView
    """Upper end."""
    confidence: float
    """Share of queries like this one whose planning costs between `low` and `high`."""
    source: str
    """What it comes from."""


class BillView(View):
    """What was expected, paid and saved."""

    paid: CostView
    """Paid, warm-ups and failures included."""
    cache: CostView
    """What reused outputs saved of the inputs that were measured."""
    early_stopping: CostView
    """What ending early saved beside that."""
    against: str
    """What early stopping is compared with."""
    forecast: ForecastView | None = None
    """What was expected before profiling; none: nothing was."""


def bill_view(bill: Bill) -> BillView:
    """Give a bill."""
    return BillView(
        paid=_cost(bill.paid),
        cache=_cost(bill.cache),
        early_stopping=_cost(bill.early_stopping),
        against=bill.against,
        forecast=None if bill.forecast is None else _forecast(bill.forecast),
    )


def _forecast(forecast: Forecast) -> ForecastView:
    return ForecastView(
        low=_cost(forecast.low),
        expected=_cost(forecast.expected),
        high=_cost(forecast.high),
        confidence=forecast.confidence,
        source=forecast.source,
    )


def _cost(cost: Cost) -> CostView:
    return CostView(runs=cost.runs, seconds=cost.seconds, usd=cost.usd)
