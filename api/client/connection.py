"""One service over HTTP: calls are repeated where that is safe, and unchanged answers reused."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack, cast

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from circinus.api.schemas.base import ProblemDetails
from circinus.api.schemas.violations import checked
from circinus.api.settings import service_address
from circinus.pipelines import checks
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable

_TIMEOUT_S = 30.0
_RETRY_AFTER_S = 1.0
_REMEMBERED = 200  # answers with an ETag
_BROKEN_RULES = frozenset({400, 413, 415, 422})
_FOR_NOW = frozenset({429, 503})
_UNCHANGED = 304
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

Answer = TypeVar("Answer")
View = TypeVar("View", bound=BaseModel)
Body = TypeVar("Body", bound=BaseModel)
Document: TypeAlias = Mapping[str, object]
"""A body that is checked before it is sent."""


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
    longest_s: float = 5.0  # pause, unless the service requires a longer one, `> 0`
    silent_s: float = 120.0  # after which a reader of events abandons a service, `>= 0`
    chance: Callable[[], float] = _chance  # in [0, 1): spreads clients that failed at once

    def __post_init__(self) -> None:
        checks.at_least("retries.tries", self.tries, 1)
        for name in ("first_s", "longest_s"):
            checks.positive(f"retries.{name}", getattr(self, name))
        for name in ("total_s", "silent_s"):
            checks.non_negative(f"retries.{name}", getattr(self, name))

    def pause_s(self, failed: int) -> float:
        """Return the pause after so many tries in a row that failed, `>= 1`."""
        return Backoff(self.first_s, self.longest_s).spread_s(failed, self.chance())


NO_RETRIES = Retries(tries=1, total_s=0.0, silent_s=0.0)


class Repeat(Enum):
    """When a call may be sent again."""

    ALWAYS = "always"  # twice is as good as once
    UNSENT = "unsent"  # while it cannot have arrived: a repeat might act twice
    NEVER = "never"  # the caller wants the state of now


class CallOptions(TypedDict, total=False):
    """Parts of a call beside method and path."""

    repeat: Repeat  # left out: ALWAYS
    params: Mapping[str, str | None]  # None: not sent
    headers: Mapping[str, str]
    content: bytes
    timeout: float  # of each try


class Connection:
    """The service at one address, for use within one event loop."""

    def __init__(
        self,
        base_url: str | None,
        token: str | None,
        retries: Retries | None,
        transport: httpx.AsyncBaseTransport | None,
        clock: Clock | None,
    ) -> None:
        address = service_address(base_url, token)
        self.base_url, secret = address.url, address.token_text
        self._retries = retries or Retries()
        self._clock = clock or SystemClock()
        self._answers: OrderedDict[tuple[object, ...], tuple[str, object]] = OrderedDict()
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        try:
            self._http = httpx.AsyncClient(
                base_url=self.base_url, headers=headers, trust_env=False, transport=transport
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise self._not_a_url(error) from error

    async def _get(
        self, view: type[View], path: str, *, repeat: Repeat = Repeat.ALWAYS, **params: str | None
    ) -> View:
        """Return what the service has at a path."""
        return await self.call("GET", path, view.model_validate_json, params=params, repeat=repeat)

    async def _send(
        self,
        method: str,
        view: type[View],
        path: str,
        body: BaseModel | None = None,
        **options: Unpack[CallOptions],
    ) -> View:
        """Return the service's view after a change, or the answer to a body."""
        if body is not None:
            headers = {**options.get("headers", {}), "Content-Type": "application/json"}
            options |= {"headers": headers, "content": _json(body)}
        return await self.call(method, path, view.model_validate_json, **options)

    async def call(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], Answer],
        **options: Unpack[CallOptions],
    ) -> Answer:
        """Return the answer to a call; `read` raises ValueError if a body is no such answer.

        InvalidInput for an input that breaks rules, Refused for any other problem that the service
        names, Unavailable if it cannot answer now, or answers as no version of ours does.
        """
        repeat = options.pop("repeat", Repeat.ALWAYS)
        params = {k: v for k, v in options.pop("params", {}).items() if v is not None}
        key = (path, *sorted(params.items()))
        remembered = self._answers.get(key) if method == "GET" else None
        condition = {} if remembered is None else {"If-None-Match": remembered[0]}
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda error: _may_repeat(repeat, error)),
            wait=lambda state: self._pause_s(
                state.attempt_number, None if state.outcome is None else state.outcome.exception()
            ),
            stop=self._is_over,
            sleep=self._sleep,
            reraise=True,
        )
        response: httpx.Response = await retrying(
            self._respond,
            method=method,
            url=path,
            params=params,
            headers={**options.get("headers", {}), **condition},
            content=options.get("content"),
            timeout=options.get("timeout", _TIMEOUT_S),
        )
        if response.status_code == _UNCHANGED and remembered is not None:
            return cast("Answer", remembered[1])
        if not response.is_success:
            raise problem_in(response)
        try:
            answer = read(response.content)
        except ValueError as error:  # pydantic's are, too
            reason = f"{self.base_url} answers, but not as this version of Circinus expects"
            raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S) from error
        if method == "GET" and (tag := response.headers.get("ETag")) is not None:
            self._answers[key] = (tag, answer)
            while len(self._answers) > _REMEMBERED:
                self._answers.popitem(last=False)
        return answer

    async def _respond(self, **request: Any) -> httpx.Response:  # noqa: ANN401 - httpx' own
        """Return the response to one try; Unavailable if another one may fare better."""
        try:
            response = await self._http.request(**request)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise self._not_a_url(error) from error
        except httpx.HTTPError as error:
            raise self._silent(error) from error
        if response.status_code in _FOR_NOW:
            raise problem_in(response)
        return response

    def _silent(self, error: httpx.HTTPError) -> Unavailable:
        reason = f"no service answers at {self.base_url} ({str(error) or type(error).__name__})"
        return Unavailable(reason, retry_after_s=_RETRY_AFTER_S)

    def _not_a_url(self, error: Exception) -> InvalidInput:
        return InvalidInput.of("url", f"must be a URL ({error})", self.base_url)

    def _pause_s(self, failed: int, error: BaseException | None) -> float:
        pause_s = self._retries.pause_s(failed)
        if isinstance(error, Unavailable) and error.__cause__ is None:  # the service sets the time
            return max(pause_s, error.retry_after_s)
        return pause_s

    def _is_over(self, state: RetryCallState) -> bool:
        paused_s = state.idle_for + state.upcoming_sleep
        return state.attempt_number >= self._retries.tries or paused_s > self._retries.total_s

    async def _sleep(self, seconds: float) -> None:
        if isinstance(self._clock, SystemClock):
            await asyncio.sleep(seconds)
        else:
            self._clock.sleep(seconds)


def problem_in(response: httpx.Response) -> CircinusError:
    """Return the error that a response stands for which is no success."""
    try:
        problem = ProblemDetails.model_validate_json(response.content)
    except ValidationError:  # a proxy in between, or no service of ours
        detail = f"HTTP {response.status_code} {response.reason_phrase}"
        problem = ProblemDetails(title=detail, status=response.status_code, detail=detail)
    if problem.errors and response.status_code in _BROKEN_RULES:
        return InvalidInput(problem.errors)
    if response.status_code in _FOR_NOW:
        text = response.headers.get("Retry-After", "")
        seconds = float(text) if text.isdecimal() else _RETRY_AFTER_S
        return Unavailable(problem.detail, retry_after_s=seconds)
    return Refused(problem)


def body_of(kind: type[Body], body: Body | Document) -> Body:
    """Return a body as its schema; InvalidInput names every broken rule of a document."""
    return body if isinstance(body, kind) else checked(kind, body)


def path_part(identifier: str) -> str:
    """Return an id as one part of a path: it cannot reach another route."""
    if not identifier or not identifier.isascii() or not set(identifier).isdisjoint("/:?#%. "):
        raise InvalidInput.of("id", "must be the id of a query or plan", identifier)
    return identifier


def query_path(query_id: str, rest: str = "") -> str:
    """Return the path of a query, or of a part of it."""
    return f"/v1/queries/{path_part(query_id)}{rest}"


def _may_repeat(repeat: Repeat, error: BaseException) -> bool:
    if not isinstance(error, Unavailable):
        return False
    return repeat is Repeat.ALWAYS or (
        repeat is Repeat.UNSENT and isinstance(error.__cause__, _UNSENT)
    )


def _json(body: BaseModel) -> bytes:
    # What the caller left out takes the defaults of the service.
    document = body.model_dump(mode="json", exclude_unset=True)
    try:
        return json.dumps(document, allow_nan=False).encode()
    except ValueError as error:
        raise InvalidInput.of("body", "must have finite numbers only", str(error)) from error
