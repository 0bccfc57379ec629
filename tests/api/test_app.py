"""The HTTP interface, in process: refusals first, each with a problem document."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from circinus.api.control.rescheduler import Rescheduler
from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.http.bodies import BodyLimits
from circinus.api.phases import QueryPhase
from circinus.api.store.records import InForce
from circinus.api.store.store import Store
from circinus.api.use_cases.objectives import NO_SCORES, ObservedObjectives, judged
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.telemetry import Traffic
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.deploy.workers.errors import TooManyRequests
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.needs import package
from circinus.pipelines.model.payload import Payload
from circinus.scheduler.problem_form import problem_from_dict
from tests.api.fakes import PIPELINE, SPEC, FakeCatalogue, FakeDeployer, add_planned, parts, plan
from tests.api.test_objectives import FREE, answers, seen

LOOPBACK = "http://127.0.0.1:8350"
Connect = Callable[..., TestClient]


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    services: list[Service] = []

    def make(deployer: FakeDeployer | None = None, **settings: object) -> TestClient:
        service = Service(parts(tmp_path, settings), deployer or FakeDeployer())
        services.append(service)
        app = application_of(service)
        return TestClient(app, base_url=LOOPBACK, raise_server_exceptions=False)

    yield make
    for service in services:
        service.parts.store.close()


def service_of(client: TestClient) -> Service:
    service: Service = client.app.state.service  # type: ignore[attr-defined]  # a FastAPI
    return service


def store_of(client: TestClient) -> Store:
    return service_of(client).parts.store


class Answered(Protocol):
    """A response, of whichever HTTP library the test client is built on."""

    @property
    def status_code(self) -> int: ...

    @property
    def text(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def json(self) -> Any: ...  # noqa: ANN401 - whatever was sent


def assert_problem(response: Answered, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return problem


RAW_BODIES = [
    (b"{", 400, "must be JSON"),
    (b"\xff\xfe", 400, "must be UTF-8"),
    (b'{"slo": NaN}', 400, "must have finite numbers"),
    (b'{"slo": -Infinity}', 400, "must have finite numbers"),
    (b'{"weight": 1e999}', 400, "must have finite numbers"),
    (b'{"pipeline": "add", "pipeline": "add"}', 400, "must name every field once"),
    (b"[" * 4000 + b"]" * 4000, 400, "must nest at most 100 deep"),
    (b"[" * 150 + b"]" * 150, 400, "must nest at most 100 deep"),
    (b"9" * 5000, 400, "must have numbers of fewer digits"),
    (b"[]", 422, "must be a mapping"),
    (b"null", 422, "must be"),
]


@pytest.mark.parametrize(("body", "status", "rule"), RAW_BODIES)
def test_a_body_that_is_no_query_is_refused(
    connect: Connect, body: bytes, status: int, rule: str
) -> None:
    client = connect()
    headers = {"content-type": "application/json"}
    problem = assert_problem(client.post("/v1/queries", content=body, headers=headers), status)
    assert rule in problem["errors"][0]["rule"]
    assert store_of(client).queries(limit=1) == ()


CHANGES: list[tuple[dict[str, object], str, str]] = [
    ({"pipeline": "nothing"}, "pipeline", "must be registered (add, bare)"),
    ({"pipeline": "os:system"}, "pipeline", "must start with a letter"),
    ({"pipeline": "bare"}, "pipeline", "must bring examples"),
    ({"pipeline": 7}, "pipeline", "must be text"),
    ({"data": {"folder": "/etc"}}, "data.folder", "must be left out: a service reads no files"),
    ({"data": {"jsonl": "/etc/passwd"}}, "data.jsonl", "must be left out"),
    ({"data": {"examples": 0}}, "data.examples", "must be >= 1"),
    ({"data": {"examples": 10_001}}, "data.examples", "must be 1 to 10000"),
    ({"data": {}}, "data", "must have exactly one of"),
    ({"slo": {"accuracy": 1.5, "latency_s": 1}}, "slo.accuracy", "must be <= 1"),
    ({"slo": {"accuracy": 0.5, "latency_s": -1}}, "slo.latency_s", "must be >= 1e-06"),
    ({"slo": {"accuracy": 0.5}}, "slo.latency_s", "must be given"),
    ({"weight": "1"}, "weight", "must be a finite number"),
    ({"seed": -1}, "seed", "must be >= 0"),
    ({"colour": "red"}, "colour", "must be"),
    ({"limits": {"profiling_s": 0}}, "limits.profiling_s", "must be >= 0.001"),
]


@pytest.mark.parametrize(("change", "field", "rule"), CHANGES)
def test_a_query_that_breaks_a_rule_is_refused_by_field_rule_and_value(
    connect: Connect, change: dict[str, object], field: str, rule: str
) -> None:
    client = connect()
    problem = assert_problem(client.post("/v1/queries", json={**SPEC, **change}), 422)
    violation = problem["errors"][0]
    assert violation["field"] == field
    assert violation["rule"].startswith(rule)
    assert violation["value"]
    assert store_of(client).queries(limit=1) == ()


def test_another_media_type_is_refused(connect: Connect) -> None:
    response = connect().post(
        "/v1/queries", content=json.dumps(SPEC), headers={"content-type": "text/plain"}
    )
    problem = assert_problem(response, 415)
    assert "got 'text/plain'" in problem["detail"]
    assert problem["title"] == "Wrong media type"  # of a data set, too, which is no JSON


def test_a_body_beyond_the_limit_is_refused_and_one_at_it_is_not(connect: Connect) -> None:
    body = json.dumps(SPEC).encode()
    headers = {"content-type": "application/json"}
    client = connect(body_limit_bytes=len(body))
    assert client.post("/v1/queries", content=body, headers=headers).status_code == 202
    assert_problem(client.post("/v1/queries", content=body + b" ", headers=headers), 413)
    in_parts = client.post("/v1/queries", content=iter([body, b" "]), headers=headers)
    assert_problem(in_parts, 413)


@pytest.mark.parametrize(
    ("headers", "parts", "taken"),
    [
        ([(b"content-length", b"9")], [b"123", b"456", b"789"], 3),
        ([], [b"123", b"456", b"789"], 3),
        ([(b"content-length", b"9"), (b"expect", b"100-continue")], [b"123"], 0),
        ([(b"content-length", b"999999999")], [bytes(2**24)] * 99, 16),
    ],
)
def test_a_body_beyond_the_limit_is_taken_in_so_that_its_sender_reads_the_answer(
    headers: list[tuple[bytes, bytes]], parts: list[bytes], taken: int
) -> None:
    received: list[int] = []
    sent: list[Message] = []

    async def receive() -> Message:
        received.append(len(received) + 1)
        more = len(received) < len(parts)
        return {"type": "http.request", "body": parts[len(received) - 1], "more_body": more}

    async def send(message: Message) -> None:
        sent.append(message)

    async def never(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("it is answered at the gate")

    host = (b"host", b"127.0.0.1")
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/queries",
        "query_string": b"",
        "headers": [host, *headers],
    }
    gate = BodyLimits(never, body_limit_bytes=5, dataset_limit_bytes=5)
    asyncio.run(gate(scope, receive, send))

    assert (len(received), sent[0]["status"]) == (taken, 413)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/queries/q-9"),
        ("POST", "/v1/queries/q-9:cancel"),
        ("GET", "/v1/queries/q-9/plans"),
        ("GET", "/v1/queries/q-9/deployment"),
        ("DELETE", "/v1/queries/q-9/deployment"),
        ("DELETE", "/v1/queries/q-9/replicas"),
        ("GET", "/v1/plans/p-9"),
        ("GET", "/v1/nothing"),
        ("GET", "/nothing"),
    ],
)
def test_what_does_not_exist_is_not_found(connect: Connect, method: str, path: str) -> None:
    assert_problem(connect().request(method, path), 404)


def test_a_request_to_an_unknown_query_is_not_found(connect: Connect) -> None:
    assert_problem(connect().post("/v1/queries/q-9/requests", json={"input": 1}), 404)


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        ({}, "slices", "must be given"),
        ({"slices": {}}, "slices", "must have at least 1"),
        ({"slices": {"cloud": {}}}, "slices.cloud", "must have at least 1"),
        ({"slices": {"cloud": {"x": -1}}}, "slices.cloud.x", "must be >= 0"),
        ({"slices": {"cloud": {"x": 1001}}}, "slices.cloud.x", "must be <= 1000"),
        ({"slices": {"cloud": {"x": 1.5}}}, "slices.cloud.x", "must be a whole number"),
        ({"slices": {"cloud": {"x": 1}}}, "pool.tier", "must have machine types"),
        ({"slices": {"fog": {"x": 1}}}, "pool.tier", "must be among cloud"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_by_field_and_rule(
    connect: Connect, body: object, field: str, rule: str
) -> None:
    client = connect()
    add_planned(store_of(client), "q-1", plan())
    (violation,) = assert_problem(client.put("/v1/queries/q-1/pool", json=body), 422)["errors"]
    assert violation["field"] == field
    assert violation["rule"].startswith(rule)


def test_only_a_query_has_a_pool_and_a_pool_that_is_none_is_dropped_again(
    connect: Connect,
) -> None:
    client = connect()
    assert_problem(client.get("/v1/queries/q-9/pool"), 404)
    assert_problem(client.delete("/v1/queries/q-9/pool"), 404)
    add_planned(store_of(client), "q-1", plan())
    assert_problem(client.get("/v1/queries/q-1/pool"), 404)
    assert client.delete("/v1/queries/q-1/pool").json()["pool"] is None


@pytest.mark.parametrize(
    "header",
    [None, "Bearer wrong", "Bearer", "Basic secret", "secret", "Bearer secre\xf6"],
)
def test_without_the_token_nothing_under_v1_answers(connect: Connect, header: str | None) -> None:
    client = connect(token="secret")
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    for path in ("/v1/queries", "/v1/nothing"):
        response = client.get(path, headers=headers)  # type: ignore[arg-type]  # bytes are fine
        assert_problem(response, 401)
        assert response.headers["www-authenticate"].startswith("Bearer")
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 200


def test_with_the_token_hosts_that_are_named_may_ask(connect: Connect) -> None:
    client = connect(token="secret", allowed_hosts=("plans.example.org",))
    headers = {"authorization": "bearer secret", "host": "plans.example.org"}
    assert client.get("/v1/queries", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example.org", "evil.example.org:8350", "127.0.0.1.nip.io", ""]
)
def test_without_a_token_other_host_names_are_refused(connect: Connect, host: str) -> None:
    assert_problem(connect().get("/v1/queries", headers={"host": host}), 400)


@pytest.mark.parametrize("host", ["localhost:8350", "127.0.0.1", "[::1]:8350", "[::1]"])
def test_without_a_token_loopback_names_are_served(connect: Connect, host: str) -> None:
    assert connect().get("/v1/queries", headers={"host": host}).status_code == 200


def test_a_full_queue_says_when_to_come_again(connect: Connect) -> None:
    client = connect(queue_limit=1)
    assert client.post("/v1/queries", json=SPEC).status_code == 202
    response = client.post("/v1/queries", json=SPEC)
    assert_problem(response, 429)
    assert int(response.headers["retry-after"]) >= 1


def test_a_full_queue_gives_the_query_of_a_key_that_it_has(connect: Connect) -> None:
    client, headers = connect(queue_limit=1), {"Idempotency-Key": "mine"}
    first = client.post("/v1/queries", json=SPEC, headers=headers)
    again = client.post("/v1/queries", json=SPEC, headers=headers)
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert_problem(client.post("/v1/queries", json=SPEC), 429)


def test_a_key_with_another_query_is_a_conflict_and_with_the_same_the_same(
    connect: Connect,
) -> None:
    client = connect()
    headers = {"Idempotency-Key": "mine"}
    first = client.post("/v1/queries", json=SPEC, headers=headers)
    again = client.post("/v1/queries", json=SPEC, headers=headers)
    assert again.status_code == 202
    assert again.json()["id"] == first.json()["id"]
    other = client.post("/v1/queries", json={**SPEC, "weight": 2.0}, headers=headers)
    assert assert_problem(other, 409)["errors"][0]["field"] == "Idempotency-Key"


def test_a_key_that_is_too_long_is_refused(connect: Connect) -> None:
    client = connect()
    for key, status in (("k" * 200, 202), ("k" * 201, 422)):
        response = client.post("/v1/queries", json=SPEC, headers={"Idempotency-Key": key})
        assert response.status_code == status


@pytest.mark.parametrize(
    "query", ["cursor=%25", "cursor=YmVmb3JlOng", "limit=0", "limit=201", "phase=x"]
)
def test_a_page_that_cannot_be_is_refused(connect: Connect, query: str) -> None:
    problem = assert_problem(connect().get(f"/v1/queries?{query}"), 422)
    assert problem["errors"][0]["field"] == query.split("=")[0]


def test_pages_give_every_query_once_newest_first(connect: Connect) -> None:
    client = connect()
    ids = [client.post("/v1/queries", json=SPEC).json()["id"] for _ in range(5)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = client.get(f"/v1/queries?limit=2{cursor}").json()
        seen += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == ids[::-1]


def test_a_queued_query_is_cancelled_and_not_undeployed(connect: Connect) -> None:
    client = connect()
    query_id = client.post("/v1/queries", json=SPEC).json()["id"]
    assert_problem(client.delete(f"/v1/queries/{query_id}/deployment"), 409)
    assert_problem(client.post(f"/v1/queries/{query_id}/requests", json={"input": 1}), 409)
    assert client.post(f"/v1/queries/{query_id}:cancel").json()["phase"] == "cancelled"
    assert client.get(f"/v1/queries/{query_id}/deployment").json()["phase"] == "none"


def test_a_planned_query_shows_its_plans_and_cannot_be_cancelled(connect: Connect) -> None:
    client = connect()
    add_planned(store_of(client), "q-1", plan())
    view = client.get("/v1/queries/q-1").json()
    assert (view["phase"], view["outcome"]) == ("waiting", "feasible")
    assert view["progress"]["spent_s"] == 1.5
    plans = client.get("/v1/queries/q-1/plans").json()["items"]
    assert [each["id"] for each in plans] == [plan().id]
    assert plans[0]["latency_s"]["high"] is None  # unbounded: JSON has no infinity
    assert client.get(f"/v1/plans/{plan().id}").json() == plans[0]
    assert_problem(client.post("/v1/queries/q-1:cancel"), 409)


def test_a_request_before_the_deployment_is_up_says_when_to_come_again(connect: Connect) -> None:
    client = connect()
    add_planned(store_of(client), "q-1", plan())
    response = client.post("/v1/queries/q-1/requests", json={"input": 1})
    assert "query q-1 is waiting: planned" in assert_problem(response, 503)["detail"]
    assert response.headers["retry-after"] == "1"


def served(connect: Connect) -> TestClient:
    deployer = FakeDeployer()
    deployer.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=plan(by=1))
    client = connect(deployer)
    add_planned(store_of(client), "q-1", plan())
    store_of(client).move("q-1", QueryPhase.SERVING, at=1.0)
    return client


def test_a_full_deployment_says_when_to_come_again(connect: Connect) -> None:
    class Full(FakeDeployer):
        async def request(
            self, query_id: str, input: Payload, terms: RequestTerms
        ) -> RequestResult:
            raise TooManyRequests("64 requests already wait", retry_after_s=2.5)

    deployer = Full()
    deployer.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=plan(by=1))
    client = connect(deployer)
    add_planned(store_of(client), "q-1", plan())
    store_of(client).move("q-1", QueryPhase.SERVING, at=1.0)
    response = client.post("/v1/queries/q-1/requests", json={"input": 1})
    assert assert_problem(response, 429)["detail"] == "64 requests already wait"
    assert response.headers["retry-after"] == "3"


def test_a_request_for_an_example_that_fails_counts_as_0(connect: Connect) -> None:
    class Failing(FakeDeployer):
        async def request(
            self, query_id: str, input: Payload, terms: RequestTerms
        ) -> RequestResult:
            raise OperatorFailed("add", "it broke")

    deployer = Failing()
    deployer.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=plan(by=1))
    client = connect(deployer)
    add_planned(store_of(client), "q-1", plan())
    store_of(client).move("q-1", QueryPhase.SERVING, at=1.0)
    asked = {"example": {"index": 1, "count": 10}}
    assert_problem(client.post("/v1/queries/q-1/requests", json=asked), 502)
    windows = service_of(client).requests.windows
    assert windows.scores("q-1", plan(by=1).id).tolist() == [0.0]


def test_whether_an_input_was_planned_on_is_not_known_without_an_example(connect: Connect) -> None:
    client = served(connect)
    own = client.post("/v1/queries/q-1/requests", json={"input": 1}).json()
    assert own["planned_on"] is None
    asked = {"example": {"index": 1, "count": 10}}  # as many as it was planned on, of its seed
    assert client.post("/v1/queries/q-1/requests", json=asked).json()["planned_on"] is True


def test_metrics_need_the_token_too(connect: Connect) -> None:
    client = connect(token="secret")
    assert_problem(client.get("/metrics"), 401)
    response = client.get("/metrics", headers={"Authorization": "Bearer secret"})
    assert response.status_code == 200
    assert "# TYPE circinus_dispatch_waiting gauge" in response.text
    assert response.headers["content-type"].startswith("text/plain")


BAD_CALLS: list[tuple[dict[str, object], str]] = [
    ({}, "must have exactly one of input, example"),
    ({"input": 1, "example": {"index": 0}}, "must have exactly one of"),
    ({"input": 1, "timeout_s": 0}, "must be >= 0.001"),
    ({"example": {"index": 10, "count": 10}}, "must be less than count, which is 10"),
    ({"example": {"index": 0, "count": 20_000}}, "must be 1 to 10000"),
    ({"input": {"$array": {"dtype": "O", "shape": [1], "base64": ""}}}, "must name a dtype"),
    ({"input": {"$bytes": "?"}}, "must be base64"),
]


@pytest.mark.parametrize(("body", "rule"), BAD_CALLS)
def test_a_request_that_breaks_a_rule_is_refused(
    connect: Connect, body: dict[str, object], rule: str
) -> None:
    response = served(connect).post("/v1/queries/q-1/requests", json=body)
    assert assert_problem(response, 422)["errors"][0]["rule"].startswith(rule)


def test_an_operator_that_raises_is_named(connect: Connect) -> None:
    response = served(connect).post("/v1/queries/q-1/requests", json={"input": "text"})
    detail = assert_problem(response, 502)["detail"]
    assert detail == "operator add failed: TypeError: must get a whole number"


def test_a_request_is_answered_and_an_example_scored(connect: Connect) -> None:
    client = served(connect)
    own = client.post("/v1/queries/q-1/requests", json={"input": 4}).json()
    assert (own["output"], own["score"], own["latency_s"]) == (5, None, 0.25)
    assert own["plan_id"] == plan().id
    example = {"example": {"index": 3, "count": 5}}
    scored = client.post("/v1/queries/q-1/requests", json=example).json()
    assert (scored["output"], scored["score"]) == (4, 1.0)  # input 3, expected 3 + 1


def test_a_retired_query_is_served_no_more_though_its_instances_still_run(
    connect: Connect,
) -> None:
    client = served(connect)
    deployer = service_of(client).deployer
    assert isinstance(deployer, FakeDeployer)
    assert client.delete("/v1/queries/q-1/deployment").status_code == 200
    assert deployer.withheld == {"q-1"}
    assert_problem(client.post("/v1/queries/q-1/requests", json={"input": 4}), 409)


@pytest.mark.parametrize("replicas", [0, 1001, 1.5, "2", None])
def test_a_number_of_replicas_that_cannot_be_is_refused(
    connect: Connect, replicas: object
) -> None:
    client = served(connect)
    answer = client.put("/v1/queries/q-1/replicas", json={"replicas": replicas})
    assert_problem(answer, 422)


def test_a_query_that_is_not_served_is_given_no_replicas(connect: Connect) -> None:
    client = connect()
    query_id = client.post("/v1/queries", json=SPEC).json()["id"]
    assert_problem(client.put(f"/v1/queries/{query_id}/replicas", json={"replicas": 2}), 409)


def test_replicas_are_set_by_number_and_given_up(connect: Connect) -> None:
    client = served(connect)
    answer = client.put("/v1/queries/q-1/replicas", json={"replicas": 3})
    assert (answer.status_code, answer.json()["replicas"]) == (200, 3)
    assert client.get("/v1/queries/q-1").json()["replicas"] == 3
    assert client.delete("/v1/queries/q-1/replicas").json()["replicas"] is None


def test_how_a_query_fares_by_its_requests_is_told_of_one_and_of_all(connect: Connect) -> None:
    client = served(connect)
    assert client.get("/v1/objectives").json() == {"items": []}
    assert client.get("/v1/queries/q-1").json()["deployment"]["objectives"] is None
    told = seen(answers([2.9] * 80))
    slo = store_of(client).query("q-1").query.slo
    service_of(client).observed["q-1"] = ObservedObjectives(
        plan_id="p-1", objectives=judged(slo, told, NO_SCORES, FREE), report=told
    )
    (one,) = client.get("/v1/objectives").json()["items"]
    assert (one["query_id"], one["state"]) == ("q-1", "missed")
    assert client.get("/v1/queries/q-1").json()["deployment"]["objectives"] == one
    assert client.get("/v1/queries/q-1/deployment").json()["objectives"] == one


def test_a_query_that_serves_tells_what_its_requests_got(connect: Connect) -> None:
    client = served(connect)
    deployer = service_of(client).deployer
    assert isinstance(deployer, FakeDeployer)
    deployer.report("q-1", spans=Traffic(since=0.0).spans(1.0))
    shown = client.get("/v1/queries/q-1").json()["deployment"]
    assert shown["plan_id"] == plan().id
    assert [each["span_s"] for each in shown["lately"]] == [60.0, 600.0, 3600.0]


def test_a_request_may_want_a_late_answer(connect: Connect) -> None:
    client = served(connect)
    for late, status in (("serve", 200), ("refuse", 200), ("maybe", 422)):
        body = {"input": 4, "late": late}
        assert client.post("/v1/queries/q-1/requests", json=body).status_code == status


def test_what_is_offered_is_listed(connect: Connect) -> None:
    client = connect()
    names = [item["name"] for item in client.get("/v1/pipelines").json()["items"]]
    assert names == ["add", "bare"]
    assert client.get("/v1/infrastructure").json()["name"] == "one"
    assert client.get("/v1/schedule").json()["assignments"] == []


def test_a_pipeline_that_cannot_run_is_listed_with_the_reason_and_refused(
    connect: Connect,
) -> None:
    client = connect()
    catalogue = service_of(client).parts.catalogue
    assert isinstance(catalogue, FakeCatalogue)
    catalogue.pipelines["broken"] = InvalidInput.of("pipeline", "must be importable", "broken")
    catalogue.pipelines["lacking"] = replace(PIPELINE, needs=(package("no_such", extra="x"),))

    items = {item["name"]: item for item in client.get("/v1/pipelines").json()["items"]}
    assert (items["add"]["available"], items["add"]["missing"]) == (True, [])
    assert items["lacking"]["missing"] == [
        {"name": "no_such", "install": "pip install 'circinus[x]'"}
    ]
    assert "must be importable" in items["broken"]["missing"][0]["name"]
    assert items["broken"]["operators"] == []
    for name, rule in (("lacking", "must be available here"), ("broken", "must be importable")):
        problem = assert_problem(client.post("/v1/queries", json={**SPEC, "pipeline": name}), 422)
        assert problem["errors"][0]["rule"].startswith(rule)
    assert store_of(client).queries(limit=1) == ()


def test_what_is_unforeseen_gets_an_incident_and_no_traceback(connect: Connect) -> None:
    client = connect()
    service: Service = client.app.state.service  # type: ignore[attr-defined]  # a FastAPI
    engine = service.parts.store._engine
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE schedule")
    problem = assert_problem(client.get("/v1/schedule"), 500)
    assert "incident" in problem["detail"]
    assert "sqlalchemy" not in json.dumps(problem).lower()


def scheduled(connect: Connect) -> TestClient:
    """A service with q-1 running as scheduled, alone."""
    client = served(connect)
    service = service_of(client)
    rescheduler = Rescheduler(parts=service.parts, reports=service.deployer.reports)
    asyncio.run(rescheduler.tick())
    return client


def test_the_schedule_tells_how_good_it_is(connect: Connect) -> None:
    shown = scheduled(connect).get("/v1/schedule").json()
    assert (shown["goodput"], shown["bound"], shown["gap"]) == (1.0, 1.0, 0.0)
    assert shown["displaced"] == []
    assert shown["revision"] == 1
    assert shown["made_at"] == "1970-01-01T00:16:40Z"
    assert [assigned["since"] for assigned in shown["assignments"]] == [shown["made_at"]]


def test_a_schedule_that_is_known_is_not_sent_again_until_there_is_another(
    connect: Connect,
) -> None:
    client = scheduled(connect)
    first = client.get("/v1/schedule")
    tag = first.headers["etag"]
    again = client.get("/v1/schedule", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    service_of(client).parts.store.schedules.replace(InForce(made_at=5.0))
    other = client.get("/v1/schedule", headers={"If-None-Match": tag})
    assert other.status_code == 200
    assert other.json()["assignments"] == []
    assert other.headers["etag"] != tag


def test_the_problem_is_the_form_that_studies_read(connect: Connect) -> None:
    document = scheduled(connect).get("/v1/schedule/problem").json()
    problem = problem_from_dict(document)
    assert [c.query_id for c in problem.candidates] == ["q-1"]
    assert problem.tiers[0].machines == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "machines"),
        ({"machines": {}}, "machines"),
        ({"machines": {"moon": 1}}, "machines"),
        ({"machines": {"cloud": -1}}, "machines.cloud"),
        ({"machines": {"cloud": 1.5}}, "machines.cloud"),
        ({"machines": {"cloud": 10**9}}, "machines.cloud"),
    ],
)
def test_machines_that_cannot_be_are_refused_and_nothing_changes(
    connect: Connect, body: dict[str, object], field: str
) -> None:
    client = served(connect)
    response = client.patch("/v1/infrastructure", json=body)
    assert assert_problem(response, 422)["errors"][0]["field"] == field
    assert client.get("/v1/infrastructure").json()["tiers"][0]["machines"] == 1


def test_machines_come_and_go_and_are_as_stated_again(connect: Connect) -> None:
    client = served(connect)
    for machines, there in ((3, 3), (0, 0), (None, 1)):
        answer = client.patch("/v1/infrastructure", json={"machines": {"cloud": machines}})
        assert answer.status_code == 200, answer.text
        assert answer.json()["tiers"][0]["machines"] == there
        assert client.get("/v1/infrastructure").json() == answer.json()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"machines": {"moon": 1}}, "machines"),
        ({"machines": {"cloud": -1}}, "machines.cloud"),
        ({"leaving": ["q-9"]}, "leaving"),
        ({"arriving": [{"id": "new", "plans": []}]}, "arriving[0].plans"),
        ({"x": 1}, "x"),
    ],
)
def test_a_preview_that_breaks_a_rule_is_refused(
    connect: Connect, body: dict[str, object], field: str
) -> None:
    response = served(connect).post("/v1/schedule:preview", json=body)
    assert assert_problem(response, 422)["errors"][0]["field"] == field


def test_a_preview_changes_nothing(connect: Connect) -> None:
    client = scheduled(connect)
    before = client.get("/v1/schedule").json()
    gone = client.post("/v1/schedule:preview", json={"machines": {"cloud": 0}}).json()
    assert gone["assignments"] == []
    assert [waiting["query_id"] for waiting in gone["waiting"]] == ["q-1"]
    (displaced,) = gone["displaced"]
    assert displaced["sentence"] == "q-1 was stopped because its machines or plan are gone."
    assert (displaced["query_id"], displaced["by"], displaced["moved"]) == ("q-1", None, False)
    whole = {"id": "p", "demand": [{"tier": "cloud", "share": 1.0}]}
    arriving = [{"id": "new", "plans": [whole], "weight": 2.0}]
    left = client.post(
        "/v1/schedule:preview", json={"leaving": ["q-1"], "arriving": arriving}
    ).json()
    assert [assigned["query_id"] for assigned in left["assignments"]] == ["new"]
    assert (left["goodput"], left["bound"]) == (2.0, 2.0)
    urgent = [{**arriving[0], "priority": 1, "tenant": "acme"}]
    taken = client.post("/v1/schedule:preview", json={"arriving": urgent}).json()
    assert [(d["query_id"], d["by"]) for d in taken["displaced"]] == [("q-1", "new")]
    capped = client.post(
        "/v1/schedule:preview", json={"arriving": urgent, "quotas": {"acme": 0.5}}
    ).json()
    assert [waiting["query_id"] for waiting in capped["waiting"]] == ["new"]
    assert "tenant acme may hold 0.5" in capped["waiting"][0]["reason"]
    assert client.get("/v1/schedule").json() == before
