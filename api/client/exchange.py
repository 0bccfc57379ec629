"""How a call gets its answer: tried again where that is safe, asked for anew only if it changed.

Generators that say what to do and are told what came of it, so that this is written once: a client
drives them, blocking or not (`clients`).
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

import httpx
from pydantic import ValidationError

from circinus.api.client.calls import Call, Repeat
from circinus.api.schemas.base import ProblemDetails
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable

_RETRY_AFTER_S = 1.0
_REMEMBERED = 200  # answers with an ETag
_BROKEN_RULES = frozenset({400, 413, 415, 422})
_FOR_NOW = frozenset({429, 503})
_UNCHANGED = 304
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

Answer = TypeVar("Answer")


class Refused(CircinusError):
    """The service answered with a problem that is no broken rule of an input."""

    def __init__(self, problem: ProblemDetails) -> None:
        self.problem = problem  # its document
        super().__init__(problem.detail or problem.title)


def _chance() -> float:
    return secrets.randbelow(1000) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often, and for how long, a client tries what may be tried again."""

    tries: int = 8  # of a call, `>= 1`; 1: it is not repeated
    total_s: float = 30.0  # that the pauses between them may take, `>= 0`
    first_s: float = 0.2  # pause after the first try, `> 0`; each is twice as long as before
    longest_s: float = 5.0  # pause, unless the service asks for a longer one, `> 0`
    silent_s: float = 120.0  # after which somebody who follows events gives a service up, `>= 0`
    chance: Callable[[], float] = _chance  # in [0, 1): clients that failed at once come apart

    def __post_init__(self) -> None:
        checks.at_least("retries.tries", self.tries, 1)
        for name in ("first_s", "longest_s"):
            checks.positive(f"retries.{name}", getattr(self, name))
        for name in ("total_s", "silent_s"):
            checks.non_negative(f"retries.{name}", getattr(self, name))

    def pause_s(self, failed: int) -> float:
        """Return the pause after so many tries in a row that failed, `>= 1`."""
        longest = min(self.first_s * 2.0 ** min(failed - 1, 60), self.longest_s)
        return longest * (0.5 + self.chance() / 2)


NO_RETRIES = Retries(tries=1, total_s=0.0, silent_s=0.0)


@dataclass(frozen=True, slots=True)
class Sending:
    """Wants a call to be sent, and its response, or the `httpx.HTTPError` that came of it."""

    call: Call[Any]
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Pausing:
    """Wants so many seconds to pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Working:
    """Wants something to be done here that may take long, such as reading a file."""

    does: Callable[[], object]


Step: TypeAlias = Sending | Pausing | Working
Exchange: TypeAlias = Generator[Step, Any, Answer]
"""What leads to an answer, step by step; is told what each step gave, or the error."""
Talk: TypeAlias = Generator[Call[Any] | Working, Any, Answer]
"""Calls that depend on what the ones before gave, and what comes of them."""


@dataclass(slots=True, kw_only=True, eq=False)
class Exchanges:
    """Makes the exchanges of one client with its service. Safe to share between threads."""

    base_url: str  # for messages
    retries: Retries
    clock: Clock
    _known: OrderedDict[tuple[object, ...], tuple[str, object]] = field(
        default_factory=OrderedDict, init=False
    )  # call -> ETag and answer

    def of(self, talk: Talk[Answer]) -> Exchange[Answer]:
        """Yield the answer that a talk comes to; errors as `answer`, unless it handles them."""
        try:
            step = next(talk)
            while True:
                try:
                    given = (
                        (yield step)
                        if isinstance(step, Working)
                        else (yield from self.answer(step))
                    )
                except CircinusError as error:
                    step = talk.throw(error)
                else:
                    step = talk.send(given)
        except StopIteration as end:
            return cast("Answer", end.value)

    def answer(self, call: Call[Answer]) -> Exchange[Answer]:
        """Yield the answer to a call.

        InvalidInput for an input that breaks rules, Refused for any other problem that the service
        names, Unavailable if it cannot answer now, or answers as no version of ours does.
        """
        trouble: CircinusError
        failed, until = 0, self.clock.now() + self.retries.total_s
        while True:
            try:
                sending = Sending(call, {**call.headers, **self._condition(call)})
                response = cast("httpx.Response", (yield sending))
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise not_a_url(error, self.base_url) from error
            except httpx.HTTPError as error:
                trouble, asked_s = self.silent(error), 0.0
                again = _may_repeat(call, unsent=isinstance(error, _UNSENT))
            else:
                if response.status_code not in _FOR_NOW:
                    return self._read(call, response)
                trouble = problem_in(response)
                asked_s, again = retry_after_s(response), _may_repeat(call, unsent=False)
            failed += 1
            pause_s = max(self.retries.pause_s(failed), asked_s)
            over = failed >= self.retries.tries or self.clock.now() + pause_s > until
            if over or not again:
                raise trouble
            yield Pausing(pause_s)

    def silent(self, error: httpx.HTTPError) -> Unavailable:
        """Return what it means that no answer came."""
        told = str(error) or type(error).__name__
        reason = f"no service answers at {self.base_url} ({told})"
        found = Unavailable(reason, retry_after_s=_RETRY_AFTER_S)
        found.__cause__ = error  # it is raised later, if at all
        return found

    def _condition(self, call: Call[Any]) -> dict[str, str]:
        known = self._known.get(call.key) if call.method == "GET" else None
        return {} if known is None else {"If-None-Match": known[0]}

    def _read(self, call: Call[Answer], response: httpx.Response) -> Answer:
        known = self._known.get(call.key)
        if response.status_code == _UNCHANGED and known is not None:
            return cast("Answer", known[1])
        if not response.is_success:
            raise problem_in(response)
        try:
            answer = call.read(response.content)
        except ValueError as error:  # pydantic's are, too
            reason = f"{self.base_url} answers, but not as this version of Circinus expects"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S) from error
        if call.method == "GET" and (tag := response.headers.get("ETag")) is not None:
            self._known[call.key] = (tag, answer)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return answer


def not_a_url(error: Exception, url: str) -> InvalidInput:
    """Return the error for an address that is none."""
    return InvalidInput.of("url", f"must be a URL ({error})", url)


def problem_in(response: httpx.Response) -> CircinusError:
    """Return the error that an answer stands for which is no success."""
    try:
        problem = ProblemDetails.model_validate_json(response.content)
    except ValidationError:  # a proxy in between, or no service of ours
        detail = f"HTTP {response.status_code} {response.reason_phrase}"
        problem = ProblemDetails(title=detail, status=response.status_code, detail=detail)
    if problem.errors and response.status_code in _BROKEN_RULES:
        return InvalidInput(problem.errors)
    if response.status_code in _FOR_NOW:
        return Unavailable(problem.detail, retry_after_s=retry_after_s(response))
    return Refused(problem)


def retry_after_s(response: httpx.Response) -> float:
    """Return the seconds after which a service asks to be tried again."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else _RETRY_AFTER_S


def _may_repeat(call: Call[Any], *, unsent: bool) -> bool:
    return call.repeat is Repeat.ALWAYS or (call.repeat is Repeat.UNSENT and unsent)
