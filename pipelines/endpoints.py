"""Endpoints: models that others run, called over the network and paid by the call.

A tier whose endpoints are listed is remote: it has no machines of ours, so nothing of it is rented
or shared out. What bounds it are rate limits; what it costs is counted per call and per token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import inf, isfinite
from typing import NamedTuple, Self

from circinus.pipelines import checks

_MILLION = 1e6

LONGEST_CALL_S = 600.0
"""Seconds that a call may take where nothing says how long: what its price per second is bounded
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
    def told(self) -> Usage:
        """The same with 0 for what is infinite: nobody knows how much of it there was."""
        return Usage(*(figure if isfinite(figure) else 0.0 for figure in self))

    def plus(self, other: Usage) -> Usage:
        """Return what both used together."""
        return Usage(*(a + b for a, b in zip(self, other, strict=True)))


NOTHING_USED = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPrice:
    """What calling costs, in US dollars; parts that are not charged are 0."""

    input_usd_per_million: float = 0.0  # tokens read, `>= 0`
    cached_usd_per_million: float | None = None  # of them, those cached, `>= 0`; None: as others
    output_usd_per_million: float = 0.0  # tokens written, `>= 0`
    call_usd: float = 0.0  # each call, `>= 0`
    usd_per_s: float = 0.0  # each second that it takes, `>= 0`
    source: str = ""  # where the price is from and of which day, in words

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name != "source":
                checks.non_negative(f"price.{each.name}", getattr(self, each.name))

    @property
    def is_by_token(self) -> bool:
        """Whether tokens cost some: then nobody knows the price of a call that does not tell."""
        tokens = (
            self.input_usd_per_million,
            self.cached_usd_per_million,
            self.output_usd_per_million,
        )
        return any(tokens)

    def usd(self, used: Usage, seconds: float = 0.0) -> float:
        """Return the dollars of calls that used so many tokens and took so many seconds in all."""
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

    requests_per_minute: int | None = None  # calls that begin in any 60 s, `>= 1`
    tokens_per_minute: int | None = None  # read and written in any 60 s, `>= 1`
    concurrent: int | None = None  # calls under way at once, `>= 1`

    def __post_init__(self) -> None:
        for each in fields(self):
            checks.at_least(f"limits.{each.name}", getattr(self, each.name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A hosted model that operators call."""

    name: str  # unique within the infrastructure; what an operator's `calls` names
    price: CallPrice = field(default_factory=CallPrice)
    limits: RateLimits = field(default_factory=RateLimits)
    # Most tokens that one call may read and write, `>= 1`; None: not bounded, so the endpoint is
    # refused where money is capped and such tokens cost some
    most_input_tokens: int | None = None
    most_output_tokens: int | None = None
    timeout_s: float = LONGEST_CALL_S  # after which a call is given up, `> 0`

    def __post_init__(self) -> None:
        checks.name("endpoint.name", self.name)
        where = f"endpoint {self.name}"
        checks.at_least(f"{where}.most_input_tokens", self.most_input_tokens, 1)
        checks.at_least(f"{where}.most_output_tokens", self.most_output_tokens, 1)
        checks.positive(f"{where}.timeout_s", self.timeout_s)

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
        """Say whether it calls under these settings of its operator."""
        return all(_same(settings.get(knob), value) for knob, value in self.when.items())

    @classmethod
    def of(
        cls, told: str | EndpointCall, knobs: Mapping[str, tuple[object, ...]]
    ) -> Self | EndpointCall:
        """Return the call that a name stands for, of an operator with such knobs and values.

        An endpoint that is a value of one of the knobs is called where the knob has it, another
        one always.
        """
        if isinstance(told, EndpointCall):
            return told
        chosen = next((knob for knob, values in knobs.items() if told in values), None)
        return cls(endpoint=told, when={} if chosen is None else {chosen: told})


def _same(a: object, b: object) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)  # 1 is not True
