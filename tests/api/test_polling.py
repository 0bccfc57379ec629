"""What is polled: an empty 304 while it is as before, and never an old state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.http.rendered import tagged
from circinus.api.phases import QueryPhase
from circinus.api.store.records import DisplacedRecord, InForce, NewQuery, to_document
from circinus.api.store.store import Store
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.telemetry import Traffic
from circinus.pipelines.errors import Unavailable
from circinus.planner.search.result import PlanningPhase, PlanningProgress
from circinus.scheduler.problem import Schedule
from tests.api.fakes import SPEC, FakeDeployer, add_planned, parts, plan

POLLED = ["/v1/queries/q-1", "/v1/queries/q-1/plans", "/v1/queries/q-1/deployment", "/v1/queries"]


class Away(FakeDeployer):
    """One whose process has ended."""

    async def status(self, query_id: str) -> None:
        raise Unavailable("it is started again", retry_after_s=1.0)


@pytest.fixture
def deployer() -> FakeDeployer:
    return FakeDeployer()


@pytest.fixture
def service(tmp_path: Path, deployer: FakeDeployer) -> Iterator[Service]:
    made = Service(parts(tmp_path, {}), deployer)
    add_planned(made.parts.store, "q-1", plan())
    yield made
    made.parts.store.close()


@pytest.fixture
def store(service: Service) -> Store:
    return service.parts.store


@pytest.fixture
def client(service: Service) -> TestClient:
    return TestClient(application_of(service), base_url="http://127.0.0.1:8350")


def status_with(client: TestClient, path: str, tag: str) -> int:
    answer = client.get(path, headers={"If-None-Match": tag})
    assert answer.status_code == 200 or (answer.content, answer.headers["etag"]) == (b"", tag)
    return answer.status_code


@pytest.mark.parametrize("path", POLLED)
def test_with_its_tag_what_is_as_before_is_an_empty_304(client: TestClient, path: str) -> None:
    tag = client.get(path).headers["etag"]
    assert status_with(client, path, tag) == 304
    assert status_with(client, path, '"another"') == 200


@pytest.mark.parametrize("path", POLLED)
def test_what_was_stored_meanwhile_is_shown_by_the_next_look(
    client: TestClient, store: Store, path: str
) -> None:
    tag = client.get(path).headers["etag"]
    add_planned(store, "q-2", plan())
    store.move("q-1", QueryPhase.RETIRED, at=9.0, message="undeployed")
    if path.endswith("/plans"):  # the same plans
        assert status_with(client, path, tag) == 304
        return
    assert status_with(client, path, tag) == 200
    assert "undeployed" in client.get(path).text


def test_the_news_of_a_planning_worker_is_shown_by_the_next_look(
    client: TestClient, store: Store
) -> None:
    path = "/v1/queries/q-2"
    add_planned_but_the_end(store)
    tag = client.get(path).headers["etag"]
    store.queue.beat("q-2", "w", at=3.0)
    assert status_with(client, path, tag) == 304  # a beat alone is no news
    store.queue.beat("q-2", "w", at=4.0, progress=progress(measured=3))
    assert status_with(client, path, tag) == 200
    assert client.get(path).json()["progress"]["measured"] == 3


def test_another_schedule_is_shown_by_the_next_look(client: TestClient, store: Store) -> None:
    before = client.get("/v1/queries/q-1").json()
    assert (before["message"], before["displaced"]) == ("planned", [])
    schedule = Schedule(assignments=(), waiting={"q-1": "no room"}, utilisation={})
    way = DisplacedRecord(at=5.0, query_id="q-1", by=None, moved=False)
    store.schedules.replace(InForce(schedule=schedule, made_at=5.0), [way])
    after = client.get("/v1/queries/q-1").json()
    assert after["message"] == "no room"
    assert len(after["displaced"]) == 1
    (listed,) = client.get("/v1/queries").json()["items"]
    assert (listed["message"], listed["displaced"]) == ("no room", [])


def test_a_deployment_is_shown_as_it_is_now(
    client: TestClient, store: Store, deployer: FakeDeployer
) -> None:
    store.move("q-1", QueryPhase.SERVING, at=9.0)
    deployer.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=plan())
    path = "/v1/queries/q-1"
    tag = client.get(path).headers["etag"]
    assert status_with(client, path, tag) == 304
    traffic = Traffic(since=0.0)
    traffic.answered(1.0, 0.1, in_time=True)
    deployer.report("q-1", spans=traffic.spans(2.0))
    assert status_with(client, path, tag) == 200
    assert client.get(path).json()["deployment"]["lately"][0]["requests"] == 1


def test_what_runs_nowhere_is_shown_without_whoever_runs_deployments(
    client: TestClient, service: Service, store: Store
) -> None:
    object.__setattr__(service, "deployer", Away())
    assert client.get("/v1/queries/q-1").status_code == 503  # it may run
    store.move("q-1", QueryPhase.RETIRED, at=9.0)
    assert client.get("/v1/queries/q-1").json()["phase"] == "retired"


@pytest.mark.parametrize(
    ("known", "status"),
    [
        (None, 200),
        ("", 200),
        ("t", 200),
        ('"u"', 200),
        ('"t"', 304),
        ('W/"t"', 304),
        ('"u", "t"', 304),
        ("*", 304),
    ],
)
def test_tags_are_compared_as_http_says(known: str | None, status: int) -> None:
    assert tagged(b"{}", known, "t").status_code == status


def test_the_description_tells_of_the_empty_answer(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path in (*POLLED, "/v1/schedule"):
        told = paths[path.replace("q-1", "{query_id}")]["get"]["responses"]
        assert {"200", "304"} <= told.keys()
        assert "content" not in told["304"]


def add_planned_but_the_end(store: Store) -> None:
    store.submit(NewQuery(id="q-2", spec=SPEC, fingerprint="2", idempotency_key=None, at=1.0))
    assert store.queue.claim("w", at=2.0) is not None


def progress(*, measured: int) -> dict[str, object]:
    return to_document(
        PlanningProgress(
            phase=PlanningPhase.SEARCHING,
            measured=measured,
            failed=0,
            inputs=3,
            plans=0,
            spent_s=1.0,
            profiling_left_s=1.0,
            elapsed_s=1.0,
            time_left_s=None,
            best=None,
        )
    )


def test_what_is_unfinished_is_listed_without_what_ended(client: TestClient, store: Store) -> None:
    add_planned(store, "q-2", plan())
    add_planned(store, "q-3", plan())
    store.move("q-2", QueryPhase.RETIRED, at=9.0)

    def listed(asked: str) -> list[str]:
        return [each["id"] for each in client.get(f"/v1/queries?{asked}").json()["items"]]

    assert listed("unfinished=true") == ["q-3", "q-1"]
    assert listed("unfinished=false") == ["q-3", "q-2", "q-1"]
    assert listed("unfinished=true&phase=retired") == []
    assert listed("unfinished=true&phase=waiting") == ["q-3", "q-1"]
    assert client.get("/v1/queries?unfinished=perhaps").status_code == 422


def test_a_text_whose_tag_is_known_is_not_made() -> None:
    made: list[bytes] = []

    def text() -> bytes:
        made.append(b"{}")
        return b"{}"

    assert (tagged(text, '"t"', "t").status_code, made) == (304, [])
    assert (tagged(text, '"u"', "t").body, len(made)) == (b"{}", 1)
    assert tagged(text, None).headers["etag"] == tagged(b"{}", None).headers["etag"]


def test_another_service_on_the_same_state_has_other_tags(
    client: TestClient, service: Service
) -> None:
    tag = client.get("/v1/queries").headers["etag"]
    other = TestClient(application_of(service), base_url="http://127.0.0.1:8350")
    assert status_with(other, "/v1/queries", tag) == 200  # it may plan for other machines
