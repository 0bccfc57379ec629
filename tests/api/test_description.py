"""What the OpenAPI document says, and that the rules it states are those that hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from circinus.api.bootstrap.parts import opened_parts
from circinus.api.http.app import application, create_app
from circinus.api.schemas.deployments import RequestBody
from circinus.api.schemas.explanation import ReplanBody
from circinus.api.schemas.query import QueryRequest
from circinus.api.schemas.schedule import PreviewBody
from circinus.api.schemas.service import MachinesBody
from circinus.api.schemas.violations import checked
from circinus.api.settings import Settings
from circinus.api.use_cases.changes import changed
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.ranges import COST_USD_PER_HOUR
from tests.api.fakes import FakeDeployer
from tests.api.malformed import query

OPEN = application(Settings()).openapi()
GUARDED = application(Settings(token=SecretStr("t"))).openapi()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'test.sqlite3'}")
    with opened_parts(settings) as parts:
        app = create_app(parts, FakeDeployer())
        with TestClient(app, base_url="http://127.0.0.1") as client:
            yield client


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


@pytest.mark.parametrize("document", [OPEN, GUARDED], ids=["open", "guarded"])
def test_every_error_is_a_problem_document(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for status, told in operation["responses"].items():
            if int(status) >= 400:
                assert list(told["content"]) == ["application/problem+json"], (name, status)
                assert told["description"], (name, status)
    assert "ProblemDetails" in document["components"]["schemas"]
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_the_token_is_told_of_where_one_is_asked_for() -> None:
    assert "securitySchemes" not in OPEN["components"]
    assert GUARDED["components"]["securitySchemes"]["Token"]["scheme"] == "bearer"
    for name, operation in operations(OPEN):
        assert "401" not in operation["responses"], name
    for name, operation in operations(GUARDED):
        asked = name not in ("GET /healthz", "GET /readyz")
        assert ("401" in operation["responses"]) is asked, name
        assert operation.get("security") == ([{"Token": []}] if asked else None), name


def test_the_bound_of_seeds_is_told_exactly() -> None:
    parts = OPEN["components"]["schemas"]
    assert parts["QueryRequest"]["properties"]["seed"]["maximum"] == 2**63 - 1
    assert parts["ReplanData"]["properties"]["seed"]["maximum"] == 2**63 - 1


def test_no_parameter_can_be_null() -> None:
    for name, operation in operations(OPEN):
        for parameter in operation.get("parameters", ()):
            assert "anyOf" not in parameter["schema"], (name, parameter)


def test_a_service_says_that_it_reads_no_files() -> None:
    source = OPEN["components"]["schemas"]["DataSource"]
    assert source["properties"]["folder"]["type"] == "null"
    assert [choice["required"] for choice in source["oneOf"]] == [["examples"], ["dataset"]]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/queries", "GET, POST"),
        ("HEAD", "/v1/queries/q-1", "GET"),
        ("DELETE", "/v1/queries/q-1", "GET"),
        ("GET", "/v1/queries/q-1:cancel", "POST"),
        ("PUT", "/v1/queries/q-1/deployment", "DELETE, GET"),
        ("OPTIONS", "/v1/infrastructure", "GET, PATCH"),
        ("PUT", "/v1/datasets", "GET, POST"),
        ("POST", "/healthz", "GET"),
    ],
)
def test_a_method_that_a_path_lacks_is_a_405_with_all_that_it_has(
    method: str, path: str, allowed: str, service: TestClient
) -> None:
    answer = service.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    "path",
    [
        "/v1/queries/",
        "/v1/queries/q-1/",
        "/v1/queries/%00",
        "/v1/queries/a%2Fb",
        "/v1/queries/%ED%A0%80",
        "/v1/queries/q-1:remember",
        f"/v1/plans/{'p' * 5000}",
    ],
)
def test_a_path_that_is_none_is_a_404(path: str, service: TestClient) -> None:
    answer = service.get(path, follow_redirects=False)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["tenant", "key_prefix", "cursor"])
def test_a_filter_with_nul_is_refused_before_a_database_sees_it(
    name: str, service: TestClient
) -> None:
    answer = service.get("/v1/queries", params={name: "a\x00"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == name


@pytest.mark.parametrize("key", ["", "k" * 201, "a\xa0b"], ids=["empty", "long", "blank"])
def test_a_key_that_the_document_forbids_is_refused(key: str, service: TestClient) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    answer = service.post("/v1/queries", json=query(), headers=headers)  # type: ignore[arg-type]  # as bytes
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


# --- Numbers and nulls ---------------------------------------------------------------


@pytest.mark.parametrize("value", [4.5, True, "4", 1e300, float("inf"), float("nan")])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="seed must be"):
        checked(QueryRequest, query(seed=value))


def test_a_whole_number_may_have_a_point() -> None:
    asked = checked(QueryRequest, query(data={"examples": 20.0, "seed": 3.0}, priority=4.0))
    assert (asked.data.examples, asked.data.seed, asked.priority) == (20, 3, 4)
    assert isinstance(asked.priority, int)
    assert checked(MachinesBody, {"machines": {"edge": 2.0, "cloud": None}}).machines["edge"] == 2
    assert checked(PreviewBody, {"machines": {"edge": 2.0}}).machines == {"edge": 2}
    assert checked(RequestBody, {"example": {"index": 1.0}}).example is not None
    again = checked(ReplanBody, {"data": {"examples": 5.0, "seed": 2**63 - 1}}).data
    assert again is not None
    assert (again.examples, again.seed) == (5, 2**63 - 1)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ({}, "must have exactly one of input, example"),
        ({"example": None}, "must have exactly one of input, example"),
        ({"input": 1, "example": {"index": 0}}, "must have exactly one of input, example"),
    ],
)
def test_a_request_needs_one_input(body: dict[str, object], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        checked(RequestBody, body)


@pytest.mark.parametrize(
    "body",
    [{"input": None}, {"input": 1, "example": None}, {"input": None, "example": {"index": 0}}],
)
def test_null_is_left_out_and_may_be_an_input(body: dict[str, object]) -> None:
    checked(RequestBody, body)


def test_null_is_left_out_of_data_objectives_and_restrictions() -> None:
    data = {"examples": 5, "folder": None, "jsonl": None, "dataset": None}
    objectives = {"accuracy": 0.5, "latency_s": 1, "throughput_per_s": None}
    kept = checked(QueryRequest, query(data=data, slo=objectives, request_rate_per_s=2))
    assert kept.data.examples == 5
    with pytest.raises(InvalidInput, match="must say only or never"):
        checked(QueryRequest, query(restrictions={"tiers": {"a": {"only": None}}}))


@pytest.mark.parametrize("text", [" 1", "1e100", "+2x", "x", "--2", "0x10"])
def test_a_change_that_the_document_forbids_is_refused(text: str) -> None:
    pattern = OPEN["components"]["schemas"]["WhatIfBody"]["properties"]["cost"]["pattern"]
    assert re.search(pattern, text) is None
    with pytest.raises(InvalidInput, match="must be like"):
        changed("cost", 1.0, text, COST_USD_PER_HOUR)


@pytest.mark.parametrize("text", ["", "1", "+2", "-0.5", "0.8x", "1e9", "1.e-3"])
def test_a_change_that_the_document_allows_is_taken(text: str) -> None:
    pattern = OPEN["components"]["schemas"]["WhatIfBody"]["properties"]["cost"]["pattern"]
    assert re.search(pattern, text) is not None
    changed("cost", 1.0, text, COST_USD_PER_HOUR)
