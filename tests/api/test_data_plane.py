"""The way of requests past the service, in front of an application that knows the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy.event
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.http.authentication import Authentication
from circinus.api.http.data_plane import DataPlane
from circinus.api.phases import QueryPhase
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.deploy.workers.errors import TooManyRequests
from circinus.pipelines.model.payload import Payload
from tests.api.conftest import routed
from tests.api.fakes import FakeDeployer, add_planned, parts, plan

LIMIT = 2000
PATH = "/v1/queries/q-1/requests"


class Busy(FakeDeployer):
    """Turns away whoever takes no late answer, and may break."""

    busy = False
    broken_by: Exception | None = None
    terms: RequestTerms | None = None

    def shed_infeasible(
        self, query_id: str, arrived: float, *, unless: Callable[[], bool]
    ) -> None:
        if self.busy and not unless():
            raise TooManyRequests("it is busy", retry_after_s=2.0)

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        self.terms = terms
        if self.broken_by is not None:
            raise self.broken_by
        return await super().request(query_id, input, terms)


@pytest.fixture
def deployer() -> Busy:
    found = Busy()
    found.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=plan(by=1))
    return found


@pytest.fixture
def client(tmp_path: Path, deployer: Busy) -> Iterator[TestClient]:
    service = Service(parts(tmp_path, {}), deployer)
    add_planned(service.parts.store, "q-1", plan(by=1))
    service.parts.store.move("q-1", QueryPhase.SERVING, at=1.0)
    app = application_of(service)
    plane = DataPlane(app, deployer, service.parts.infrastructure, LIMIT)
    yield TestClient(Authentication(routed(plane, app), None), base_url="http://127.0.0.1")
    service.parts.store.close()


@pytest.mark.parametrize(
    ("content", "media", "status"),
    [
        (b'{"input": 1', "application/json", 400),
        (b'{"input": 1, "input": 2}', "application/json", 400),
        (b'{"input": 1}', "text/plain", 415),
        (b'{"input": "' + b"x" * LIMIT + b'"}', "application/json", 413),
        (b'{"inputs": 1}', "application/json", 422),
        (b"[]", "application/json", 422),
    ],
)
def test_a_body_that_is_none_is_the_clients(
    client: TestClient, content: bytes, media: str, status: int
) -> None:
    answer = client.post(PATH, content=content, headers={"content-type": media})
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_error_that_nobody_foresaw_is_an_incident(client: TestClient, deployer: Busy) -> None:
    deployer.broken_by = RuntimeError("odd")
    answer = client.post(PATH, json={"input": 1})
    assert answer.status_code == 500
    assert "incident" in answer.json()["detail"]


def test_who_would_be_turned_away_is_before_the_body_is_read(
    client: TestClient, deployer: Busy
) -> None:
    deployer.busy = True
    answer = client.post(PATH, content=b"no JSON", headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")


@pytest.mark.parametrize("late", [b'"late": "serve"', b'"l\\u0061te": "serve"'])
def test_who_takes_a_late_answer_gets_one(client: TestClient, deployer: Busy, late: bytes) -> None:
    deployer.busy = True
    head = {"content-type": "application/json"}
    answer = client.post(PATH, content=b'{"input": 4, ' + late + b"}", headers=head)
    assert (answer.status_code, answer.json()["output"]) == (200, 5)
    assert deployer.terms is not None
    assert deployer.terms.serve_late


def test_a_request_with_an_input_of_its_own_asks_no_database(client: TestClient) -> None:
    asked: list[object] = []

    def note(*told: object) -> None:
        asked.append(told[2])  # the statement

    sqlalchemy.event.listen(Engine, "before_cursor_execute", note)
    try:
        answer = client.post(PATH, json={"input": 4})
        assert (answer.status_code, answer.json()["output"]) == (200, 5)
        assert asked == []
        example = {"example": {"index": 3, "count": 5}}  # the service knows what is right
        assert client.post(PATH, json=example).json()["score"] == 1.0
        assert asked != []
    finally:
        sqlalchemy.event.remove(Engine, "before_cursor_execute", note)


def test_what_does_not_serve_here_is_the_services_to_explain(
    client: TestClient, deployer: Busy
) -> None:
    assert client.post("/v1/queries/q-9/requests", json={"input": 4}).status_code == 404
    assert client.get("/v1/queries/q-1").json()["phase"] == "serving"
    deployer.withheld.add("q-1")
    deployer.desired.clear()
    answer = client.post(PATH, json={"input": 4})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
