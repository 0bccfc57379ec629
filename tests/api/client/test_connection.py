"""What is tried again, how often and when; and what is not asked for twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import pytest

from circinus.api.client import AsyncClient, Client, Retries
from circinus.api.client.connection import NO_RETRIES
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable
from tests.api.client.test_calls import VIEW
from tests.api.malformed import query

HALF = Retries(chance=lambda: 0.0)  # pauses are half as long as they may be


@dataclass
class Script:
    """Answers in order, the last again and again; an error is raised."""

    answers: list[httpx.Response | Exception]
    sent: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def busy(status: int = 503, after: str = "3") -> httpx.Response:
    problem = {"title": "Busy", "status": status, "detail": "it is busy"}
    return httpx.Response(status, json=problem, headers={"Retry-After": after})


def view(**more: object) -> httpx.Response:
    return httpx.Response(200, json=VIEW | more)


GONE, CUT = httpx.ConnectError("refused"), httpx.ReadError("cut off")


def client(script: Script, clock: ManualClock, retries: Retries = HALF) -> Client:
    transport = httpx.MockTransport(script)
    return Client("http://service", retries=retries, transport=transport, clock=clock)


Ask = Callable[[Client], object]
ASKS_AGAIN: list[Ask] = [
    lambda c: c.query("q-1"),
    lambda c: c.submit(query()),
    lambda c: c.cancel("q-1"),
    lambda c: c.undeploy("q-1"),
]
ASKS_ONCE: list[Ask] = [
    lambda c: c.request("q-1", {"input": 1}),
    lambda c: c.replan("q-1", {"latency": "0.8x"}),
    lambda c: c.forget("d-1"),
]


@pytest.mark.parametrize("ask", ASKS_ONCE)
@pytest.mark.parametrize("answer", [CUT, busy(), busy(429)], ids=["cut", "503", "429"])
def test_what_might_run_twice_is_sent_once(ask: Ask, answer: httpx.Response | Exception) -> None:
    script = Script([answer])
    with client(script, ManualClock()) as service, pytest.raises(Unavailable):
        ask(service)
    assert len(script.sent) == 1


@pytest.mark.parametrize("ask", ASKS_ONCE)
def test_what_nobody_got_is_sent_again_whatever_it_is(ask: Ask) -> None:
    script = Script([GONE, GONE, busy(500)])
    with client(script, ManualClock()) as service, pytest.raises(CircinusError, match="busy"):
        ask(service)
    assert len(script.sent) == 3


@pytest.mark.parametrize("ask", ASKS_AGAIN)
def test_what_is_the_same_twice_is_sent_again(ask: Ask) -> None:
    script, clock = Script([GONE, CUT, busy(429), busy(503), view()]), ManualClock()
    with client(script, clock) as service:
        ask(service)
    # 0.1 and 0.2 s of its own, twice the 3 s that it is asked for.
    assert clock.now() == pytest.approx(6.3)
    keys = {request.headers.get("Idempotency-Key") for request in script.sent}
    assert len(script.sent) == 5
    assert len(keys) == 1


def test_pauses_grow_up_to_a_bound_and_come_apart() -> None:
    longest = Retries(chance=lambda: 1.0)
    assert [longest.pause_s(n) for n in (1, 2, 3, 4, 9)] == [0.2, 0.4, 0.8, 1.6, 5.0]
    assert [HALF.pause_s(n) for n in (1, 2)] == [0.1, 0.2]
    drawn = {Retries().pause_s(1) for _ in range(20)}
    assert len(drawn) > 1
    assert all(0.1 <= pause <= 0.2 for pause in drawn)


@pytest.mark.parametrize(
    ("retries", "tries", "seconds"),
    [(NO_RETRIES, 1, 0), (Retries(tries=3), 3, 6), (Retries(total_s=8), 3, 6)],
    ids=["none", "tries", "seconds"],
)
def test_tries_end(retries: Retries, tries: int, seconds: float) -> None:
    script, clock = Script([busy()]), ManualClock()
    with client(script, clock, retries) as service, pytest.raises(Unavailable) as caught:
        service.query("q-1")
    assert (len(script.sent), clock.now()) == (tries, seconds)
    assert caught.value.retry_after_s == 3


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"tries": 0}, "retries.tries must be >= 1"),
        ({"first_s": 0.0}, "retries.first_s must be finite and > 0"),
        ({"longest_s": -1.0}, "retries.longest_s must be finite and > 0"),
        ({"total_s": -0.1}, "retries.total_s must be finite and >= 0"),
        ({"silent_s": float("nan")}, "retries.silent_s must be finite and >= 0"),
    ],
)
def test_retries_has_bounds(wrong: dict[str, float], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        Retries(**wrong)  # type: ignore[arg-type]  # one of them


def test_whether_a_service_is_well_is_asked_once() -> None:
    script = Script([busy()])
    with client(script, ManualClock()) as service, pytest.raises(Unavailable):
        service.ready()
    assert len(script.sent) == 1


def test_an_answer_that_did_not_change_is_not_sent_again() -> None:
    first = httpx.Response(200, json=VIEW, headers={"ETag": '"1"'})
    script = Script([first, httpx.Response(304), httpx.Response(304), view(phase="serving")])
    with client(script, ManualClock()) as service:
        found = [service.query("q-1") for _ in range(4)]
    tags = [request.headers.get("If-None-Match") for request in script.sent]
    assert tags == [None, '"1"', '"1"', '"1"']
    assert found[1] is found[0] is found[2]
    assert found[3].phase == "serving"


def test_an_answer_is_known_by_all_that_was_asked() -> None:
    page: dict[str, object] = {"items": [], "next_cursor": None}
    script = Script([httpx.Response(200, json=page, headers={"ETag": '"1"'})])
    with client(script, ManualClock()) as service:
        list(service.all_queries(phase="queued"))
        list(service.all_queries(phase="serving"))
    assert [request.headers.get("If-None-Match") for request in script.sent] == [None, None]


def test_an_asynchronous_client_tries_again_just_so() -> None:
    script = Script([GONE, CUT, busy(503, "0"), view()])
    quick = Retries(first_s=0.001)

    async def ask() -> str:
        transport = httpx.MockTransport(script)
        async with AsyncClient("http://s", retries=quick, transport=transport) as service:
            return (await service.submit(query())).id

    assert asyncio.run(ask()) == "q-1"
    assert len(script.sent) == 4


def test_address_and_token_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CIRCINUS_URL", "CIRCINUS_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def sent(url: str | None = None, token: str | None = None) -> httpx.Request:
        script = Script([view()])
        with Client(url, token=token, transport=httpx.MockTransport(script)) as service:
            service.query("q-1")
        return script.sent[0]

    assert str(sent().url) == "http://127.0.0.1:8350/v1/queries/q-1"
    monkeypatch.setenv("CIRCINUS_URL", "http://there:1")
    monkeypatch.setenv("CIRCINUS_TOKEN", "t")
    assert str(sent().url) == "http://there:1/v1/queries/q-1"
    assert sent().headers["Authorization"] == "Bearer t"
    assert sent(token="u").headers["Authorization"] == "Bearer u"
    assert sent("http://here").url.host == "here"
