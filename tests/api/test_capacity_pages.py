"""The pages of schedule and infrastructure, in process: refusals first, then what they do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.rescheduler import Rescheduler
from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.phases import QueryPhase
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.report import SpanCounts, bucket_of
from circinus.pipelines.execution.needs import package
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import MachineType, Tier
from tests.api.fakes import PIPELINE, FakeCatalogue, FakeDeployer, add_planned, parts, plan

LAB = Infrastructure(
    name="lab",
    tiers=(
        Tier(name="device", dedicated=True, emulated=True),
        Tier(name="cloud", machines=2, price_usd_per_hour=1.0),
        Tier(
            name="farm",
            types=(
                MachineType(name="small", machines=3, price_usd_per_hour=0.1),
                MachineType(name="large", machines=1, price_usd_per_hour=0.4),
            ),
        ),
    ),
    links=(
        Link(between=("device", "cloud"), bandwidth_bytes_per_s=6.25e6, emulated=True),
        Link(between=("cloud", "farm"), bandwidth_bytes_per_s=1.25e8),
    ),
)
MACHINES, LINKS = "/ui/infrastructure/machines", "/ui/infrastructure/links"
BANDWIDTH = "device-cloud.bandwidth_mbit_per_s"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(replace(parts(tmp_path, {}), infrastructure=LAB), FakeDeployer())
    yield made
    made.parts.store.close()


@pytest.fixture
def pages(service: Service) -> TestClient:
    app = application_of(service)
    return TestClient(app, base_url="http://127.0.0.1:8350", follow_redirects=False)


def served(service: Service, *names: str) -> None:
    """Let queries be served that take a whole machine each."""
    store = service.parts.store
    for at, name in enumerate(names):
        add_planned(store, name, plan(share=1.0), at=float(at))
        store.move(name, QueryPhase.SERVING, at=float(at))
        assert isinstance(service.deployer, FakeDeployer)
        desired = DesiredDeployment(pipeline_reference="add", plan=plan(share=1.0))
        service.deployer.desired[name] = desired
    reports = service.deployer.reports
    asyncio.run(Rescheduler(parts=service.parts, reports=reports).tick())


def words(text: str) -> str:
    """Return what a page says, without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def values(text: str) -> dict[str, str]:
    """Return what is in the fields of a page, those that are not seen included."""
    found: dict[str, str] = {}
    for tag in re.findall(r"<input [^>]*>", text):
        told = dict(re.findall(r' (\w+)="([^"]*)"', tag))
        found[told["name"]] = unescape(told["value"])
    return found


def there(pages: TestClient) -> dict[str, int]:
    """Return how many machines there are."""
    cloud, farm = pages.get("/v1/infrastructure").json()["tiers"][1:]
    return {
        "cloud": cloud["machines"],
        **{each["name"]: each["machines"] for each in farm["types"]},
    }


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ({"machines.cloud": "many"}, "Machines of cloud must be a whole number, got 'many'"),
        ({"machines.cloud": "-1"}, "Machines of cloud must be >= 0, got -1"),
        ({"machines.cloud": "2.5"}, "Machines of cloud must be a whole number, got 2.5"),
        ({"machines.cloud": "nan"}, "Machines of cloud must be a whole number, got nan"),
        ({"machines.farm/small": "100001"}, "Machines of farm/small must be <= 100000"),
        ({"machines.farm/large": "<b>"}, "Machines of farm/large must be a whole number"),
    ],
)
def test_machines_that_cannot_be_are_told_at_their_field_and_stay_typed(
    pages: TestClient, typed: dict[str, str], told: str
) -> None:
    form = {**values(pages.get("/ui/infrastructure").text), **typed}
    answer = pages.post(MACHINES, data=form)
    assert answer.status_code == 422
    assert told in words(answer.text)
    ((name, value),) = typed.items()
    assert values(answer.text)[name] == value
    assert f'id="{name}-violation"' in answer.text
    assert answer.text.count('aria-invalid="true"') == 1
    assert there(pages) == {"cloud": 2, "small": 3, "large": 1}


def test_all_that_is_wrong_is_told_at_once(pages: TestClient) -> None:
    answer = pages.post(MACHINES, data={"machines.cloud": "x", "machines.farm/small": "y"})
    assert answer.text.count('aria-invalid="true"') == 2


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ({BANDWIDTH: "0"}, "device - cloud, bandwidth must be >= 0.001, got 0"),
        ({BANDWIDTH: ""}, "device - cloud, bandwidth must be a finite number, got ''"),
        ({"device-cloud.delay_s": "-1"}, "device - cloud, delay must be >= 0, got -1"),
        ({"device-cloud.delay_s": "1e999"}, "device - cloud, delay must be finite"),
    ],
)
def test_links_that_cannot_be_are_told_at_their_field(
    pages: TestClient, typed: dict[str, str], told: str
) -> None:
    answer = pages.post(LINKS, data=typed)
    assert answer.status_code == 422
    assert told in words(answer.text)
    ((name, value),) = typed.items()
    assert values(answer.text)[name] == value


def test_dedicated_tiers_and_the_networks_own_links_have_no_fields(pages: TestClient) -> None:
    fields = values(pages.get("/ui/infrastructure").text)
    assert {name for name in fields if not name.startswith("was.")} == {
        "machines.cloud",
        "machines.farm/small",
        "machines.farm/large",
        BANDWIDTH,
        "device-cloud.delay_s",
    }
    answer = pages.post(MACHINES, data={"machines.device": "0", "machines.moon": "3"})
    assert answer.status_code == 200
    assert there(pages) == {"cloud": 2, "small": 3, "large": 1}


def test_who_takes_machines_away_is_first_told_who_would_make_way(
    service: Service, pages: TestClient
) -> None:
    served(service, "q-1", "q-2")
    form = {**values(pages.get("/ui/infrastructure").text), "machines.cloud": "1"}
    asked = pages.post(MACHINES, data=form)
    assert asked.status_code == 200
    told = words(asked.text)
    assert "cloud: 2 now, 1 then" in told
    assert "1 of the queries that are served would have to make way" in told
    assert "stopped nothing; it would wait" in told
    assert "Served then: 1. Waiting then: 1." in told
    assert there(pages)["cloud"] == 2
    kept = values(asked.text)
    back = pages.post(MACHINES, data={**kept, "again": "yes"})
    assert values(back.text)["machines.cloud"] == "1"
    assert there(pages)["cloud"] == 2
    done = pages.post(MACHINES, data={**kept, "sure": "yes"})
    assert done.status_code == 303
    assert there(pages)["cloud"] == 1
    shown = pages.get(done.headers["location"]).text
    assert "The machines were changed" in words(shown)
    assert "1 (2 are stated)" in words(shown)


def test_where_nobody_has_to_make_way_it_says_so(pages: TestClient) -> None:
    asked = pages.post(MACHINES, data={"machines.cloud": "0"})
    assert "Nobody who is served would have to make way" in words(asked.text)


def test_machines_that_come_need_no_second_thought_and_empty_is_as_stated(
    pages: TestClient,
) -> None:
    assert pages.post(MACHINES, data={"machines.farm/small": "5"}).status_code == 303
    assert there(pages)["small"] == 5
    form = {"machines.farm/small": "", "sure": "yes"}
    assert "farm/small: 5 now, 3 then" in words(
        pages.post(MACHINES, data={**form, "sure": ""}).text
    )
    assert pages.post(MACHINES, data=form).status_code == 303
    assert there(pages)["small"] == 3


@pytest.mark.parametrize("path", [MACHINES, LINKS])
def test_a_form_that_changes_nothing_says_so(pages: TestClient, path: str) -> None:
    answer = pages.post(path, data=values(pages.get("/ui/infrastructure").text))
    if answer.status_code == 303:
        answer = pages.get(answer.headers["location"])
    assert "Nothing was changed" in words(answer.text)
    assert pages.get("/v1/events").json()["items"] == []


def test_what_was_not_touched_stays_as_others_made_it(pages: TestClient) -> None:
    form = values(pages.get("/ui/infrastructure").text)
    pages.patch("/v1/infrastructure", json={"machines": {"cloud": 7}})
    pages.post(MACHINES, data={**form, "machines.farm/large": "2"})
    assert there(pages) == {"cloud": 7, "small": 3, "large": 2}


def test_a_link_is_imitated_and_what_is_planned_for_stays(
    service: Service, pages: TestClient
) -> None:
    form = values(pages.get("/ui/infrastructure").text)
    assert form[BANDWIDTH] == "50"
    assert pages.post(LINKS, data={**form, BANDWIDTH: "12.5"}).status_code == 303
    assert isinstance(service.deployer, FakeDeployer)
    emulated = service.deployer.emulated
    assert emulated is not None
    assert [link.bandwidth_bytes_per_s for link in emulated.links] == [12.5e6 / 8, 1.25e8]
    shown = words(pages.get("/ui/infrastructure?done=links").text)
    assert "device - cloud 50 Mbit/s, 0.00 ms 12.5 Mbit/s, 0.00 ms emulated" in shown
    assert "cloud - farm 1000 Mbit/s, 0.00 ms the network's own" in shown


def test_the_page_tells_what_is_offered_and_what_is_missing(tmp_path: Path) -> None:
    lacking = replace(PIPELINE, name="lacking", needs=(package("no_such", extra="x"),))
    given = parts(tmp_path, {})
    given = replace(given, catalogue=FakeCatalogue({"add": PIPELINE, "lacking": lacking}))
    client = TestClient(
        application_of(Service(given, FakeDeployer())), base_url="http://127.0.0.1"
    )
    shown = words(client.get("/ui/infrastructure").text)
    assert "add available" in shown
    assert "lacking missing" in shown
    assert "no_such: pip install 'circinus[x]'" in shown
    assert "No link is emulated." in shown
    given.store.close()


@pytest.mark.parametrize("path", ["/ui/schedule", "/ui/schedule/now"])
def test_an_empty_schedule_is_told(pages: TestClient, path: str) -> None:
    shown = words(pages.get(path).text)
    assert "nothing was scheduled yet" in shown
    assert "No query is served." in shown
    assert "Nobody waits for machines." in shown


def test_the_schedule_tells_who_is_served_waits_and_made_way(
    service: Service, pages: TestClient
) -> None:
    served(service, "q-1", "q-2", "q-3")
    service.parts.capacity.set_machines({"cloud": 1})
    served(service)
    assert isinstance(service.deployer, FakeDeployer)
    running = service.parts.store.schedules.read()[1].schedule.assignments[0].query_id
    minute = SpanCounts(
        span_s=60.0, covered_s=60.0, buckets={bucket_of(0.1): 3}, in_time=3, turned_away=1
    )
    service.deployer.report(running, spans=(minute,))
    text = pages.get("/ui/schedule").text
    shown = words(text)
    assert re.search(rf"1 {running} p-\w+ cloud / 0: 1 1970-01-01 \S+ UTC \$1.0000/h", shown)
    assert "4 requests, 0.750 in time" in shown
    assert "Last 1 min: 3 of 4 in time, 1 turned away, p50 101 ms" in shown
    assert "Served 1 Waiting 2 device, in use 0.00" in shown
    assert "cloud, in use 100 %" in shown
    assert "because its machines or plan are gone" in shown
    assert "so at most 0.0% is missing" in shown
    assert text.count('aria-label="Machines and what fills them') == 2
    assert not re.search(r"\sstyle=|<script>|<style", text)
