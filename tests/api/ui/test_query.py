"""The page of a query, and what it lets one change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.planning_worker import plan_next
from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.phases import QueryPhase
from circinus.api.store.records import NewQuery
from tests.api.fakes import SPEC, FakeDeployer, parts, planning_parts
from tests.api.test_app import LOOPBACK, Answered, store_of
from tests.api.ui.test_frame import BROWSER, FORM

PART = {"hx-request": "true"}
PAGE = "/ui/queries/q-1"
PARTS = ["summary", "front", "plan", "deployment", "events"]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A service with a query that was planned, and one that waits to be."""
    made = parts(tmp_path, {})
    for name in ("q-1", "q-2"):
        new = NewQuery(id=name, spec=SPEC, fingerprint="", idempotency_key=None, at=0.0)
        made.store.submit(new)
    planning = planning_parts(tmp_path)
    assert plan_next(planning, "w")
    app = application_of(Service(made, FakeDeployer()))
    yield TestClient(app, base_url=LOOPBACK, follow_redirects=False)
    planning.store.close()
    made.store.close()


def sent(client: TestClient, what: str, name: str = "q-1", **form: str) -> Answered:
    content = urlencode(form).encode()
    return client.post(f"/ui/queries/{name}/{what}", content=content, headers=FORM)


@pytest.mark.parametrize("part", [*PARTS, "whatif", "cancel", "undeploy", "replan"])
def test_of_a_query_that_is_none_there_is_no_part(client: TestClient, part: str) -> None:
    assert client.get(f"/ui/queries/q-9/{part}", headers=BROWSER).status_code == 404


def test_a_plan_of_another_query_is_not_shown(client: TestClient) -> None:
    answer = client.get(f"{PAGE}/plan?plan=p-<b>", headers=BROWSER)
    assert answer.status_code == 404
    assert "p-&lt;b&gt;" in answer.text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"accuracy": "much"}, "must be a number"),
        ({"accuracy": "7"}, "must be from 0 to 1"),
        ({"price.cloud": "nan"}, "must be like 0.8x"),
        ({"machines.cloud": "1.5"}, "must leave a whole number"),
    ],
)
def test_a_slider_at_what_cannot_be_is_told_so(
    client: TestClient, asked: dict[str, str], told: str
) -> None:
    answer = client.get(f"{PAGE}/whatif?{urlencode(asked)}", headers=PART)
    assert answer.status_code == 422
    assert told in answer.text
    assert "<html" not in answer.text


def test_the_page_has_every_part_as_it_is_asked_for_again(client: TestClient) -> None:
    page = client.get(PAGE).text
    for part in PARTS:
        found = client.get(f"{PAGE}/{part}", headers=PART).text
        assert found.strip() in page, part
    assert re.search(r'data-events="/v1/queries/q-1/events\?after=\d+"', page)


def test_what_was_measured_is_drawn_and_each_is_told_why(client: TestClient) -> None:
    page = client.get(PAGE).text
    measured = store_of(client).events.trials("q-1")
    assert measured
    assert len(re.findall(r'class="measured ', page)) >= len(measured)
    stored = store_of(client).plans("q-1")
    assert set(re.findall(r'data-plan="([^"]+)"', page)) == {each.id for each in stored}
    assert f"{len(measured)} configurations measured" in page
    assert "on the front, not chosen" in page


def test_of_many_candidates_all_are_a_press_away(client: TestClient) -> None:
    few, every = (client.get(f"{PAGE}/front{q}").text for q in ("", "?every=true"))
    rows = [len(re.findall(r'data-head="Why"', text)) for text in (few, every)]
    assert rows == [min(10, rows[1]), len(store_of(client).events.trials("q-1"))]


def test_a_query_that_waits_to_be_planned_has_nothing_to_show_yet(client: TestClient) -> None:
    page = client.get("/ui/queries/q-2").text
    assert "There is no plan yet." in page
    assert "Nothing is measured yet." in page
    assert f'href="{PAGE[:-1]}2/cancel"' in page
    assert "undeploy" not in page


def test_sliders_answer_without_changing_anything(client: TestClient) -> None:
    before = store_of(client).state("q-1")
    answer = client.get(f"{PAGE}/whatif?price.cloud=2", headers=PART)
    assert answer.status_code == 200
    assert "The cheapest plan would go from" in answer.text
    assert store_of(client).state("q-1") == before
    whole = client.get(f"{PAGE}/whatif?price.cloud=2").text  # without a script
    assert answer.text.strip() in whole
    assert 'name="price.cloud" min="0.1" max="3.0" step="0.05" value="2.0"' in whole


def test_an_objective_that_nothing_meets_is_told_with_what_binds(client: TestClient) -> None:
    answer = client.get(f"{PAGE}/whatif?latency=0.000001", headers=PART).text
    assert "no plan" in answer
    assert "No measured plan is confirmed to reach" in answer


@pytest.mark.parametrize("what", ["cancel", "undeploy", "replan"])
def test_what_changes_something_is_asked_for_once_more(client: TestClient, what: str) -> None:
    before = store_of(client).state("q-1")
    page = client.get(f"{PAGE}/{what}?accuracy=0.1").text
    assert f'method="post" action="{PAGE}/{what}"' in page
    assert store_of(client).state("q-1") == before


def test_a_query_is_cancelled(client: TestClient) -> None:
    answer = sent(client, "cancel", "q-2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/queries/q-2")
    assert store_of(client).query("q-2").phase is QueryPhase.CANCELLED
    assert sent(client, "cancel").status_code == 409  # planned already


def test_a_query_is_undeployed(client: TestClient) -> None:
    assert sent(client, "undeploy").headers["location"] == PAGE
    assert store_of(client).query("q-1").phase is QueryPhase.RETIRED
    assert sent(client, "undeploy", "q-2").status_code == 409


def test_a_query_is_planned_for_what_the_sliders_said(client: TestClient) -> None:
    asked = client.get(f"{PAGE}/replan?accuracy=0.4&latency=0.5&price.cloud=2").text
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked))
    assert form == {"accuracy": "0.4", "latency": "0.5x"}
    old = store_of(client).query("q-1").query.slo
    assert sent(client, "replan", **form).status_code == 303
    new = store_of(client).query("q-1").query.slo
    assert (new.accuracy, new.latency_s) == (0.4, old.latency_s * 0.5)
    assert sent(client, "replan", latency="fast").status_code == 422
    assert "move a slider first" in client.get(f"{PAGE}/replan").text


def test_nothing_in_a_page_is_run_or_styled_in_its_text(client: TestClient) -> None:
    for path in (PAGE, f"{PAGE}/whatif?accuracy=0.2", f"{PAGE}/replan?accuracy=0.2"):
        text = client.get(path).text
        assert not re.search(r"<script(?! src=)|<style| style=| on[a-z]+=", text)
