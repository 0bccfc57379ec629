"""Events as pages of JSON, and what is asked for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from starlette.datastructures import Headers

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.http.event_stream import frame, wants_stream
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.store.records import NewEvent
from circinus.api.use_cases.parts import ServiceParts
from tests.api.fakes import FakeDeployer, add_planned, parts, plan


@pytest.fixture
def given(tmp_path: Path) -> Iterator[ServiceParts]:
    made = parts(tmp_path, {})
    yield made
    made.store.close()


@pytest.fixture
def client(given: ServiceParts) -> TestClient:
    app = application_of(Service(given, FakeDeployer()))
    return TestClient(app, base_url="http://127.0.0.1")


def tell(given: ServiceParts, count: int) -> None:
    news = [
        NewEvent(kind=EventKind.MACHINES, at=1.0, words="more", data={"number": number})
        for number in range(count)
    ]
    given.store.events.tell(*news)


def ids(client: TestClient, asked: str = "", last: str | None = None) -> list[int]:
    headers = {} if last is None else {"Last-Event-ID": last}
    answer = client.get(f"/v1/events{asked}", headers=headers)
    assert answer.status_code == 200, answer.text
    return [event["id"] for event in answer.json()["items"]]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_events_of_an_unknown_query_are_not_found(client: TestClient, accept: str) -> None:
    answer = client.get("/v1/queries/q-9/events", headers={"Accept": accept})
    assert (answer.status_code, answer.json()["detail"]) == (404, "query must exist, got 'q-9'.")


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("after=-1", "after"),
        (f"after={2**63}", "after"),
        ("after=x", "after"),
    ],
)
@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_events_that_cannot_be_asked_for_are_refused_by_field(
    client: TestClient, asked: str, field: str, accept: str
) -> None:
    answer = client.get(f"/v1/events?{asked}", headers={"Accept": accept})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


@pytest.mark.parametrize("last", ["", "x", "-1", "1.5", str(2**63)])
def test_a_last_event_that_is_none_is_refused(client: TestClient, last: str) -> None:
    answer = client.get("/v1/events", headers={"Last-Event-ID": last})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "last-event-id")


def test_without_events_a_page_is_empty(client: TestClient) -> None:
    assert client.get("/v1/events").json() == {"items": [], "latest": 0}


def test_a_page_has_the_latest_or_what_came_after(given: ServiceParts, client: TestClient) -> None:
    tell(given, 105)
    assert ids(client) == [*range(6, 106)]
    assert ids(client, "?limit=2") == [104, 105]
    assert ids(client, "?after=0&limit=2") == [1, 2]
    assert ids(client, "?after=103") == [104, 105]
    assert ids(client, "?after=105") == ids(client, f"?after={2**63 - 1}") == []
    assert ids(client, "?after=0&limit=1", last="9") == [10]
    assert client.get("/v1/events?after=3&limit=1").json()["latest"] == 105


def test_a_query_is_told_from_its_beginning(given: ServiceParts, client: TestClient) -> None:
    tell(given, 2)
    add_planned(given.store, "q-1", plan())
    add_planned(given.store, "q-2", plan())
    told = client.get("/v1/queries/q-1/events").json()
    assert [(event["id"], event["data"]["phase"]) for event in told["items"]] == [
        (3, "queued"),
        (4, "planning"),
        (5, "waiting"),
    ]
    assert told["latest"] == 8
    assert told["items"][2] == {
        "id": 5,
        "at": "1970-01-01T00:00:00Z",
        "kind": "query.phase",
        "query_id": "q-1",
        "words": "q-1 is waiting: planned",
        "data": {"phase": "waiting", "message": "planned"},
    }
    rest = client.get("/v1/queries/q-1/events?after=4").json()
    assert [event["id"] for event in rest["items"]] == [5]


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        ("", False),
        ("*/*", False),
        ("text/*", False),
        ("text/event-stream", True),
        ("application/json, Text/Event-Stream;q=0.5", True),
        ("text/event-streams", False),
    ],
)
def test_a_stream_is_asked_for_by_name(accept: str, streams: bool) -> None:
    assert wants_stream(Headers({"accept": accept})) is streams


def test_a_frame_has_one_line_of_data_whatever_the_words() -> None:
    event = EventView.model_validate(
        {"id": 7, "at": 0.0, "kind": "x.y", "words": "a\nb\r\nc\u2028", "data": {"a": "\n\n"}}
    )
    first, second, third, *rest = frame(event).decode().split("\n")
    assert (first, second, rest) == ("id: 7", "event: x.y", ["", ""])
    assert EventView.model_validate_json(third.removeprefix("data: ")) == event
    assert "\r" not in third
