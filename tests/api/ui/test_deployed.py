"""How a deployment keeps what its plan promised, as its query's page shows it."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from circinus.api.phases import QueryPhase
from circinus.api.schemas.deployments import ExampleReference
from circinus.api.schemas.events import EventKind
from circinus.api.store.records import InForce, NewEvent
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.report import SpanCounts, bucket_of
from tests.api.fakes import FakeDeployer, add_planned, answers, plan
from tests.api.test_app import Connect, service_of, store_of

HOSTILE = "<script>alert(1)</script>"
PART = "/ui/queries/q-1/deployment"
POOL = {"cloud": {"large": 1, "small": 3}}


@pytest.fixture
def deployer() -> FakeDeployer:
    deployer = FakeDeployer()
    deployer.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=plan())
    return deployer


@pytest.fixture
def client(connect: Connect, deployer: FakeDeployer) -> TestClient:
    client = connect(deployer)
    add_planned(store_of(client), "q-1", plan(), slo={"accuracy": 0.9, "latency_s": 0.3})
    store_of(client).move("q-1", QueryPhase.SERVING, at=1.0)
    return client


def answer(deployer: FakeDeployer, *latency_s: float) -> None:
    """Let the deployment have answered so."""
    deployer.report("q-1", answered=len(latency_s), answers=answers(*latency_s))


def scores(client: TestClient, *scores: float) -> None:
    for index, score in enumerate(scores):
        example = ExampleReference(index=index)
        service_of(client).requests.windows.note("q-1", plan().id, example, score)


def row(page: str, name: str) -> list[str]:
    """Return what stands in the row of an objective: asked, predicted, observed, state."""
    found = re.search(rf'<th scope="row">{name}</th>(.*?)</tr>', page, re.DOTALL)
    assert found is not None, page
    cells = re.findall(r"<td[^>]*>(.*?)</td>", found[1], re.DOTALL)
    return [unescape(re.sub("<[^>]*>", "", cell)).strip() for cell in cells]


def test_there_is_no_deployment_of_a_query_that_is_none(client: TestClient) -> None:
    assert client.get("/ui/queries/q-2/deployment").status_code == 404


def test_without_a_deployment_it_says_why(connect: Connect) -> None:
    client = connect()
    add_planned(store_of(client), "q-1", plan())
    store_of(client).move("q-1", QueryPhase.RETIRED, at=1.0, message=f"because {HOSTILE}")
    page = client.get(PART).text
    assert HOSTILE not in page
    assert f"Nothing is deployed: because {HOSTILE}" in unescape(page)


def test_a_deployment_that_failed_says_why(client: TestClient, deployer: FakeDeployer) -> None:
    deployer.broken.add(plan().id)
    page = client.get(PART).text
    assert ">failed</span>" in page
    assert "no such program" in page


def test_a_deployment_of_a_plan_that_was_replaced_is_shown_without_promises(
    client: TestClient, deployer: FakeDeployer
) -> None:
    deployer.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=plan(share=0.25))
    answer(deployer, 0.2, 0.2)
    asked, predicted, _, state = row(client.get(PART).text, "Accuracy")
    assert (asked, predicted, state) == ("at least 0.9", "-", "not known")


def test_before_requests_nothing_is_observed(client: TestClient) -> None:
    page = client.get(PART).text
    assert row(page, "Accuracy")[:2] == ["at least 0.9", "1.000 (0.900-1.000)"]
    assert row(page, "Accuracy")[2].startswith("nothing yet")
    assert row(page, "Mean latency")[2:] == ["nothing yet: it takes two requests", "not known"]
    assert row(page, "Rate")[2] == "none in the last minute"


def test_predicted_stands_beside_observed_with_what_that_says_of_the_objective(
    client: TestClient, deployer: FakeDeployer
) -> None:
    answer(deployer, *[0.2, 0.22] * 20)
    scores(client, *[0.0] * 30)
    minute = SpanCounts(
        span_s=60.0, covered_s=60.0, buckets={bucket_of(0.2): 39}, in_time=39, turned_away=1
    )
    deployer.report("q-1", spans=(minute,))
    page = client.get(PART).text
    # A mean of 210 ms, within 300 ms; 30 wrong answers in 30, where nine in ten should be right.
    assert "by the last 40 requests" in page
    assert row(page, "Mean latency")[0] == "at most 300 ms"
    assert row(page, "Mean latency")[2].startswith("210 (")
    assert row(page, "Mean latency")[3] == "met"
    assert row(page, "Accuracy")[2].startswith("0.000 (0.000-")
    assert row(page, "Accuracy")[3] == "violated"
    assert row(page, "Rate")[2] == "0.65 per second in time"
    lately = row(page, "1 minute")
    assert lately[:5] == ["40", "39", "1", "0", "0.65"]


@pytest.mark.parametrize(
    ("in_force", "state", "missing"),
    [
        (InForce(), "pending", []),
        (InForce(lacking={"q-1": f"no room, {HOSTILE}"}), "lacking", [f"no room, {HOSTILE}"]),
        (InForce(pools={"q-1": POOL}, lacking={"q-1": "of before"}), "placed", []),
    ],
)
def test_a_pool_is_told_with_what_is_missing(
    client: TestClient, in_force: InForce, state: str, missing: list[str]
) -> None:
    store = store_of(client)
    store.set_pool("q-1", POOL, at=1.0)
    store.schedules.replace(in_force)
    page = client.get(PART).text
    assert f">{state}</span></caption>" in page
    assert '<th scope="row">cloud</th><td data-head="Slices">1 large, 3 small</td>' in page
    assert HOSTILE not in page
    assert re.findall("The pool does not fit: (.*?)</p>", unescape(page)) == missing


def test_a_pool_that_follows_the_requests_says_so_and_none_is_not_spoken_of(
    client: TestClient,
) -> None:
    assert "Pool" not in client.get(PART).text
    store_of(client).set_pool("q-1", POOL, at=1.0, follows=True)
    assert ", anew when requests change</caption>" in client.get(PART).text


def test_drifts_and_what_was_done_are_told_latest_first_each_reason_once(
    client: TestClient,
) -> None:
    why = f"latency is 1 s, {HOSTILE}"
    store_of(client).events.tell(
        NewEvent(
            kind=EventKind.DRIFTED, at=2.0, query_id="q-1", words="q-1 drifted", data={"why": why}
        )
    )
    page = client.get(PART).text
    assert HOSTILE not in page
    assert unescape(page).count(why) == 1
    assert "drifted" in page
    assert "1970-01-01 00:00:02 UTC" in page


def test_the_page_of_the_query_has_it_without_a_script(client: TestClient) -> None:
    page = client.get("/ui/queries/q-1").text
    assert 'id="deployment"' in page
    assert 'id="events"' in page
