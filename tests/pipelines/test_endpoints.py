"""What calls cost, and who calls what."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf
from types import SimpleNamespace

import genai_prices
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.price_list import listed_price
from circinus.pipelines.model.endpoints import (
    CallPrice,
    CallRetries,
    Endpoint,
    EndpointCall,
    RateLimits,
    Usage,
    is_passing,
    retry_after_s,
    status_of,
)
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.pipelines.model.tiers import Tier


@pytest.mark.parametrize(
    ("price", "told"),
    [
        ({"input_usd_per_million": -1}, "price.input_usd_per_million must be finite and >= 0"),
        ({"call_usd": float("nan")}, "price.call_usd must be finite and >= 0"),
        ({"usd_per_s": inf}, "price.usd_per_s must be finite and >= 0"),
    ],
)
def test_a_price_below_zero_or_without_end_is_refused(price: dict[str, float], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        CallPrice(**price)  # type: ignore[arg-type]  # `source` is not among them


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "concurrent"])
def test_a_limit_of_none_at_all_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"limits.{name} must be >= 1, got 0"):
        RateLimits(**{name: 0})


def test_tokens_calls_and_seconds_each_have_their_price() -> None:
    price = CallPrice(
        input_usd_per_million=2.0,
        cached_usd_per_million=0.5,
        output_usd_per_million=8.0,
        call_usd=0.01,
        usd_per_s=0.001,
    )
    used = Usage(calls=2, input_tokens=1000, cached_tokens=400, output_tokens=100)
    # 600 x 2 + 400 x 0.5 + 100 x 8 per million, 2 calls, 3 seconds
    assert price.usd(used, 3.0) == pytest.approx(0.0022 + 0.02 + 0.003)


def test_cached_tokens_cost_as_others_where_no_price_of_their_own_is_told() -> None:
    used = Usage(calls=1, input_tokens=100, cached_tokens=100)
    assert CallPrice(input_usd_per_million=3.0).usd(used) == pytest.approx(3e-4)


def test_the_largest_call_is_as_dear_as_its_bounds_allow() -> None:
    price = CallPrice(input_usd_per_million=1.0, output_usd_per_million=4.0, call_usd=0.001)
    endpoint = Endpoint(name="m", price=price, most_input_tokens=1000, most_output_tokens=500)
    assert endpoint.largest == pytest.approx((1.0, 1000.0, 0.0, 500.0, 0.004))


def test_a_call_without_a_bound_on_tokens_that_cost_has_no_largest_cost() -> None:
    price = CallPrice(output_usd_per_million=4.0)
    assert Endpoint(name="m", price=price).largest.usd == inf
    assert Endpoint(name="m", price=CallPrice(call_usd=0.25)).largest.usd == 0.25


def test_a_name_of_a_knobs_value_is_called_where_the_knob_has_it_and_others_always() -> None:
    model = Knob(name="model", values=("small", "large", "rented"))
    spec = OperatorSpec(name="reader", knobs=(model,), calls=("small", "large", "log"))
    assert spec.called({"model": "small"}) == (
        EndpointCall(endpoint="small", when={"model": "small"}),
        EndpointCall(endpoint="log"),
    )
    assert spec.called({"model": "rented"}) == (EndpointCall(endpoint="log"),)
    assert spec.endpoints == ("small", "large", "log")


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ({"size": 1}, "operator reader.calls.when must be among model, got 'size'"),
        ({"model": "huge"}, "operator reader.calls.when.model must be a value of the knob model"),
    ],
)
def test_a_call_under_settings_that_there_are_not_is_refused(
    when: dict[str, str | int], told: str
) -> None:
    model = Knob(name="model", values=("small", "large"))
    with pytest.raises(InvalidInput, match=told):
        OperatorSpec(name="reader", knobs=(model,), calls=(EndpointCall(endpoint="e", when=when),))


def test_one_is_not_true_where_calls_depend_on_a_knob() -> None:
    call = EndpointCall(endpoint="e", when={"deep": True})
    assert call.holds({"deep": True})
    assert not call.holds({"deep": 1})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"machines": 3}, "tier api.machines must be left out"),
        ({"price_usd_per_hour": 1.0}, "tier api.price_usd_per_hour must be left out"),
        ({"dedicated": True}, "tier api.dedicated must be left out"),
    ],
)
def test_a_tier_that_is_called_has_no_machines_of_ours(
    given: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        Tier(name="api", endpoints=(Endpoint(name="m"),), **given)  # type: ignore[arg-type]  # any


def test_a_tier_that_is_called_is_remote_and_requests_do_not_start_there() -> None:
    api = Tier(name="api", endpoints=(Endpoint(name="m"),))
    assert (api.remote, api.machines) == (True, 0)
    device = Tier(name="device")
    link = Link(between=("device", "api"), bandwidth_bytes_per_s=1e6)
    found = Infrastructure(name="lab", tiers=(device, api), links=(link,))
    assert [each.name for each in found.endpoints] == ["m"]
    with pytest.raises(InvalidInput, match="origin must be a tier with machines"):
        Infrastructure(name="lab", tiers=(device, api), links=(link,), origin="api")


def test_an_endpoint_of_two_tiers_has_two_names() -> None:
    tiers = (Tier(name="device"), *(Tier(name=n, endpoints=(Endpoint(name="m"),)) for n in "ab"))
    links = tuple(Link(between=("device", n), bandwidth_bytes_per_s=1e6) for n in "ab")
    with pytest.raises(InvalidInput, match=r"infrastructure\.endpoints must not repeat, got 'm'"):
        Infrastructure(name="lab", tiers=tiers, links=links)


def failed(status: int, **headers: str) -> Exception:
    """Return the error of a client that keeps the response, as those of hosted models do."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = httpx.Request("POST", "http://localhost")
    response = httpx.Response(status, headers=sent, request=request)
    return httpx.HTTPStatusError("failed", request=request, response=response)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"attempts": 0}, "retries.attempts must be >= 1, got 0"),
        ({"first_wait_s": -0.1}, "retries.first_wait_s must be finite and >= 0"),
        ({"timeout_s": 0.0}, "retries.timeout_s must be finite and > 0"),
    ],
)
def test_retries_that_cannot_be_are_refused(given: dict[str, float], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        CallRetries(**given)  # type: ignore[arg-type]  # whole numbers where they must be


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_is_wrong_with_the_request_is_not_tried_again(status: int) -> None:
    assert CallRetries().wait_s(1, failed(status), 0.0, 0.5) is None


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_tried_again(status: int) -> None:
    assert CallRetries().wait_s(1, failed(status), 0.0, 0.5) is not None


def test_errors_without_a_status_pass_if_they_are_of_the_way() -> None:
    assert is_passing(TimeoutError())
    assert is_passing(ConnectionResetError())
    assert is_passing(httpx.ReadTimeout("late"))
    assert not is_passing(ValueError("nonsense"))
    assert not is_passing(KeyError("answer"))


def test_a_status_is_that_of_the_error_or_of_its_response() -> None:
    error = RuntimeError()
    assert status_of(error) is None
    error.status_code = 503  # type: ignore[attr-defined]  # as clients of hosted models do
    assert status_of(error) == 503
    assert status_of(failed(429)) == 429


def test_the_last_attempt_is_the_last() -> None:
    retries = CallRetries(attempts=2, first_wait_s=1.0)
    assert retries.wait_s(1, failed(500), 0.0, 0.0) == 0.5
    assert retries.wait_s(2, failed(500), 0.0, 0.0) is None
    assert CallRetries(attempts=1).wait_s(1, failed(500), 0.0, 0.0) is None


@given(attempt=st.integers(1, 60), chance=st.floats(0, 1, exclude_max=True))
def test_waits_double_up_to_the_longest_and_are_spread_over_their_second_half(
    attempt: int, chance: float
) -> None:
    retries = CallRetries(attempts=100, first_wait_s=0.5, longest_wait_s=30.0)
    full = min(0.5 * 2 ** (attempt - 1), 30.0)
    wait_s = retries.wait_s(attempt, failed(500), 0.0, chance)
    assert wait_s is not None
    assert full / 2 <= wait_s <= full


def test_an_endpoint_that_asks_to_wait_is_obeyed() -> None:
    retries = CallRetries(longest_wait_s=60.0)
    assert retries.wait_s(1, failed(429, retry_after="20"), 0.0, 0.5) == 20.0
    assert retries.wait_s(1, failed(429, retry_after_ms="1500"), 0.0, 0.5) == 1.5
    date = "Thu, 01 Jan 1970 00:02:00 GMT"  # 120 s after the epoch
    assert retries.wait_s(1, failed(503, retry_after=date), 90.0, 0.5) == 30.0


def test_an_endpoint_that_asks_to_wait_for_longer_than_anybody_would_is_left() -> None:
    assert (
        CallRetries(longest_wait_s=5.0).wait_s(1, failed(429, retry_after="6"), 0.0, 0.5) is None
    )


@pytest.mark.parametrize("told", ["soon", "nan", ""])
def test_a_wait_that_is_no_time_is_as_none(told: str) -> None:
    assert retry_after_s(failed(429, retry_after=told), 0.0) is None


def test_a_date_that_is_over_is_no_wait() -> None:
    date = "Thu, 01 Jan 1970 00:02:00 GMT"
    assert retry_after_s(failed(429, retry_after=date), 500.0) == 0.0


def test_an_error_whose_response_has_no_headers_asks_for_nothing() -> None:
    error = RuntimeError()
    error.response = SimpleNamespace(status_code=429)  # type: ignore[attr-defined]  # as clients do
    assert retry_after_s(error, 0.0) is None


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
