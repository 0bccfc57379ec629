"""A person submits a query from a page, watches it live until it serves, and sees it drift."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import SIZES_AND_THEMES, Visit, visiting
from tests.e2e.service_process import ServiceProcess, serving
from tests.e2e.test_drift import INFRASTRUCTURE, LIGHT, ask, until_another_answers

pytestmark = pytest.mark.slow
_PATIENCE_MS = 60_000
LINES = '{"input": {"value": 1}, "expected": 3}\n' * 20


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    made = ServiceProcess(tmp_path_factory.mktemp("submitting"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def visit(chromium: Browser, service: ServiceProcess) -> Iterator[Visit]:
    with visiting(chromium, f"http://127.0.0.1:{service.port}") as made:
        yield made


def fill(page: Page, pipeline: str, *, accuracy: str, latency: str) -> None:
    page.get_by_label("Pipeline", exact=True).select_option(pipeline)
    page.get_by_label("Least accuracy").fill(accuracy)
    page.get_by_label("Most latency (seconds)").fill(latency)


def submit(page: Page) -> None:
    page.get_by_role("button", name="Submit the query").click()


def query_of(page: Page) -> str:
    """Return the query whose page was led to."""
    page.wait_for_url(re.compile("/ui/queries/q-"))
    return page.url.rpartition("/")[2]


def test_what_is_wrong_is_said_and_the_query_is_watched_until_it_serves(
    visit: Visit, service: ServiceProcess
) -> None:
    page = visit.open("/ui/submit")
    fill(page, "slow-sum", accuracy="80 %", latency="1.0")
    submit(page)
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_role("alert")).to_contain_text("slo.accuracy must be a finite number")
    visit.complaints.clear()  # that the answer was 422
    visit.assert_accessible()
    page.get_by_role("link", name="slo.accuracy").click()
    accuracy = page.get_by_label("Least accuracy")
    expect(accuracy).to_have_value("80 %")
    expect(accuracy).to_have_accessible_description(re.compile("must be a finite number"))
    expect(page.get_by_label("Most latency (seconds)")).to_have_value("1.0")
    accuracy.fill("0.8")
    submit(page)
    query_id = query_of(page)
    # Nobody reloads from here on.
    expect(page.locator("#summary .phase")).to_have_text("serving", timeout=_PATIENCE_MS)
    deployment = page.get_by_role("region", name="Deployment")
    expect(deployment).to_contain_text("nothing yet: it takes two requests", timeout=_PATIENCE_MS)
    for index in range(3):
        body = {"example": {"index": index, "count": 60}}
        service.ask("POST", f"/v1/queries/{query_id}/requests", json=body)
    row = deployment.get_by_role("row", name="Mean latency")
    expect(row).to_contain_text("ms", timeout=_PATIENCE_MS)
    expect(row).to_contain_text("met")
    expect(page.locator("#events")).to_contain_text(f"{query_id} is serving")
    visit.assert_accessible()


def test_events_come_by_themselves_and_the_filter_stays_as_it_is_typed(
    visit: Visit, service: ServiceProcess
) -> None:
    page = visit.open("/ui/events")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    query_id = service.submit(data={"examples": 20})
    wanted = page.get_by_label("Of query")
    wanted.focus()
    page.keyboard.type(query_id[:5])
    expect(page.locator("#events")).to_contain_text(query_id, timeout=_PATIENCE_MS)
    expect(page.locator("#events")).to_contain_text(f"{query_id} is serving", timeout=_PATIENCE_MS)
    expect(wanted).to_have_value(query_id[:5])
    expect(wanted).to_be_focused()
    page.keyboard.type(query_id[5:])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/events?query={query_id}")
    page.get_by_role("link", name="measurement").click()
    expect(page.locator("#events tbody tr").first).to_contain_text("measured a configuration")
    visit.assert_accessible()


def test_a_file_becomes_a_data_set_that_is_chosen(visit: Visit, tmp_path: Path) -> None:
    page = visit.open("/ui/submit")
    fill(page, "slow-sum", accuracy="0.5", latency="1")
    page.get_by_label("Data of your own").check()
    wrong, good = tmp_path / "wrong.jsonl", tmp_path / "good.jsonl"
    wrong.write_text("{")
    good.write_text(LINES)
    chooser = page.get_by_label("A file, which becomes")
    chooser.set_input_files(wrong)
    expect(page.locator("[data-upload-status]")).to_contain_text("line 1")
    visit.complaints.clear()  # that the answer was 422
    chooser.set_input_files(good)
    expect(page.get_by_label("A data set that was handed over")).to_be_checked()
    expect(page.get_by_label("Data set", exact=True)).to_contain_text("20 inputs (good.jsonl)")
    submit(page)
    query_of(page)


def test_without_a_script_lines_are_pasted_and_a_query_file_is_taken(
    chromium: Browser, service: ServiceProcess
) -> None:
    origin = f"http://127.0.0.1:{service.port}"
    context = chromium.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{origin}/ui/submit")
        fill(page, "slow-sum", accuracy="0.5", latency="1")
        page.get_by_label("Data of your own").check()
        expect(page.get_by_label("How many")).to_be_hidden()
        page.get_by_label("JSON lines").fill(LINES)
        submit(page)
        assert service.query(query_of(page))["request"]["data"]["dataset"]
        page.goto(f"{origin}/ui/submit")
        page.get_by_role("link", name="Paste a query file").click()
        text = "pipeline: slow-sum\ndata: {examples: 20}\nslo: {accuracy: 0.5, latency_s: 1}\n"
        page.get_by_label("YAML").fill(f"{text}weight: 7\n")
        submit(page)
        assert service.query(query_of(page))["request"]["weight"] == 7
    finally:
        context.close()


@pytest.mark.parametrize("look", SIZES_AND_THEMES)
def test_pages_are_accessible_and_fit(
    chromium: Browser, service: ServiceProcess, look: str
) -> None:
    size, dark = SIZES_AND_THEMES[look]
    with visiting(chromium, f"http://127.0.0.1:{service.port}", size, dark=dark) as visit:
        for path in ("/ui/submit", "/ui/submit?way=yaml", "/ui/events", "/ui/events?kind=all"):
            page = visit.open(path)
            visit.assert_accessible()
            wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, path


def test_a_drift_is_seen_where_it_happens(chromium: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, INFRASTRUCTURE, "tests.e2e.reading:pipeline", drift_s="0.5") as service:
        query_id = service.submit(
            pipeline="reading",
            data={"examples": 30, "seed": LIGHT},
            slo={"accuracy": 0.8, "latency_s": 0.4},
        )
        service.wait_for_phase(query_id, "serving")
        with visiting(chromium, f"http://127.0.0.1:{service.port}") as visit:
            page = visit.open(f"/ui/queries/{query_id}")
            service.imitate("device", "cloud", mbit_per_s=200)
            until_another_answers(service, query_id, LIGHT)
            deployment = page.get_by_role("region", name="Deployment")
            drift = deployment.get_by_role("row", name=re.compile("UTC drifted"))
            expect(drift).to_contain_text("allowed are 400 ms", timeout=_PATIENCE_MS)
            expect(deployment.get_by_role("row", name="planned again")).to_be_visible()
            for _ in range(5):
                ask(service, query_id, LIGHT)
            observed = (
                deployment.get_by_role("row", name="Mean latency").get_by_role("cell").nth(2)
            )
            expect(observed).to_contain_text(" ms", timeout=_PATIENCE_MS)
            expect(deployment.get_by_role("row", name="device")).to_contain_text("shrink")
            visit.assert_accessible()
            visit.open("/ui/events?kind=query.drifted")
            expect(page.locator("#events tbody tr")).to_contain_text(f"{query_id} drifted")
