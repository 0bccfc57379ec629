"""Malformed bodies over HTTP: a 4xx problem document that names field, rule and value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from fastapi.testclient import TestClient

from circinus.api.bootstrap.parts import opened_parts
from circinus.api.http.app import create_app
from circinus.api.settings import Settings
from tests.api.fakes import FakeDeployer
from tests.api.malformed import BODIES, DOCUMENTS, HTTP_ONLY, Wrong, query


class Answer(Protocol):
    """A response, whichever client library the test client is made of."""

    status_code: int

    @property
    def text(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def json(self) -> Any: ...  # noqa: ANN401 - as the library has it


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service without planning workers: nothing that is refused needs one."""
    folder: Path = tmp_path_factory.mktemp("service")
    settings = Settings(database_url=f"sqlite:///{folder / 'test.sqlite3'}")
    with opened_parts(settings) as parts:
        app = create_app(parts, FakeDeployer())
        with TestClient(app, base_url="http://127.0.0.1") as client:
            yield client


def assert_refused(answer: Answer, wrong: Wrong, service: TestClient) -> None:
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["title"]
    told = [e for e in problem["errors"] if wrong.field in e["field"] and wrong.rule in e["rule"]]
    assert any(wrong.value in e["value"] for e in told), problem
    assert service.get("/v1/queries").json()["items"] == []


@pytest.mark.parametrize("wrong", DOCUMENTS + HTTP_ONLY, ids=lambda wrong: wrong.name)
def test_a_malformed_query_is_refused_and_leaves_no_row(wrong: Wrong, service: TestClient) -> None:
    answer = service.post("/v1/queries", json=wrong.content)
    assert_refused(answer, wrong, service)


@pytest.mark.parametrize("wrong", BODIES, ids=lambda wrong: wrong.name)
def test_a_malformed_body_is_refused_and_leaves_no_row(wrong: Wrong, service: TestClient) -> None:
    body = wrong.content
    assert isinstance(body, bytes)
    answer = service.post(
        "/v1/queries", content=body, headers={"Content-Type": "application/json"}
    )
    assert_refused(answer, wrong, service)


def test_a_huge_body_is_refused(service: TestClient) -> None:
    body = json.dumps(query(pipeline="x" * 2**20)).encode()
    answer = service.post(
        "/v1/queries", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_of_another_type_is_refused(service: TestClient) -> None:
    answer = service.post(
        "/v1/queries", content=b"pipeline: digits", headers={"Content-Type": "text/yaml"}
    )
    assert answer.status_code == 415
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/queries/q-none"),
        ("GET", "/v1/queries/q-none/plans"),
        ("GET", "/v1/queries/q-none/deployment"),
        ("POST", "/v1/queries/q-none:cancel"),
        ("DELETE", "/v1/queries/q-none/deployment"),
        ("GET", "/v1/plans/p-none"),
        ("GET", "/v1/nothing"),
    ],
)
def test_what_is_not_there_is_a_404(method: str, path: str, service: TestClient) -> None:
    answer = service.request(method, path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "parameters",
    [
        {"limit": "0"},
        {"limit": "many"},
        {"limit": "100000"},
        {"cursor": "nonsense"},
        {"phase": "asleep"},
    ],
)
def test_a_malformed_page_is_refused(parameters: dict[str, str], service: TestClient) -> None:
    answer = service.get("/v1/queries", params=parameters)
    assert answer.status_code == 422
    (violation,) = answer.json()["errors"]
    (field,) = parameters
    assert violation["field"] == field
    assert violation["rule"]


@pytest.mark.parametrize(
    "body",
    [{}, {"input": 1, "example": {"index": 0}}, {"example": {"index": -1}}, {"timeout_s": 0}],
    ids=str,
)
def test_a_malformed_request_is_refused(body: dict[str, object], service: TestClient) -> None:
    answer = service.post("/v1/queries/q-none/requests", json=body)
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
