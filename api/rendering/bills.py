"""Bills in words."""

from __future__ import annotations

from collections.abc import Iterator

from api.rendering import formats
from api.schemas import BillView, CostView, ForecastView


def forecast_words(forecast: ForecastView) -> str:
    """Give what is expected, as intervals, and where that comes from."""
    low, high = forecast.low, forecast.high
    return (
        f"{low.runs}-{high.runs} operator runs, "
        f"{formats.seconds(low.seconds)} - {formats.seconds(high.seconds)}, "
        f"{formats.amount(low.usd)} - {formats.amount(high.usd)} "
        f"({forecast.confidence:.0%} of such queries; "
        f"{formats.seconds(forecast.expected.seconds)} in the middle; from {forecast.source})"
    )


def bill_lines(bill: BillView) -> Iterator[str]:
    """Give what was expected, paid and saved, a line each."""
    if bill.forecast is not None:
        yield f"expected: {forecast_words(bill.forecast)}"
    yield f"paid: {_words(bill.paid)}"
    yield f"saved by the cache: {_words(bill.cache)}"
    yield f"saved by stopping early: {_words(bill.early_stopping)}, against {bill.against}"


def _words(cost: CostView) -> str:
    runs = f"{cost.runs} operator runs"
    return f"{runs}, {formats.seconds(cost.seconds)}, {formats.amount(cost.usd)}"
