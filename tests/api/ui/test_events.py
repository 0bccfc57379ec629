"""The page of events: of the whole service and of one query, by kind, there and back."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from circinus.api.http.ui.events import EVENTS_PER_PAGE
from circinus.api.schemas.events import EventKind
from circinus.api.store.records import NewEvent
from tests.api.fakes import add_planned, plan
from tests.api.test_app import Connect, store_of

HOSTILE = "<img src=x onerror=alert(1)>"


def tell(
    client: TestClient, kind: EventKind, query_id: str | None, words: str, **data: object
) -> None:
    event = NewEvent(kind=kind, at=1.0, query_id=query_id, words=words, data=data)
    store_of(client).events.tell(event)


def sentences(page: str) -> list[str]:
    found = re.findall(r'<td class="words">(.*?)</td>', page, re.DOTALL)
    return [" ".join(unescape(re.sub("<[^>]*>", "", each)).split()) for each in found]


def link(page: str, name: str) -> str | None:
    found = re.search(rf'<a class="button" href="([^"]*)">{name}</a>', page)
    return None if found is None else unescape(found[1])


@pytest.mark.parametrize("asked", ["before=-1", "after=x", f"after={2**63}", "query=a%00b"])
def test_a_page_that_cannot_be_is_refused(connect: Connect, asked: str) -> None:
    assert connect().get(f"/ui/events?{asked}").status_code == 422


def test_events_of_a_query_that_is_none_are_not_found_in_its_page_and_none_in_the_list(
    connect: Connect,
) -> None:
    client = connect()
    assert client.get("/ui/queries/q-none/events").status_code == 404
    page = client.get("/ui/events", params={"query": HOSTILE})
    assert page.status_code == 200
    assert sentences(page.text) == []
    assert HOSTILE not in page.text


def test_what_is_told_is_text(connect: Connect) -> None:
    client = connect()
    tell(client, EventKind.PHASE, HOSTILE, f"{HOSTILE} is failed: {HOSTILE}", phase=HOSTILE)
    queries = {HOSTILE: {"state": "waits", "why": HOSTILE}}
    tell(client, EventKind.SCHEDULE, None, "schedule 1", queries=queries)
    page = client.get("/ui/events").text
    assert HOSTILE not in page
    assert sentences(page) == [
        f"schedule 1 {HOSTILE} waits: {HOSTILE}",
        f"{HOSTILE} is failed: {HOSTILE}",
    ]
    assert 'href="/ui/queries/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E"' in page


def test_an_unknown_kind_is_none(connect: Connect) -> None:
    page = connect().get("/ui/events?kind=query.eaten").text
    assert 'id="kind-main" href="/ui/events" aria-current="true"' in page


def test_steps_of_searches_are_left_out_unless_they_are_asked_for(connect: Connect) -> None:
    client = connect()
    tell(client, EventKind.PHASE, "q-1", "q-1 is planning", phase="planning")
    tell(client, EventKind.MEASURED, "q-1", "q-1 measured")
    tell(client, EventKind.MACHINES, None, "cloud has 2 machines")
    main = ["cloud has 2 machines", "q-1 is planning"]
    for asked, told in (
        ("", main),
        ("?kind=all", [main[0], "q-1 measured", main[1]]),
        ("?kind=query.measured", ["q-1 measured"]),
        ("?query=q-1", [main[1]]),
        ("?query=%20q-1&kind=all", ["q-1 measured", main[1]]),
        ("?query=q-2", []),
    ):
        assert sentences(client.get(f"/ui/events{asked}").text) == told, asked


def test_a_schedule_says_who_waits_and_why(connect: Connect) -> None:
    client = connect()
    queries = {
        "q-1": {"state": "served", "plan_id": "p-1", "tiers": ["cloud", "edge"], "extras": 1},
        "q-2": {"state": "waits", "why": "cloud is full"},
    }
    tell(client, EventKind.SCHEDULE, None, "schedule 3", queries=queries)
    (told,) = sentences(client.get("/ui/events").text)
    assert "q-1 served with plan p-1 on cloud, edge, 1 extra replica" in told
    assert "q-2 waits: cloud is full" in told


def test_older_and_newer_pages_give_every_event_once(connect: Connect) -> None:
    client = connect()
    count = 2 * EVENTS_PER_PAGE + 10
    for number in range(count):
        tell(client, EventKind.MACHINES, None, f"change {number}")
    seen, path = [], "/ui/events?kind=machines.changed"
    pages = []
    while path:
        page = client.get(path).text
        pages.append(page)
        seen += sentences(page)
        path = link(page, "Older") or ""
    assert seen == [f"change {number}" for number in reversed(range(count))]
    assert "hx-trigger" in pages[0]
    assert "hx-trigger" not in pages[1]  # what is past stays as it is
    back = link(pages[2], "Newer")
    assert back is not None
    assert sentences(client.get(back).text) == sentences(pages[1])
    forth = client.get(link(pages[1], "Newer") or "").text
    assert sentences(forth) == sentences(pages[0])
    assert link(forth, "Newer") is None
    assert link(pages[1], "Newest") == "/ui/events?kind=machines.changed"


def test_the_part_of_a_query_has_its_own_events_and_leads_to_all(connect: Connect) -> None:
    client = connect()
    add_planned(store_of(client), "q-1", plan())
    add_planned(store_of(client), "q-2", plan())
    page = client.get("/ui/queries/q-1/events").text
    assert sentences(page) == ["q-1 is waiting: planned", "q-1 is planning", "q-1 is queued"]
    assert link(page, "All events of this query") == "/ui/events?query=q-1"
    assert 'hx-get="/ui/queries/q-1/events"' in page
