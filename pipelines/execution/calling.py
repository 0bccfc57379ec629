"""Operators that call endpoints: a permit before each attempt, settled with what it used.

The runner of such an operator asks a gate first, which waits for rate limits and reserves the most
that the attempt may cost. The one rule: no attempt without a permit, and every permit is settled,
with what was used, or if that is unknown, with the most that it may be. Operators report usage
by `report_usage`; LangChain's chat models do so by themselves.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import reduce
from itertools import count
from math import inf
from threading import Lock
from typing import NamedTuple, Protocol
from uuid import uuid4

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import OperatorFailed
from circinus.pipelines.execution.pipeline import run_operator
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import (
    LONGEST_CALL_S,
    NOTHING_USED,
    Endpoint,
    Usage,
    status_of,
)
from circinus.pipelines.model.operators import Operator
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import UNPLANNABLE

_ROUNDING = 1 + 1e-9  # of sums


class UsageReport(NamedTuple):
    """One call that was made, as its caller reports it."""

    endpoint: str
    used: Usage | None  # None: not known, so it counts as the most that a call may use
    usd: float | None  # as charged; None: by the endpoint's price


_reports: ContextVar[list[UsageReport] | None] = ContextVar("reports", default=None)


def report_usage(
    endpoint: str,
    *,
    input_tokens: float = 0,
    cached_tokens: float = 0,
    output_tokens: float = 0,
    calls: float = 1,
    usd: float | None = None,
) -> None:
    """Report what calling an endpoint used, from within an operator; also a failed call.

    Cached tokens are some of the input tokens. Dollars that are left out are worked out from the
    endpoint's price. Where Circinus does not run the operator, nothing happens.
    InvalidInput if a figure is negative or not finite, or more is cached than read.
    """
    figures = {
        "input_tokens": input_tokens,
        "cached_tokens": cached_tokens,
        "output_tokens": output_tokens,
        "calls": calls,
        "usd": usd,
    }
    for name, value in figures.items():
        checks.non_negative(f"usage of {endpoint}, {name}", value)
    rule = "must be at most the input tokens"
    checks.require(
        cached_tokens <= input_tokens, f"usage of {endpoint}, cached_tokens", rule, cached_tokens
    )
    reports = _reports.get()
    if reports is not None:
        used = Usage(calls, input_tokens, cached_tokens, output_tokens)
        reports.append(UsageReport(endpoint, used, usd))


def report_lost(endpoint: str) -> None:
    """Report a call whose answer was lost on the way.

    It counts as the most that it may have used, if that is bounded. Where Circinus does not run
    the operator, nothing happens.
    """
    reports = _reports.get()
    if reports is not None:
        reports.append(UsageReport(endpoint, None, None))


def is_collecting() -> bool:
    """Return whether an `EndpointCaller` collects what is reported now."""
    return _reports.get() is not None


@contextmanager
def collected() -> Iterator[list[UsageReport]]:
    """Collect what is reported inside, by this thread and by contexts copied from it."""
    reports: list[UsageReport] = []
    token = _reports.set(reports)
    try:
        yield reports
    finally:
        _reports.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What one attempt may use, by endpoint; `ticket` is the gate's own."""

    operator: str
    most: Mapping[str, Usage]  # endpoint -> the most that the attempt may use of it
    ticket: str = ""


class PermitGate(Protocol):
    """Permits to call, within rate limits and money. Threads may share it."""

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """Return leave for one attempt, as soon as all limits allow it.

        Unaffordable if the money that is left would not do; Stopped if nothing is to be run any
        more. Until it is settled the most that it may use counts as used.
        """

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Record what an attempt used, by endpoint, its dollars included."""


class OpenGate:
    """A gate that is always open: no limits, no cap."""

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """Permit every attempt at once."""
        return Permit(operator=operator, most=most)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Keep no account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """The result of an operator that calls endpoints, all attempts together."""

    output: Payload = None
    failure: OperatorFailed | None = None  # why there is no output; None: there is one
    used: Usage = NOTHING_USED  # by all attempts
    seconds: float = 0.0  # of attempts and the waits between them, those for leave left out


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointCaller:
    """Runs operators that call endpoints."""

    endpoints: Mapping[str, Endpoint]  # by name: all that there are
    gate: PermitGate
    clock: Clock
    rng: np.random.Generator  # spreads the waits of many callers
    longest_s: float = inf  # that an attempt may take, whatever operators and endpoints set, `> 0`
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def run(self, operator: Operator, inputs: Payload, configuration: Configuration) -> Called:
        """Return the output for the inputs, with as many attempts as `retries` allow.

        Raises what the gate raises.
        """
        most = most_of(operator, configuration, self.endpoints)
        timeout_s = min(time_limit_s(operator, most, self.endpoints), self.longest_s)
        used, seconds = NOTHING_USED, 0.0
        for attempt in count(1):
            permit = self.gate.admit(operator.name, most)
            by_endpoint = _finite(most)
            try:
                began = self.clock.now()
                tried = _attempted(operator, inputs, configuration, timeout_s)
                elapsed_s = self.clock.now() - began
                tried, by_endpoint = self._priced(tried, operator, most, elapsed_s)
            finally:  # whatever happens: others wait for what its permit reserved
                self.gate.settle(permit, by_endpoint)
            used = reduce(Usage.plus, by_endpoint.values(), used)
            seconds += elapsed_s
            wait_s = self._wait_s(operator, attempt, tried.failure)
            if wait_s is None:
                break
            self.clock.sleep(wait_s)
            seconds += wait_s
        return Called(output=tried.output, failure=tried.failure, used=used, seconds=seconds)

    def _wait_s(
        self, operator: Operator, attempt: int, failure: OperatorFailed | None
    ) -> float | None:
        if failure is None:
            return None
        with self._lock:
            chance = float(self.rng.random())
        cause = failure.__cause__ or failure
        return operator.retries.wait_s(attempt, cause, self.clock.timestamp(), chance)

    def _priced(
        self, tried: _Tried, operator: Operator, most: Mapping[str, Usage], seconds: float
    ) -> tuple[_Tried, dict[str, Usage]]:
        """Return what an attempt used of each endpoint, at its price; seconds are charged once.

        Without a report, a refused attempt (a status of 400 to 499) is free. One lost on the way
        is charged as the most that it may have been, if that is bounded. One that succeeded fails,
        unless its price is known all the same. An attempt that reports more than it declared
        fails, too, and is charged what it reports.
        """
        if not tried.reports and tried.failure is not None:
            error = tried.failure.__cause__
            refused = error is not None and 400 <= (status_of(error) or 0) < 500
            made = Usage(calls=1.0)
            return tried, dict.fromkeys(most, made) if refused else _finite(most)
        if not tried.reports:
            by_token = [name for name in most if self.endpoints[name].price.is_by_token]
            if by_token:
                cause = f"it must tell what it used of {by_token[0]} (report_usage)"
                return _unplannable(tried, operator, cause), _finite(most)
        silent = [UsageReport(name, Usage(calls=1.0), None) for name in most]
        by_endpoint: dict[str, Usage] = {}
        for report in tried.reports or silent:
            if (endpoint := self.endpoints.get(report.endpoint)) is None:
                continue  # its price is unknown
            before = by_endpoint.get(report.endpoint)
            one = _used(report, endpoint, seconds if before is None else 0.0)
            by_endpoint[report.endpoint] = one if before is None else before.plus(one)
        if (violation := _undeclared(tried.reports, by_endpoint, most)) is not None:
            return _unplannable(tried, operator, violation), by_endpoint
        return tried, by_endpoint


def _used(report: UsageReport, endpoint: Endpoint, seconds: float) -> Usage:
    """Return what one report comes to, at the endpoint's price where it states no dollars."""
    if report.used is None:
        return endpoint.largest.finite
    usd = endpoint.price.usd(report.used, seconds) if report.usd is None else report.usd
    return report.used._replace(usd=usd)


def _undeclared(
    reports: Sequence[UsageReport], used: Mapping[str, Usage], most: Mapping[str, Usage]
) -> str | None:
    """Return how reports go beyond what the operator declared; None: they do not.

    More tokens than an endpoint's bounds are no violation of the operator's.
    """
    for name in dict.fromkeys(report.endpoint for report in reports):
        if name not in most:
            rule = f"calls must name every endpoint that report_usage tells of ({', '.join(most)})"
            return f"{rule}, got {name}"
        if used[name].calls > most[name].calls:
            rule = f"calls must be at most {most[name].calls:g} of {name} in a run"
            return f"{rule} (EndpointCall(most=...)), got {used[name].calls:g}"
    for name in dict.fromkeys(report.endpoint for report in reports if report.usd is not None):
        if used[name].usd > most[name].usd * _ROUNDING:
            rule = f"usd of {name} must be at most what a run may cost, {most[name].usd:.4g}"
            return f"{rule}, got {used[name].usd:.4g}"
    return None


def most_of(
    operator: Operator, configuration: Configuration, endpoints: Mapping[str, Endpoint]
) -> dict[str, Usage]:
    """Return the most that one attempt may use of each endpoint that the operator calls.

    InvalidInput if one is not there.
    """
    most: dict[str, Usage] = {}
    for call in operator.spec.called(configuration.of(operator.name)):
        checks.among(f"operator {operator.name}.calls", call.endpoint, endpoints)
        one = endpoints[call.endpoint].largest
        each = Usage(*(figure * call.most if figure else 0.0 for figure in one))
        most[call.endpoint] = most.get(call.endpoint, NOTHING_USED).plus(each)
    return most


def time_limit_s(
    operator: Operator, called: Iterable[str], endpoints: Mapping[str, Endpoint]
) -> float:
    """Return the seconds after which an attempt is given up: the operator's, or its endpoints'."""
    own = operator.retries.timeout_s
    each = (endpoints[name].timeout_s for name in called)
    return max(each, default=LONGEST_CALL_S) if own is None else own


def _finite(most: Mapping[str, Usage]) -> dict[str, Usage]:
    return {name: one.finite for name, one in most.items()}


class _Tried(NamedTuple):
    """The outcome of one attempt."""

    output: Payload
    failure: OperatorFailed | None
    reports: Sequence[UsageReport]


def _unplannable(tried: _Tried, operator: Operator, why: str) -> _Tried:
    failure = OperatorFailed(operator.name, f"{UNPLANNABLE}{why}")
    return tried._replace(output=None, failure=failure)


def _attempted(
    operator: Operator, inputs: Payload, configuration: Configuration, timeout_s: float
) -> _Tried:
    """Make one attempt, in a thread of its own that is abandoned once the time is over."""
    done: queue.SimpleQueue[_Tried] = queue.SimpleQueue()

    def attempt() -> None:
        with collected() as reports:
            try:
                tried = _Tried(run_operator(operator, inputs, configuration), None, reports)
            except OperatorFailed as error:
                tried = _Tried(None, error, reports)
            done.put(tried)

    context = copy_context()
    threading.Thread(target=context.run, args=(attempt,), daemon=True).start()
    try:
        return done.get(timeout=timeout_s)
    except queue.Empty:
        failure = OperatorFailed(operator.name, f"TimeoutError: no answer in {timeout_s:g} s")
        failure.__cause__ = TimeoutError()
        return _Tried(None, failure, [])


@dataclass(eq=False, slots=True)
class GateChain:
    """Asks gates one after the other, in their order; see `all_of`."""

    gates: Sequence[PermitGate]
    _permits: dict[str, list[Permit]] = field(default_factory=dict, init=False)  # by own ticket
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """Ask gate after gate; if one refuses, settle with those before it as not used."""
        permits: list[Permit] = []
        try:
            for gate in self.gates:
                permits.append(gate.admit(operator, most))  # noqa: PERF401 - needed if one refuses
        except BaseException:
            self._settle(permits, {})
            raise
        permit = Permit(operator=operator, most=most, ticket=uuid4().hex)
        with self._lock:
            self._permits[permit.ticket] = permits
        return permit

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Settle with every gate."""
        with self._lock:
            permits = self._permits.pop(permit.ticket, [])
        self._settle(permits, used)

    def _settle(self, permits: Sequence[Permit], used: Mapping[str, Usage]) -> None:
        """Settle with every gate, the last first, whatever one of them raises."""
        first: BaseException | None = None
        for gate, permit in reversed(list(zip(self.gates, permits, strict=False))):
            try:
                gate.settle(permit, used)
            except Exception as error:  # noqa: BLE001 - raised once the others were notified
                first = first or error
        if first is not None:
            raise first


def all_of(gates: Sequence[PermitGate]) -> PermitGate:
    """Return a gate that permits what all gates permit, called in their order.

    The ones that wait long go first: later permits are not held meanwhile, so money comes after
    rate limits.
    """
    return gates[0] if len(gates) == 1 else GateChain(tuple(gates))
