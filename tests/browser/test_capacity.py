"""Schedule and infrastructure in a browser: machines are taken away, and the schedule follows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import SIZES_AND_THEMES, visiting
from tests.e2e.service_process import ServiceProcess, serving

pytestmark = pytest.mark.slow
LAB = """
name: lab
tiers:
  - {name: device, machines: 1, price_usd_per_hour: 0.0, dedicated: true, speed_factor: 0.001}
  - {name: edge, machines: 2, price_usd_per_hour: 0.1}
links:
  - {between: [device, edge], bandwidth_mbit_per_s: 50, emulated: true}
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, str]]:
    """Yield a service that serves one query on its edge, and the query."""
    folder = tmp_path_factory.mktemp("capacity")
    with serving(folder, LAB, "tests.e2e.slow_sum:pipeline") as started:
        query_id = started.submit(slo={"accuracy": 0.6, "latency_s": 0.5})
        started.wait_for_phase(query_id, "serving")
        yield started, query_id


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize("path", ["/ui/schedule", "/ui/infrastructure"])
@pytest.mark.parametrize("look", SIZES_AND_THEMES)
def test_pages_are_accessible_and_fit(
    chromium: Browser,
    service: tuple[ServiceProcess, str],
    path: str,
    look: str,
) -> None:
    size, dark = SIZES_AND_THEMES[look]
    with visiting(chromium, f"http://127.0.0.1:{service[0].port}", size, dark=dark) as visit:
        page = visit.open(path)
        visit.assert_accessible()
        assert fits(page)


def test_what_a_machine_holds_is_told_to_the_keyboard(
    chromium: Browser, service: tuple[ServiceProcess, str]
) -> None:
    with visiting(chromium, f"http://127.0.0.1:{service[0].port}") as visit:
        page = visit.open("/ui/schedule")
        page.locator(".slice:visible").first.focus()
        expect(page.locator("[data-told]")).to_contain_text(f"{service[1]}, plan p-")


def test_machines_are_taken_away_once_that_is_sure_and_the_schedule_follows(
    chromium: Browser, service: tuple[ServiceProcess, str]
) -> None:
    started, query_id = service
    origin = f"http://127.0.0.1:{started.port}"
    with visiting(chromium, origin) as watching, visiting(chromium, origin) as visit:
        schedule = watching.open("/ui/schedule")
        expect(schedule.get_by_text("Nobody waits for machines.")).to_be_visible()
        page = visit.open("/ui/infrastructure")
        page.get_by_label("Machines of edge").fill("0")
        page.get_by_role("button", name="Change machines").click()
        expect(page.get_by_role("row", name=query_id)).to_contain_text("stopped")
        visit.assert_accessible()
        page.get_by_role("button", name="Back to the numbers").click()
        expect(page.get_by_label("Machines of edge")).to_have_value("0")
        page.get_by_role("button", name="Change machines").click()
        page.get_by_role("button", name="Take them away").click()
        expect(page.get_by_role("status").filter(has_text="machines were")).to_be_visible()
        expect(page.locator("#infrastructure")).to_contain_text("0 (2 are stated)")
        waiting = schedule.get_by_role("region", name="Waiting")
        expect(waiting).to_contain_text(query_id, timeout=20_000)  # nobody reloads it
        page.get_by_label("Machines of edge").fill("")
        page.get_by_role("button", name="Change machines").click()
        served = schedule.get_by_role("region", name="Served")
        expect(served).to_contain_text(query_id, timeout=20_000)


def test_what_is_wrong_is_told_at_its_field_without_a_script(
    chromium: Browser, service: tuple[ServiceProcess, str]
) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{service[0].port}/ui/infrastructure")
    page.get_by_label("Machines of edge").fill("many")
    page.get_by_role("button", name="Change machines").click()
    field = page.get_by_label("Machines of edge")
    expect(field).to_have_value("many")
    expect(field).to_have_accessible_description(
        "2 are stated; empty: as stated must be a whole number, got 'many'."
    )
    page.get_by_role("link", name="Schedule").click()
    expect(page.locator("svg.drawing:visible")).to_be_visible()
    context.close()
