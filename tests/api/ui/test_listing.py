"""The page with the list of queries."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from circinus.api.phases import QueryPhase
from circinus.api.store.records import NewQuery
from tests.api.fakes import SPEC, add_planned, plan
from tests.api.test_app import Connect, store_of
from tests.api.ui.test_frame import BROWSER


def submit(client: TestClient, name: str, **more: object) -> None:
    spec = {**SPEC, **more}
    query = NewQuery(id=name, spec=spec, fingerprint="", idempotency_key=None, at=1.0)
    store_of(client).submit(query)


def ids(text: str) -> list[str]:
    return re.findall(r'<a id="(q-[^"]+)"', text)


@pytest.mark.parametrize("cursor", ["x", "<b>", "%00", "a" * 300])
def test_a_cursor_of_no_page_is_refused(connect: Connect, cursor: str) -> None:
    answer = connect().get(f"/?cursor={cursor}", headers=BROWSER)
    assert answer.status_code == 422
    assert "<b>" not in answer.text


def test_an_empty_service_says_so(connect: Connect) -> None:
    assert "No query was submitted yet." in connect().get("/").text


def test_a_phase_that_is_none_chooses_all(connect: Connect) -> None:
    client = connect()
    submit(client, "q-1")
    assert ids(client.get("/?phase=flying").text) == ["q-1"]


def test_a_query_is_listed_with_what_it_asks_and_where_it_is(connect: Connect) -> None:
    client = connect()
    add_planned(store_of(client), "q-planned", plan())
    submit(client, "q-new", tenant="lab")
    page = client.get("/").text
    assert ids(page) == ["q-new", "q-planned"]
    assert "accuracy ≥" in page
    assert ">add, lab<" in page
    assert 'class="phase phase-queued"' in page
    assert plan().id in page


def test_queries_are_chosen_by_phase_and_counted(connect: Connect) -> None:
    client = connect()
    for i in range(3):
        submit(client, f"q-{i}")
    store_of(client).request_cancel("q-1", at=2.0)
    page = client.get("/?phase=cancelled").text
    assert ids(page) == ["q-1"]
    counts = dict(re.findall(r'id="only-(\w+)".*?class="soft">(\d+)<', page))
    assert counts == {"all": "3", "queued": "2", "cancelled": "1"}
    assert re.findall(r'id="only-(\w+)"[^>]*aria-current', page) == ["cancelled"]
    assert "No query is serving." in client.get("/?phase=serving").text


def test_older_queries_are_a_page_further(connect: Connect) -> None:
    client = connect()
    for i in range(60):
        submit(client, f"q-{i}")
    first = client.get("/").text
    assert len(ids(first)) == 50
    (older,) = re.findall(r'href="([^"]+)">Older', first)
    second = client.get(older.replace("&amp;", "&")).text
    assert ids(second) == [f"q-{i}" for i in reversed(range(10))]
    assert "Newest" in second


def test_the_part_that_moves_says_how_it_is_asked_for_again(connect: Connect) -> None:
    client = connect()
    submit(client, "q-1")
    page = client.get("/?phase=queued").text
    (path,) = re.findall(r'hx-get="([^"]+)"', page)
    part = client.get(path.replace("&amp;", "&"))
    assert "<html" not in part.text
    assert part.text.strip() in page
    assert 'data-events="/v1/events?after=' in page


@pytest.mark.parametrize("phase", QueryPhase)
def test_every_phase_has_a_shape_of_its_own(connect: Connect, phase: QueryPhase) -> None:
    assert f"phase-{phase}" in connect().get(f"/?phase={phase}").text
