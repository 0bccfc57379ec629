"""A tier that is called, as the service shows it: it has endpoints, and nobody sets machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from rich.console import Console

from circinus.api.control.service import Service
from circinus.api.drawing.links import links_svg
from circinus.api.http.app import application_of
from circinus.api.schemas.explanation import WhatIfBody
from circinus.api.schemas.service import infrastructure_view
from circinus.api.text.tiers import tiers_table
from circinus.api.use_cases.capacity import with_machines
from circinus.api.use_cases.changes import changed_infrastructure
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, RateLimits
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier
from tests.api.fakes import FakeDeployer, parts

SMALL = Endpoint(
    name="small",
    price=CallPrice(
        input_usd_per_million=0.15, output_usd_per_million=0.6, source="list <of> May"
    ),
    limits=RateLimits(requests_per_minute=500, concurrent=20),
    most_output_tokens=1000,
)
OWN = Endpoint(name="own", price=CallPrice(call_usd=0.01, usd_per_s=0.002), timeout_s=30.0)
LAB = Infrastructure(
    name="lab",
    tiers=(
        Tier(name="device", dedicated=True),
        Tier(name="cloud", machines=2, price_usd_per_hour=1.0),
        Tier(name="api", endpoints=(SMALL, OWN)),
    ),
    links=(
        Link(between=("device", "cloud"), bandwidth_bytes_per_s=6.25e6),
        Link(between=("cloud", "api"), bandwidth_bytes_per_s=1.25e8, delay_s=0.03),
    ),
)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(replace(parts(tmp_path, {}), infrastructure=LAB), FakeDeployer())
    yield made
    made.parts.store.close()


@pytest.fixture
def web(service: Service) -> TestClient:
    app = application_of(service)
    return TestClient(app, base_url="http://127.0.0.1:8350", follow_redirects=False)


def test_no_machines_are_set_on_a_tier_that_is_called(web: TestClient) -> None:
    refused = web.patch("/v1/infrastructure", json={"machines": {"api": 3}})
    assert refused.status_code == 422
    assert "must name shared tiers (cloud), got 'api'" in refused.json()["detail"]


def test_no_preview_gives_machines_to_a_tier_that_is_called(web: TestClient) -> None:
    refused = web.post("/v1/schedule:preview", json={"machines": {"api": 3}})
    assert refused.status_code == 422
    assert "must be among device, cloud, got 'api'" in refused.json()["detail"]


@pytest.mark.parametrize("field", ["machines", "price", "speed"])
def test_no_question_gives_machines_to_a_tier_that_is_called(field: str) -> None:
    change = WhatIfBody.model_validate({field: {"api": "2"}})
    with pytest.raises(InvalidInput, match=r"must name a tier \(device, cloud\), got 'api'"):
        changed_infrastructure(LAB, change)


def test_what_is_called_stays_as_it_is_when_machines_come_and_go(service: Service) -> None:
    capacity = service.parts.capacity
    now = capacity.set_machines({"cloud": 5})
    assert (now.tier("cloud").machines, now.tier("api")) == (5, LAB.tier("api"))
    assert capacity.planned_for().tier("api") == LAB.tier("api")
    assert with_machines(LAB, {"api": 3}).tier("api") == LAB.tier("api")
    faster = changed_infrastructure(LAB, WhatIfBody(speed={"cloud": "2x"}))
    assert (faster.tier("cloud").speed_factor, faster.tier("api")) == (2.0, LAB.tier("api"))


def test_endpoints_are_told_over_http_with_price_and_limits(web: TestClient) -> None:
    *machines, api = web.get("/v1/infrastructure").json()["tiers"]
    assert [tier["endpoints"] for tier in machines] == [[], []]
    assert (api["name"], api["machines"], api["dedicated"]) == ("api", 0, False)
    small, own = api["endpoints"]
    assert small["price"] == {
        "input_usd_per_million": 0.15,
        "cached_usd_per_million": None,
        "output_usd_per_million": 0.6,
        "call_usd": 0.0,
        "usd_per_s": 0.0,
        "source": "list <of> May",
    }
    assert small["limits"] == {
        "requests_per_minute": 500,
        "tokens_per_minute": None,
        "concurrent": 20,
    }
    assert (small["most_input_tokens"], small["most_output_tokens"]) == (None, 1000)
    assert (own["name"], own["timeout_s"]) == ("own", 30.0)


def test_the_schedule_counts_machines_only_where_there_are_some(web: TestClient) -> None:
    shown = web.get("/v1/schedule").json()
    assert [use["tier"] for use in shown["tiers"]] == ["device", "cloud"]


def test_the_command_line_shows_what_is_called() -> None:
    console = Console(width=140, record=True, file=StringIO())
    console.print(tiers_table(infrastructure_view(LAB)))
    shown = " ".join(console.export_text().split())
    assert "api - - - called" in shown
    assert (
        "api/small $0.15 in, $0.6 out per million tokens "
        "500 requests/min, 20 at once, 1,000 tokens written" in shown
    )
    assert "api/own $0.01/call, $0.002/s none" in shown


def test_the_drawing_of_tiers_names_what_is_called() -> None:
    assert "called: small, own" in links_svg(infrastructure_view(LAB))


@pytest.mark.parametrize("path", ["/ui/infrastructure", "/ui/schedule", "/ui/infrastructure/now"])
def test_pages_show_a_tier_that_is_called_without_machines(web: TestClient, path: str) -> None:
    page = web.get(path)
    assert page.status_code == 200
    assert "Machines of api" not in page.text
    if "infrastructure" in path:
        assert "api/small" in page.text
        assert "$0.15 in, $0.6 out per million tokens" in page.text
        assert "list &lt;of&gt; May" in page.text
