"""Prices of hosted models on a day; the oracle is the package's own price of a usage."""

from datetime import UTC, datetime

import genai_prices
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.price_list import listed_price
from circinus.pipelines.model.endpoints import Usage

DAY = "2026-11-01"


@pytest.mark.parametrize(
    ("named", "field", "message"),
    [
        (("gpt-4o-mini", "openai", "2026-13-01"), "date", "must be a day, YYYY-MM-DD"),
        (("gpt-4o-mini", "openai", "20261101"), "date", "must be a day, YYYY-MM-DD"),
        (("gpt-4o-mini", "nobody", DAY), "provider", r"must be among .*openai.*, got 'nobody'"),
        (("gpt-0", "openai", DAY), "model", r"must be a model of openai .* got 'gpt-0'"),
        (("gpt-4o", "github-copilot", DAY), "model", "must have a price by the token or call"),
    ],
)
def test_a_price_that_is_not_known_is_refused(
    named: tuple[str, str, str], field: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        listed_price(*named)
    assert [violation.field for violation in caught.value.violations] == [field]


def test_all_that_is_wrong_with_a_named_price_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        listed_price("gpt-4o-mini", "nobody", "today")
    assert [violation.field for violation in caught.value.violations] == ["date", "provider"]


@given(
    model=st.sampled_from(
        [("gpt-4o-mini", "openai"), ("gpt-4o", "openai"), ("claude-sonnet-4-0", "anthropic")]
    ),
    read=st.integers(0, 100_000),
    cached=st.floats(0, 1),
    written=st.integers(0, 100_000),
)
def test_a_listed_price_charges_what_the_package_does(
    model: tuple[str, str], read: int, cached: float, written: int
) -> None:
    before = int(read * cached)
    listed = listed_price(*model, DAY)
    usage = genai_prices.Usage(input_tokens=read, cache_read_tokens=before, output_tokens=written)
    told = genai_prices.calc_price(
        usage, model[0], provider_id=model[1], genai_request_timestamp=datetime(2026, 11, 1)
    )
    ours = listed.price.usd(Usage(1, read, before, written))
    assert ours == pytest.approx(float(told.total_price), abs=1e-12)


def test_a_price_is_kept_with_where_it_is_from_and_the_model_s_context() -> None:
    listed = listed_price("gpt-4o-mini", "openai", DAY)
    assert listed.price.source.endswith("openai gpt-4o-mini on 2026-11-01")
    assert listed.price.source.startswith("genai-prices ")
    assert listed.context_tokens == 128_000


def test_a_price_that_changed_is_that_of_its_day() -> None:
    # o3 was made cheaper on 2025-06-10
    before = listed_price("o3", "openai", "2025-06-09").price.input_usd_per_million
    after = listed_price("o3", "openai", "2025-06-11").price.input_usd_per_million
    assert (before, after) == (10.0, 2.0)


def test_a_price_by_the_hour_is_the_dearest_of_its_day() -> None:
    def at(hour: int) -> float:
        usage = genai_prices.Usage(input_tokens=1_000_000)
        when = datetime(2026, 11, 1, hour, tzinfo=UTC)
        told = genai_prices.calc_price(
            usage, "deepseek-chat", provider_id="deepseek", genai_request_timestamp=when
        )
        return float(told.total_price)

    prices = {at(hour) for hour in range(24)}
    assert len(prices) > 1
    listed = listed_price("deepseek-chat", "deepseek", DAY)
    assert listed.price.input_usd_per_million == pytest.approx(max(prices))


def test_a_price_by_the_length_of_the_input_is_the_dearest_that_calls_may_meet() -> None:
    # gemini-2.5-pro costs more from 200,000 tokens on
    short = listed_price("gemini-2.5-pro", "google", DAY, 200_000).price
    longer = listed_price("gemini-2.5-pro", "google", DAY, 200_001).price
    any_length = listed_price("gemini-2.5-pro", "google", DAY).price
    assert (short.input_usd_per_million, longer.input_usd_per_million) == (1.25, 2.5)
    assert any_length.input_usd_per_million == 2.5


def test_a_day_before_any_model_and_a_model_that_is_not_there_are_told_at_once() -> None:
    with pytest.raises(InvalidInput) as raised:
        listed_price("gpt-4-turbp", "openai", "2019-01-01")

    assert [violation.field for violation in raised.value.violations] == ["date", "model"]
    raised.match("must be 2020-06-11 or later: no model was hosted before")
    raised.match(r"knows on 2019-01-01 \(near: gpt-4-turbo")


def test_the_first_day_of_a_hosted_model_has_a_price() -> None:
    assert listed_price("gpt-4o", "openai", "2020-06-11").price.input_usd_per_million > 0
    with pytest.raises(InvalidInput, match="date must be 2020-06-11 or later"):
        listed_price("gpt-4o", "openai", "2020-06-10")
