"""What hosted models cost on a day, from the package `genai-prices`.

Prices change, so one is always of a day: the same document gives the same price whenever it is
read. Where a price depends on more than the day, the dearest is taken: of the hours of that day,
and of the lengths of input that a call may have. What it is made of is stored with it, in words.

What a `CallPrice` has no part for is left out: audio, images, writing to a cache, tools.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.model.endpoints import CallPrice

if TYPE_CHECKING:
    from decimal import Decimal

    from genai_prices.types import ModelInfo, TieredPrices

_PRICES = {
    "input_usd_per_million": ("input_mtok", 1.0),
    "cached_usd_per_million": ("cache_read_mtok", 1.0),
    "output_usd_per_million": ("output_mtok", 1.0),
    "call_usd": ("requests_kcount", 1000.0),
}
"""Part of our price -> what the package calls it, and by how much its unit is larger."""
_SCHEME = re.compile(r"^(\(https\?://\)\?|https://)")  # of a pattern of addresses
_HOST_ENDS = re.compile(r"\((?:\?:)?/\|\$\)|(?<!\[\^)/")
_FIRST_DAY = date(2020, 6, 11)  # the first hosted model (OpenAI's GPT-3) could be called
_STEP = timedelta(minutes=30)
"""Prices by the time of the day change on the full and half hour."""


class ListedPrice(NamedTuple):
    """What a model costs on a day."""

    price: CallPrice
    context_tokens: int | None  # most that one call may read and write, `>= 1`; None: not stated


def listed_price(
    model: str, provider: str, day: str, most_input_tokens: int | None = None
) -> ListedPrice:
    """Return what a model of a provider costs on a day, `YYYY-MM-DD`.

    `most_input_tokens` that a call may read rule out prices of longer inputs; None: its context
    does. InvalidInput, with all that is wrong, of `date`, `provider` or `model`.
    """
    # It is loaded where a price is asked for: it takes a quarter of a second
    from genai_prices.data_snapshot import find_provider_by_id, get_snapshot

    violations = []
    if (on := _day(day)) is None:
        violations.append(Violation.of("date", "must be a day, YYYY-MM-DD", day))
    elif on < _FIRST_DAY:
        rule = f"must be {_FIRST_DAY} or later: no model was hosted before"
        violations.append(Violation.of("date", rule, day))
    providers = get_snapshot().providers
    offers = find_provider_by_id(providers, provider)
    if offers is None:
        known = ", ".join(sorted(each.id for each in providers))
        violations.append(Violation.of("provider", f"must be among {known}", provider))
    listed = None if offers is None else offers.find_model(model, all_providers=providers)
    if offers is not None and listed is None:
        rule = f"must be a model of {provider} that genai-prices {_edition()} knows on {day}"
        if near := get_close_matches(model, [each.id for each in offers.models], cutoff=0.5):
            rule += f" (near: {', '.join(near)})"
        violations.append(Violation.of("model", rule, model))
    if violations or on is None or listed is None or offers is None:
        raise InvalidInput(violations)
    longest = most_input_tokens or listed.context_window
    price = {
        ours: max(of_hour)
        for ours in _PRICES
        if (of_hour := [*_through_the_day(listed, on, ours, longest)])
    }
    if not price:
        rule = f"must have a price by the token or call in genai-prices {_edition()}"
        raise InvalidInput.of("model", rule, model)
    source = f"genai-prices {_edition()}: {offers.id} {listed.id} on {on.isoformat()}"
    return ListedPrice(CallPrice(**price, source=source), listed.context_window)


def provider_at(address: str) -> str | None:
    """Return the provider whose models are called at an address; None: none that is listed."""
    from genai_prices.data_snapshot import get_snapshot

    ids = (each.id for each in get_snapshot().providers if re.match(each.api_pattern, address))
    return next(ids, None)


def provider_of(host: str) -> str | None:
    """Return the provider whose models are called at a host, whatever the path; None: none."""
    from genai_prices.data_snapshot import get_snapshot

    ids = (
        each.id
        for each in get_snapshot().providers
        if re.match(rf"(.*\.)?{_HOST_ENDS.split(_SCHEME.sub('', each.api_pattern))[0]}", host)
    )
    return next(ids, None)


def is_provider(word: str) -> bool:
    """Return whether a provider's name begins with a word, as its environment variables do."""
    from genai_prices.data_snapshot import get_snapshot

    plain = word.lower()
    ids = (each.id for each in get_snapshot().providers)
    return any(plain in (one.replace("-", ""), re.split(r"\W|_", one)[0]) for one in ids)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if len(text) == len("2026-01-31") else None
    except ValueError:
        return None


def _edition() -> str:
    return version("genai-prices")


def _through_the_day(model: ModelInfo, on: date, ours: str, longest: int | None) -> list[float]:
    """Return what one part of the price is at the hours of a day; nothing: it is not charged."""
    theirs, units = _PRICES[ours]
    midnight = datetime.combine(on, time(), UTC)
    always = not isinstance(model.prices, list)
    hours = [midnight] if always else [midnight + i * _STEP for i in range(48)]
    dollars = []
    for hour in hours:
        price = getattr(model.get_prices(hour), theirs)
        if price is not None:
            dollars.append(_dearest(price, longest) / units)
    return dollars


def _dearest(price: Decimal | TieredPrices, longest: int | None) -> float:
    """Return the dearest price of inputs of up to so many tokens; None: of any number."""
    base = getattr(price, "base", price)
    longer = [
        each.price
        for each in getattr(price, "tiers", ())
        if longest is None or each.start < longest
    ]
    return float(max([base, *longer]))
