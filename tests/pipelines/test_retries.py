"""Which calls that failed are made anew, and after how long."""

from __future__ import annotations

from types import SimpleNamespace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import CallRetries, is_passing, retry_after_s, status_of


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
