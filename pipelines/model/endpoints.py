"""Endpoints: models that others run, called over the network and paid by the call.

A tier with endpoints is remote: no machine of it is rented or shared out. Rate limits bound it,
calls and tokens cost. Only failures that another attempt may mend are tried again: time-outs, lost
connections, an endpoint that is overloaded or asks to wait.
"""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Annotated, NamedTuple, Self

from circinus.pipelines import checks, ranges
from circinus.pipelines.backoff import Backoff

_MILLION = 1e6

LONGEST_CALL_S = 600.0
"""Seconds that a call may take where nothing limits it: what its price per second is bounded
by."""


class Usage(NamedTuple):
    """What was used of endpoints, of one operator in one run or of many together."""

    calls: float = 0.0  # attempts that reached an endpoint, failed ones included, `>= 0`
    input_tokens: float = 0.0  # those read, cached ones included, `>= 0`
    cached_tokens: float = 0.0  # of these, what the endpoint had read before, `<= input_tokens`
    output_tokens: float = 0.0  # written, `>= 0`
    usd: float = 0.0  # US dollars, `>= 0`

    @property
    def tokens(self) -> float:
        """Tokens read and written: what limits per minute count."""
        return self.input_tokens + self.output_tokens

    @property
    def finite(self) -> Usage:
        """The same with 0 for what is infinite: its amount is unknown."""
        return Usage(*(figure if isfinite(figure) else 0.0 for figure in self))

    def plus(self, other: Usage) -> Usage:
        """Return what both used together."""
        return Usage(*(a + b for a, b in zip(self, other, strict=True)))


NOTHING_USED = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPrice:
    """What calling costs, in US dollars; parts that are not charged are 0."""

    input_usd_per_million: Annotated[float, ranges.USD_PER_MILLION] = 0.0  # tokens read
    # of them, those cached; None: as others
    cached_usd_per_million: Annotated[float, ranges.USD_PER_MILLION] | None = None
    output_usd_per_million: Annotated[float, ranges.USD_PER_MILLION] = 0.0  # tokens written
    call_usd: Annotated[float, ranges.CALL_USD] = 0.0  # each call
    usd_per_s: Annotated[float, ranges.USD_PER_S] = 0.0  # each second that it takes
    source: str = ""  # where the price is from and of which day, in words

    def __post_init__(self) -> None:
        ranges.check_fields("price.", self)

    @property
    def is_by_token(self) -> bool:
        """Whether tokens cost some: then the price of a call without a report is unknown."""
        tokens = (
            self.input_usd_per_million,
            self.cached_usd_per_million,
            self.output_usd_per_million,
        )
        return any(tokens)

    def usd(self, used: Usage, seconds: float = 0.0) -> float:
        """Return the dollars of calls of so many tokens and so many seconds in all."""
        cached = self.cached_usd_per_million
        cached = self.input_usd_per_million if cached is None else cached
        fresh = used.input_tokens - used.cached_tokens
        tokens = (
            fresh * self.input_usd_per_million
            + used.cached_tokens * cached
            + used.output_tokens * self.output_usd_per_million
        )
        return tokens / _MILLION + used.calls * self.call_usd + seconds * self.usd_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """How much of an endpoint may be used; None: any amount."""

    # calls that begin in any 60 s
    requests_per_minute: Annotated[int, ranges.REQUESTS_PER_MINUTE] | None = None
    # read and written in any 60 s
    tokens_per_minute: Annotated[int, ranges.TOKENS_PER_MINUTE] | None = None
    concurrent: Annotated[int, ranges.CONCURRENT] | None = None  # calls under way at once

    def __post_init__(self) -> None:
        ranges.check_fields("limits.", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A hosted model that operators call."""

    name: str  # unique within the infrastructure; what an operator's `calls` names
    price: CallPrice = field(default_factory=CallPrice)
    limits: RateLimits = field(default_factory=RateLimits)
    # Most tokens that one call may read and write; None: not bounded, so the endpoint is
    # refused where money is capped and such tokens cost some
    most_input_tokens: Annotated[int, ranges.TOKENS] | None = None
    most_output_tokens: Annotated[int, ranges.TOKENS] | None = None
    # after which a call is given up
    timeout_s: Annotated[float, ranges.TIMEOUT_S] = LONGEST_CALL_S

    def __post_init__(self) -> None:
        checks.name("endpoint.name", self.name)
        ranges.check_fields(f"endpoint {self.name}.", self)

    @property
    def largest(self) -> Usage:
        """The most that one call may use, its dollars included; infinite where it is not bounded.

        Input that was cached is taken to be none.
        """
        bounds = (self.most_input_tokens, self.most_output_tokens)
        read, written = (inf if bound is None else float(bound) for bound in bounds)
        price = self.price
        free = price.cached_usd_per_million or 0.0
        dear = max(price.input_usd_per_million, free)
        tokens = sum(
            0.0 if each == 0 else count * each / _MILLION
            for count, each in ((read, dear), (written, price.output_usd_per_million))
        )
        usd = tokens + price.call_usd + self.timeout_s * price.usd_per_s
        return Usage(calls=1.0, input_tokens=read, output_tokens=written, usd=usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointCall:
    """That an operator calls an endpoint, under some of its settings or all."""

    endpoint: str  # name of the endpoint
    # knob of the operator -> the value with which it calls; empty: whatever its settings
    when: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    most: int = 1  # calls that one run may make, attempts that are made anew not counted, `>= 1`

    def __post_init__(self) -> None:
        checks.name("call.endpoint", self.endpoint)
        checks.at_least(f"call of {self.endpoint}.most", self.most, 1)

    def holds(self, settings: Mapping[str, str | int | float | bool]) -> bool:
        """Return whether it calls under these settings of its operator."""
        return all(_same(settings.get(knob), value) for knob, value in self.when.items())

    @classmethod
    def of(
        cls, call: str | EndpointCall, knobs: Mapping[str, tuple[object, ...]]
    ) -> Self | EndpointCall:
        """Return the call that a name stands for, of an operator with such knobs and values.

        An endpoint that is a value of one of the knobs is called where the knob has it, another
        one always.
        """
        if isinstance(call, EndpointCall):
            return call
        chosen = next((knob for knob, values in knobs.items() if call in values), None)
        return cls(endpoint=call, when={} if chosen is None else {chosen: call})


def _same(a: object, b: object) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)  # 1 is not True


_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which another attempt may succeed (RFC 9110, RFC 6585; 529: overloaded)."""

_LOST = frozenset(
    {"TimeoutError", "ConnectionError", "APITimeoutError", "APIConnectionError", "TransportError"}
)
"""Names of errors, and of what they derive from, that do not concern the request: Python's own,
and those of the clients of hosted models and of httpx."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetries:
    """How often a failed call is made anew, and after how long."""

    attempts: int = 3  # in all, `>= 1`; 1: none is made anew
    first_wait_s: float = 0.5  # before the second attempt, `>= 0`; doubled before each further one
    longest_wait_s: float = 30.0  # of these waits, and of one that the endpoint asks for, `>= 0`
    timeout_s: float | None = None  # of one attempt, `> 0`; None: that of the endpoint

    def __post_init__(self) -> None:
        checks.at_least("retries.attempts", self.attempts, 1)
        checks.non_negative("retries.first_wait_s", self.first_wait_s)
        checks.non_negative("retries.longest_wait_s", self.longest_wait_s)
        checks.positive("retries.timeout_s", self.timeout_s)

    def wait_s(
        self, attempt: int, error: BaseException, now_s: float, chance: float
    ) -> float | None:
        """Return how long to wait after an attempt that failed; None: it is not made anew.

        Attempts are counted from 1; `now_s` is the time of the day in seconds since 1970, `chance`
        in [0, 1) spreads the waits of many callers over half to all of the time. An endpoint that
        asks for longer than `longest_wait_s` is not asked again.
        """
        if attempt >= self.attempts or not is_passing(error):
            return None
        requested_s = retry_after_s(error, now_s)
        if requested_s is not None:
            return requested_s if requested_s <= self.longest_wait_s else None
        return Backoff(self.first_wait_s, self.longest_wait_s).spread_s(attempt, chance)


def is_passing(error: BaseException) -> bool:
    """Return whether another attempt may succeed where this one failed."""
    status = status_of(error)
    if status is not None:
        return status in _AGAIN
    return any(kind.__name__ in _LOST for kind in type(error).__mro__)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error; None: it has none.

    Clients of hosted models keep it in `status_code`, of the error or of its `response`.
    """
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int):
            return status
    return None


def retry_after_s(error: BaseException, now_s: float) -> float | None:
    """Return the seconds that the endpoint asks to wait, `>= 0`; None: it asks for none.

    From `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3), or `retry-after-ms`.
    """
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return None
    by_name = {str(name).lower(): str(value) for name, value in headers.items()}
    milliseconds, header = by_name.get("retry-after-ms"), by_name.get("retry-after")
    seconds = _number(milliseconds)
    if seconds is not None:
        return max(seconds / 1000, 0.0)
    seconds = _number(header)
    if seconds is not None or header is None:
        return None if seconds is None else max(seconds, 0.0)
    try:
        return max(email.utils.parsedate_to_datetime(header).timestamp() - now_s, 0.0)
    except (TypeError, ValueError):
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number == number else None  # NaN is not itself
