"""The client: its paths and bodies, and every kind of problem as a typed error."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from circinus.api.client import Client, Refused
from circinus.api.client.connection import NO_RETRIES
from circinus.api.query_file import query_of
from circinus.api.schemas.deployments import RequestBody
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable
from tests.api.malformed import query

Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler, token: str | None = None) -> Client:
    transport = httpx.MockTransport(handler)
    return Client("http://service", token=token, retries=NO_RETRIES, transport=transport)


def problem(status: int, **more: object) -> Handler:
    document = {"title": "Bad", "status": status, "detail": "it is bad"} | more
    return lambda _: httpx.Response(status, json=document, headers={"Retry-After": "7"})


VIEW = {
    "id": "q-1",
    "request": query(),
    "phase": "queued",
    "submitted_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Refused),
        (404, Refused),
        (409, Refused),
        (429, Unavailable),
        (500, Refused),
        (502, Refused),
        (503, Unavailable),
    ],
)
def test_a_problem_becomes_an_error_of_its_kind(status: int, kind: type[CircinusError]) -> None:
    with client(problem(status)) as service, pytest.raises(kind, match="it is bad"):
        service.query("q-1")


def test_broken_rules_come_back_as_faults() -> None:
    errors = [{"field": "weight", "rule": "must be > 0", "value": "0"}]
    with (
        client(problem(422, errors=errors)) as service,
        pytest.raises(InvalidInput, match=r"^weight must be > 0, got 0\.$"),
    ):
        service.submit(query_of(query()))


def test_a_missing_query_is_refused_although_a_fault_names_it() -> None:
    errors = [{"field": "query", "rule": "must exist", "value": "'q-1'"}]
    with client(problem(404, errors=errors)) as service, pytest.raises(Refused) as caught:
        service.query("q-1")
    assert caught.value.problem.status == 404


def test_the_time_to_try_again_is_kept() -> None:
    with client(problem(503)) as service, pytest.raises(Unavailable) as caught:
        service.schedule()
    assert caught.value.retry_after_s == 7


def test_an_error_of_something_in_between_is_told_by_its_status() -> None:
    with (
        client(lambda _: httpx.Response(502, text="<html>")) as service,
        pytest.raises(Refused, match="HTTP 502 Bad Gateway"),
    ):
        service.schedule()


def test_an_answer_of_something_else_is_no_answer() -> None:
    with (
        client(lambda _: httpx.Response(200, text="<html>")) as service,
        pytest.raises(Unavailable, match="not as this version of Circinus expects"),
    ):
        service.health()


def test_a_broken_connection_says_where_it_was_tried() -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with (
        client(broken) as service,
        pytest.raises(Unavailable, match=r"no service answers at http://service .refused."),
    ):
        service.health()


def test_the_token_is_shown_and_only_when_there_is_one() -> None:
    seen: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        return httpx.Response(200, json={"version": "1"})

    for token in (None, "secret"):
        with client(handler, token) as service:
            service.health()
    assert seen == [None, "Bearer secret"]


def test_a_query_is_submitted_as_it_was_written() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(202, json=VIEW)

    with client(handler) as service:
        assert service.submit(query_of(query()), idempotency_key="k").id == "q-1"
    assert (seen[0].method, seen[0].url.path) == ("POST", "/v1/queries")
    assert seen[0].headers["Idempotency-Key"] == "k"
    assert json.loads(seen[0].content) == query()  # defaults are the service's


@pytest.mark.parametrize(
    ("call", "method", "path"),
    [
        (lambda c: c.query("q-1"), "GET", "/v1/queries/q-1"),
        (lambda c: c.cancel("q-1"), "POST", "/v1/queries/q-1:cancel"),
        (lambda c: c.undeploy("q-1"), "DELETE", "/v1/queries/q-1/deployment"),
    ],
)
def test_each_call_has_its_route(call: Callable[[Client], object], method: str, path: str) -> None:
    seen: list[tuple[str, str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append((request.method, request.url.path))
        return httpx.Response(200, json=VIEW)

    with client(handler) as service:
        call(service)
    assert seen == [(method, path)]


def test_all_queries_are_read_page_after_page() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        cursor = request.url.params.get("cursor")
        following = None if cursor == "b" else "b"
        item = VIEW | {"id": f"q-{cursor or 'a'}"}
        return httpx.Response(200, json={"items": [item], "next_cursor": following})

    with client(handler) as service:
        assert [found.id for found in service.all_queries()] == ["q-a", "q-b"]


def test_an_example_is_named_in_the_body_of_a_request() -> None:
    seen: list[object] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(200, json={"output": "123", "latency_s": 0.1, "score": 1.0})

    body = RequestBody.model_validate({"example": {"index": 3, "seed": 9}})
    with client(handler) as service:
        assert service.request("q-1", body).score == 1.0
    assert seen == [{"example": {"index": 3, "seed": 9}}]


@pytest.mark.parametrize("identifier", ["", "a/b", "..", "a?b", "a#b", "a:cancel", "a%2f"])
def test_an_id_is_one_part_of_a_path(identifier: str) -> None:
    def never(_: httpx.Request) -> httpx.Response:
        raise AssertionError("nothing may be sent")

    with client(never) as service, pytest.raises(InvalidInput, match="must be the id of"):
        service.query(identifier)
