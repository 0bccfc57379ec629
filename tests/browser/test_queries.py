"""A person looks at queries in a real browser: live, by keyboard, on a phone and in the dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import SIZES_AND_THEMES, Visit, visiting
from tests.e2e.service_process import ServiceProcess

pytestmark = pytest.mark.slow
TOKEN = "a token of tests"
_PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    settings = {"CIRCINUS_TOKEN": TOKEN}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    made = ServiceProcess(tmp_path_factory.mktemp("pages"), extra=settings, headers=headers)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def planned(service: ServiceProcess) -> str:
    """A query that serves."""
    query_id = service.submit()
    service.wait_for_phase(query_id, "serving")
    return query_id


def entered(visit: Visit, path: str) -> Page:
    """Open a page, over the login that it leads to."""
    page = visit.open(path)
    page.get_by_label("Token of the service").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{visit.origin}{path}")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    return page


@pytest.fixture
def visit(chromium: Browser, service: ServiceProcess) -> Iterator[Visit]:
    with visiting(chromium, f"http://127.0.0.1:{service.port}") as made:
        yield made


def test_a_query_is_followed_live_and_cancelled(visit: Visit, service: ServiceProcess) -> None:
    page = entered(visit, "/")
    query_id = service.submit(data={"examples": 100}, slo={"accuracy": 0.999, "latency_s": 1.0})
    row = page.get_by_role("row").filter(has_text=query_id)
    expect(row).to_contain_text("planning", timeout=_PATIENCE_MS)  # nobody reloads
    page.get_by_role("link", name=query_id).click()
    found = page.get_by_role("region", name="The search as it happens")
    measured = found.locator(".measured")
    expect(measured.first).to_be_visible(timeout=_PATIENCE_MS)
    seen = measured.count()
    page.wait_for_function(
        "seen => document.querySelectorAll('#found .drawing .measured').length > seen",
        arg=seen,
        timeout=_PATIENCE_MS,
    )
    page.get_by_role("link", name="Cancel").click()
    visit.assert_accessible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#summary")).to_contain_text("cancelled", timeout=_PATIENCE_MS)
    assert service.query(query_id)["phase"] == "cancelled"


def test_the_front_is_read_with_the_keyboard(visit: Visit, planned: str) -> None:
    page = entered(visit, f"/ui/queries/{planned}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    point = page.locator("a.plan").first
    point.focus()
    plan_id = point.get_attribute("data-plan")
    expect(page.locator(f"tr[data-row='{plan_id}']")).to_have_class(re.compile(r"\bpointed\b"))
    expect(point).to_have_accessible_name(re.compile(str(plan_id)))
    page.locator(f"#{plan_id}").press("Enter")
    expect(page.locator("#plan")).to_contain_text(str(plan_id))
    expect(page.locator("#plan .operator").first).to_be_visible()


def test_sliders_say_what_would_be_and_replan(
    visit: Visit, service: ServiceProcess, planned: str
) -> None:
    page = entered(visit, f"/ui/queries/{planned}")
    price = page.get_by_role("group", name="Tier edge").get_by_label("Price")
    expect(page.locator("#answer")).to_contain_text("Move a slider")
    price.fill("2")
    expect(page.locator("#answer")).to_contain_text("The cheapest plan would")
    expect(page.locator("output[for='if-price.edge']")).to_have_text("2 x $0.1000/h")
    page.get_by_label("Least accuracy").fill("0.5")
    page.get_by_role("button", name="Replan with these objectives").click()
    visit.assert_accessible()
    page.get_by_role("button", name="Replan").click()
    page.wait_for_url(f"{visit.origin}/ui/queries/{planned}")
    assert service.query(planned)["request"]["slo"]["accuracy"] == 0.5


def test_without_a_script_every_question_has_a_page(
    chromium: Browser, service: ServiceProcess, planned: str
) -> None:
    origin = f"http://127.0.0.1:{service.port}"
    context = chromium.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{origin}/ui/queries/{planned}")
        page.get_by_label("Token of the service").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Work it out").click()
        expect(page.locator("#answer")).to_contain_text("as it would be")
        page.goto(f"{origin}/")
        expect(page.get_by_role("link", name=planned)).to_be_visible()
    finally:
        context.close()


@pytest.mark.parametrize("look", SIZES_AND_THEMES)
def test_pages_are_accessible_and_fit(
    chromium: Browser, service: ServiceProcess, planned: str, look: str
) -> None:
    origin = f"http://127.0.0.1:{service.port}"
    size, dark = SIZES_AND_THEMES[look]
    with visiting(chromium, origin, size, dark=dark) as visit:
        visit.open("/")
        visit.assert_accessible()  # the login
        page = entered(visit, "/")
        for path in ("/", f"/ui/queries/{planned}", f"/ui/queries/{planned}/undeploy", "/docs"):
            visit.open(path)
            visit.assert_accessible()
            wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, path


def test_somebody_may_choose_light_or_dark_for_good(visit: Visit) -> None:
    page = entered(visit, "/")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(ground) != light
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) != light


def test_a_service_that_goes_away_is_said_to_and_comes_back(
    chromium: Browser, tmp_path: Path
) -> None:
    service = ServiceProcess(tmp_path)
    service.start()
    try:
        with visiting(chromium, f"http://127.0.0.1:{service.port}") as visit:
            page = visit.open("/")
            expect(page.get_by_text("Live", exact=True)).to_be_visible()
            service.kill()
            expect(page.get_by_text("Not connected")).to_be_visible(timeout=_PATIENCE_MS)
            service.start()
            query_id = service.submit()
            link = page.get_by_role("link", name=query_id)
            expect(link).to_be_visible(timeout=_PATIENCE_MS)  # nobody reloads
            visit.complaints.clear()  # of the answers that did not come
    finally:
        service.stop()
