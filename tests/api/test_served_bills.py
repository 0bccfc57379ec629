"""What serving came to, as clients see it: beside what was predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.http.data_plane import reply_of
from circinus.api.phases import QueryPhase
from circinus.api.schemas.deployments import InstanceView
from circinus.api.schemas.plans import ServedBillView, served_bill_view
from circinus.api.store.store import Store
from circinus.api.text import formats
from circinus.deploy.runtime.report import ServedBill
from circinus.deploy.runtime.walk import RequestResult
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, Usage
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.payload import encode
from circinus.pipelines.model.plan import PlanCalls
from circinus.pipelines.model.slo import Estimate
from circinus.pipelines.model.tiers import Tier
from tests.api.fakes import INFRASTRUCTURE, FakeDeployer, add_planned, parts, plan

READER = Endpoint(name="reader", price=CallPrice(call_usd=0.001))
HOSTED = Infrastructure(
    name="hosted",
    tiers=(*INFRASTRUCTURE.tiers, Tier(name="hosted", endpoints=(READER,))),
    links=(Link(between=("cloud", "hosted"), bandwidth_bytes_per_s=1e9, delay_s=0.0),),
)
ESTIMATE = Estimate(value=0.0011, low=0.001, high=0.0012, confidence=0.95, inputs=10)
PLAN = replace(plan(), calls=PlanCalls(usd_per_request=ESTIMATE, per_request={}))
USED = Usage(calls=5, input_tokens=1200, cached_tokens=200, output_tokens=40, usd=0.005)
BILL = ServedBill(plan_id=PLAN.id, answered=4, failed=1, used={"add": {"reader": USED}}, unsure=2)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    found = Service(replace(parts(tmp_path, {}), infrastructure=HOSTED), FakeDeployer())
    add_planned(found.parts.store, "q-1", PLAN)
    yield found
    found.parts.store.close()


@pytest.fixture
def client(service: Service) -> TestClient:
    return TestClient(application_of(service), base_url="http://127.0.0.1")


@pytest.fixture
def store(service: Service) -> Store:
    return service.parts.store


def test_a_query_that_called_nothing_has_no_bill(client: TestClient) -> None:
    assert client.get("/v1/queries/q-1").json()["billed"] == []


def test_a_query_tells_what_its_calls_came_to_beside_what_was_predicted(
    client: TestClient, store: Store
) -> None:
    store.bills.keep("run", "q-1", BILL)
    (found,) = client.get("/v1/queries/q-1").json()["billed"]
    assert (found["plan_id"], found["answered"], found["failed"]) == (PLAN.id, 4, 1)
    assert found["unsure"] == 2
    assert found["total"] == USED._asdict()
    assert found["called"] == [{**USED._asdict(), "operator": "add", "endpoint": "reader"}]
    assert found["usd_per_1000_requests"] == pytest.approx(1.25)  # 0.005 for 4 answers
    assert found["predicted_usd_per_1000_requests"] == pytest.approx(1.1)


def test_the_bill_stays_when_the_query_is_over(client: TestClient, store: Store) -> None:
    store.bills.keep("run", "q-1", BILL)
    store.move("q-1", QueryPhase.RETIRED, at=9.0)
    assert len(client.get("/v1/queries/q-1").json()["billed"]) == 1


def test_a_plan_that_is_no_longer_the_querys_is_billed_without_a_prediction(
    client: TestClient, store: Store
) -> None:
    store.bills.keep("run", "q-1", replace(BILL, plan_id="p-other"))
    (found,) = client.get("/v1/queries/q-1").json()["billed"]
    assert found["predicted_usd_per_1000_requests"] is None


def test_lists_tell_no_bills(client: TestClient, store: Store) -> None:
    store.bills.keep("run", "q-1", BILL)
    (listed,) = client.get("/v1/queries").json()["items"]
    assert listed["billed"] == []


def test_the_page_of_a_deployment_tells_the_bill(client: TestClient, store: Store) -> None:
    store.bills.keep("run", "q-1", BILL)
    assert (
        "$1.25 for 1,000 requests ($1.10 predicted)"
        in client.get("/ui/queries/q-1/deployment").text
    )


def test_what_calls_is_shown_without_a_share() -> None:
    told = {"tier": "t", "operators": ["read"], "address": "", "share": 0.5, "enforcement": ""}
    view = InstanceView.model_validate({**told, "emulated": False})
    assert formats.size_of(view) == "0.5"
    assert formats.size_of(view.model_copy(update={"calls_at_once": 32})) == "32 calls at once"


def test_a_bill_in_words() -> None:
    told = formats.billed(served_bill_view(BILL, PLAN))
    assert told == (
        f"bill of plan {PLAN.id}: 4 answered, 1 failed; 5 calls, 1,200 tokens read (200 cached), "
        "40 written, $0.0050; $1.25 for 1,000 requests ($1.10 predicted); "
        "2 calls were lost, and are billed as the most that they may be"
    )


def test_a_bill_before_the_first_answer_tells_nothing_of_a_thousand() -> None:
    view = served_bill_view(ServedBill(plan_id="p"), None)
    assert isinstance(view, ServedBillView)
    assert "1,000" not in formats.billed(view)


def test_an_answer_tells_what_it_cost() -> None:
    result = RequestResult(
        encoded=encode("12"),
        latency_s=1.0,
        operator_s={},
        tier_s={},
        path_operator_s=1.0,
        waiting_s=0.0,
        transfer_s=0.0,
        overhead_s=0.0,
        retries=0,
        used={"read": USED, "check": Usage(calls=1, usd=0.5)},
    )
    reply = reply_of(result, "p-1", INFRASTRUCTURE, "12").model_dump()
    assert reply["usd"] == pytest.approx(0.505)
    assert reply["used"]["read"] == USED._asdict()
