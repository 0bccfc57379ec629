"""Submitting a query from a page: violations stand at their fields, no input is lost."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from fastapi.testclient import TestClient

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import package
from tests.api.fakes import PIPELINE, FakeCatalogue
from tests.api.test_app import Answered, Connect, service_of, store_of

HOSTILE = '"><script>alert(1)</script>'
GOOD = {
    "key": "shown-once",
    "pipeline": "add",
    "source": "examples",
    "data.examples": "10",
    "slo.accuracy": "0.5",
    "slo.latency_s": "1",
}
LINE = '{"input": 1, "expected": 2}'


def sent(client: TestClient, **change: str) -> Answered:
    form = {**GOOD, **{name.replace("__", "."): text for name, text in change.items()}}
    return client.post("/ui/submit", data=form)


def wrong_at(page: str, field: str) -> str:
    """Return what a page says of a field, to eyes and to screen readers alike."""
    assert re.search(rf'name="{re.escape(field)}"[^>]*aria-invalid="true"', page), page
    assert re.search(rf'aria-describedby="[^"]*wrong-{re.escape(field)}"', page)
    found = re.search(rf'id="wrong-{re.escape(field)}">(.*?)</span>', page, re.DOTALL)
    assert found is not None
    return unescape(re.sub("<[^>]*>", "", found[1]))


WRONG = [
    ("slo__accuracy", "2", "must be <= 1, got 2"),
    ("slo__accuracy", "nan", "must be a finite number, got 'nan'"),
    ("slo__accuracy", "", "must be given, got nothing"),
    ("slo__latency_s", "40 ms", "must be a finite number, got '40 ms'"),
    ("slo__latency_s", "0,4", "must be a finite number, got '0,4'"),
    ("slo__latency_s", "1e400", "must be finite, got inf"),
    ("slo__latency_s", "", "must be given without throughput_per_s, got nothing"),
    ("slo__cost_usd_per_hour", "-1", "must be >= 0, got -1"),
    (
        "slo__latency_statistic",
        "p12",
        "must be one of 'mean', 'p50', 'p90', 'p95' or 'p99', got 'p12'",
    ),
    ("pipeline", "nothing", "must be registered (add, bare), got 'nothing'"),
    ("pipeline", "bare", "must bring examples"),
    ("data__examples", "1.5", "must be a whole number, got 1.5"),
    ("data__examples", "10001", "must be 1 to 10000, got 10001"),
    ("data__seed", str(2**63), f"must be <= {2**63 - 1}, got {2**63}"),
    ("weight", "heavy", "must be a finite number, got 'heavy'"),
    ("priority", "10", "must be <= 9, got 10"),
    ("tenant", "a b", "must start with a letter"),
    ("limits__profiling_s", "0", "must be >= 0.001, got 0"),
    ("planning__method", "guess", "must be among default, published, got 'guess'"),
    ("weight", HOSTILE, "must be a finite number"),
]


@pytest.mark.parametrize(("field", "text", "told"), WRONG)
def test_what_is_wrong_is_said_at_its_field_and_all_that_was_typed_is_kept(
    connect: Connect, field: str, text: str, told: str
) -> None:
    client = connect()
    answer = sent(client, **{"limits__response_s": "77", field: text})
    assert answer.status_code == 422
    assert told in wrong_at(answer.text, field.replace("__", "."))
    assert 'name="limits.response_s" value="77"' in answer.text
    assert text in unescape(answer.text)
    assert HOSTILE not in answer.text
    assert 'value="shown-once"' in answer.text
    assert store_of(client).queries(limit=1) == ()


def test_all_faults_are_told_at_once_and_lead_to_their_fields(connect: Connect) -> None:
    page = sent(connect(), slo__accuracy="2", weight="x").text
    for field in ("slo.accuracy", "weight"):
        assert f'<a href="#{field}">{field}</a>' in page
        assert f'id="{field}"' in page


def test_a_fault_of_no_field_is_told_above_them(connect: Connect) -> None:
    page = sent(connect(), source="nowhere").text
    assert re.search(
        r'role="alert".*<strong>data</strong> must have exactly one of', page, re.DOTALL
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must hold a mapping, got None"),
        ("a: [", "must be YAML"),
        ("a: &x 1\nb: *x", "must not use aliases"),
    ],
)
def test_a_query_file_that_is_none_is_shown_again(connect: Connect, text: str, told: str) -> None:
    answer = connect().post("/ui/submit", data={"way": "yaml", "yaml": text})
    assert answer.status_code == 422
    assert told in wrong_at(answer.text, "yaml")
    assert text in unescape(answer.text)


def test_faults_of_a_query_file_name_their_fields(connect: Connect) -> None:
    text = (
        f"pipeline: add\ndata: {{examples: 0}}\nslo: {{accuracy: 2, latency_s: 1}}\n'{HOSTILE}': 1"
    )
    answer = connect().post("/ui/submit", data={"way": "yaml", "yaml": text})
    assert answer.status_code == 422
    page = unescape(answer.text)
    assert "<strong>data.examples</strong> must be >= 1" in page
    assert "<strong>slo.accuracy</strong> must be <= 1" in page
    assert text in page
    assert HOSTILE not in answer.text


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("", "must have 1 to 100000 examples, got 0"),
        (LINE + "\n{", "line 2"),
        ('{"input": 1}', "line 1"),
    ],
)
def test_lines_that_are_no_examples_are_told_and_nothing_is_kept(
    connect: Connect, lines: str, told: str
) -> None:
    client = connect()
    answer = sent(client, source="lines", lines=lines)
    assert answer.status_code == 422
    assert told in wrong_at(answer.text, "lines")
    assert store_of(client).datasets.all() == ()


def test_lines_of_a_query_that_is_none_are_not_kept(connect: Connect) -> None:
    client = connect()
    answer = sent(client, source="lines", lines=LINE, slo__accuracy="2")
    assert answer.status_code == 422
    assert LINE in unescape(answer.text)
    assert store_of(client).datasets.all() == ()


def test_a_service_with_too_many_waiting_says_so_and_keeps_what_was_typed(
    connect: Connect,
) -> None:
    client = connect(queue_limit=1)
    assert sent(client).status_code == 303
    answer = sent(client, weight="2")
    assert answer.status_code == 429
    assert "Too many queries wait" in answer.text
    assert 'name="weight" value="2"' in answer.text


def test_a_body_that_is_no_form_is_refused(connect: Connect) -> None:
    client = connect()
    assert client.post("/ui/submit", json=GOOD).status_code == 415
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/ui/submit", content=b"pipeline=%ff", headers=form).status_code == 422
    many = "&".join(f"a{i}=" for i in range(501))
    assert client.post("/ui/submit", content=many, headers=form).status_code == 422


def test_pipelines_that_cannot_run_here_are_listed_with_why_and_not_offered(
    connect: Connect,
) -> None:
    client = connect()
    catalogue = service_of(client).parts.catalogue
    assert isinstance(catalogue, FakeCatalogue)
    needs = (package("no_such_module", extra="x"),)
    catalogue.pipelines["away"] = replace(PIPELINE, name="away", needs=needs)
    catalogue.pipelines[HOSTILE] = InvalidInput.of("pipeline", f"must load {HOSTILE}", "x")
    page = client.get("/ui/submit").text
    assert '<option value="add"' in page
    assert '<option value="away"' not in page
    assert "<strong>away</strong> lacks no_such_module" in page
    assert HOSTILE not in page
    assert HOSTILE in unescape(page)


def test_a_query_is_submitted_as_typed_and_its_page_follows(connect: Connect) -> None:
    client = connect()
    answer = sent(
        client,
        slo__latency_statistic="p95",
        slo__cost_usd_per_hour=".5",
        request_rate_per_s="2e1",
        weight="3",
        priority="2",
        tenant="ana",
        duration_s="60",
        limits__configurations="7",
        limits__response_s="5",
        planning__method="published",
        seed="4",
        cold="1",
    )
    (stored,) = store_of(client).queries(limit=2)
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/ui/queries/{stored.id}"
    query = stored.query
    assert (query.pipeline, query.weight, query.priority, query.tenant) == ("add", 3.0, 2, "ana")
    assert (query.slo.accuracy, query.slo.latency_s, query.slo.cost_usd_per_hour) == (
        0.5,
        1.0,
        0.5,
    )
    assert (query.slo.latency_statistic.value, query.request_rate_per_s) == ("p95", 20.0)
    assert (query.limits.configurations, query.limits.response_s) == (7, 5.0)
    assert (query.planning.strategy, query.seed, query.duration_s) == ("cmbo", 4, 60.0)
    assert stored.request.cold


def test_a_second_click_submits_nothing_and_a_changed_form_does(connect: Connect) -> None:
    client = connect()
    first, again = sent(client), sent(client, weight="")
    other, anew = sent(client, weight="2"), sent(client, key="shown-again")
    places = [each.headers["location"] for each in (first, again, other, anew)]
    assert places[0] == places[1]
    assert len(set(places)) == 3
    assert len(store_of(client).queries(limit=9)) == 3


def test_each_page_has_a_key_of_its_own(connect: Connect) -> None:
    client = connect()
    keys = {
        re.findall(r'name="key" value="(\w+)"', client.get("/ui/submit").text)[0] for _ in range(3)
    }
    assert len(keys) == 3


def test_lines_become_a_data_set_that_the_query_names(connect: Connect) -> None:
    client = connect()
    answer = sent(client, source="lines", lines=f"{LINE}\n{LINE}", pipeline="bare")
    assert answer.status_code == 303, answer.text
    (kept,), (stored,) = store_of(client).datasets.all(), store_of(client).queries(limit=1)
    assert (kept.inputs, stored.request.data.dataset) == (2, kept.id)
    page = client.get("/ui/submit").text
    assert f'<option value="{kept.id}">2 inputs' in page
    chosen = sent(client, source="dataset", data__dataset=kept.id)
    assert chosen.status_code == 303


def test_a_query_file_is_submitted_as_it_is(connect: Connect) -> None:
    client = connect()
    example = re.findall(
        r"<textarea[^>]*>\n(.*?)</textarea>", client.get("/ui/submit?way=yaml").text, re.DOTALL
    )
    text = unescape(example[0]) + "restrictions: {knobs: {add: {by: {only: [1]}}}}\n"
    answer = client.post("/ui/submit", data={"way": "yaml", "yaml": text, "key": "k"})
    assert answer.status_code == 303, answer.text
    (stored,) = store_of(client).queries(limit=1)
    assert stored.request.restrictions.knobs["add"]["by"].only == [1]
