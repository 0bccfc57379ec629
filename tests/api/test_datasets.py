"""Data of users in a service: handed over, used, kept, forgotten."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.phases import QueryPhase
from tests.api.fakes import FakeDeployer, parts

LINES = b"".join(b'{"input": %d, "expected": %d}\n' % (i, i + 1) for i in range(30))
JSONL = {"content-type": "application/jsonl"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    settings = {
        "dataset_limit_bytes": 5000,
        "dataset_inputs_limit": 40,
        "datasets": tmp_path / "unpacked",
    }
    made = Service(parts(tmp_path, settings), FakeDeployer())
    yield made
    made.parts.store.close()


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(application_of(service), base_url="http://127.0.0.1") as client:
        yield client


def _query(dataset: str) -> dict[str, Any]:
    return {
        "pipeline": "add",
        "data": {"dataset": dataset},
        "slo": {"accuracy": 0.5, "latency_s": 1.0},
    }


@pytest.mark.parametrize(
    ("content", "media", "status", "told"),
    [
        (LINES, "application/json", 415, "must be application/jsonl or application/x-ndjson or"),
        (LINES, "", 415, "Content-Type must be"),
        (LINES * 9, "application/jsonl", 413, "body must have at most 5000 bytes"),
        (LINES * 2, "application/jsonl", 422, "dataset must have at most 40 inputs, got 41"),
        (b"", "application/jsonl", 422, "must have 1 to 100000 examples"),
        (b"{}\n", "application/jsonl", 422, "data.jsonl, line 1: example must be a JSON object"),
        (LINES, "application/zip", 422, "archive must be a zip archive"),
        (b'{"input": %s1' % (b"[" * 2000), "application/jsonl", 422, "must nest at most 100 deep"),
        (
            b'{"input": "\\ud800", "expected": 1}',
            "application/jsonl",
            422,
            "must have",
        ),
    ],
)
def test_what_is_no_data_set_is_refused(
    client: TestClient, content: bytes, media: str, status: int, told: str
) -> None:
    answer = client.post("/v1/datasets", content=content, headers={"content-type": media})

    assert (answer.status_code, told in answer.text) == (status, True), answer.text
    assert client.get("/v1/datasets").json() == {"items": []}


def test_a_query_on_data_that_is_not_there_is_refused(client: TestClient) -> None:
    for absent in ("d-" + "0" * 32, "other"):
        answer = client.post("/v1/queries", json=_query(absent))
        assert answer.status_code == 422
        assert "data.dataset must" in answer.text


def test_an_unknown_data_set_is_not_found(client: TestClient) -> None:
    assert client.get("/v1/datasets/d-1").status_code == 404
    assert client.delete("/v1/datasets/d-1").status_code == 404


def test_equal_content_is_one_data_set(client: TestClient) -> None:
    first = client.post("/v1/datasets", content=LINES, headers=JSONL)
    again = client.post("/v1/datasets", content=LINES, headers=JSONL)

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json() == client.get(first.headers["location"]).json()
    assert (first.json()["inputs"], first.json()["size_bytes"]) == (30, len(LINES))


def test_a_data_set_is_kept_while_a_query_uses_it(client: TestClient, service: Service) -> None:
    dataset = client.post("/v1/datasets", content=LINES, headers=JSONL).json()["id"]
    query = client.post("/v1/queries", json=_query(dataset)).json()["id"]

    refused = client.delete(f"/v1/datasets/{dataset}")
    assert refused.status_code == 409
    assert query in refused.text
    assert client.get(f"/v1/datasets/{dataset}").json()["queries"] == [query]

    client.post(f"/v1/queries/{query}:cancel")
    assert service.parts.store.query(query).phase is QueryPhase.CANCELLED
    assert client.delete(f"/v1/datasets/{dataset}").status_code == 204
    assert client.get("/v1/datasets").json() == {"items": []}


def test_every_data_set_is_listed_with_its_own_queries(client: TestClient) -> None:
    first, second = (
        client.post("/v1/datasets", content=LINES + more, headers=JSONL).json()["id"]
        for more in (b"", b"\n")
    )
    asked = [client.post("/v1/queries", json=_query(one)).json() for one in (first, second, first)]
    client.post("/v1/queries", json=_query(first) | {"data": {"examples": 5}})
    one, other, another = (query["id"] for query in asked)

    listed = {item["id"]: item["queries"] for item in client.get("/v1/datasets").json()["items"]}

    assert listed == {first: [another, one], second: [other]}


def test_planning_opens_a_data_set_once_and_finds_it_again(
    client: TestClient, service: Service
) -> None:
    dataset = client.post("/v1/datasets", content=LINES, headers=JSONL).json()["id"]
    query = client.post("/v1/queries", json=_query(dataset)).json()["id"]
    source = service.parts.store.query(query).request.data

    twice = [service.parts.data(source, "add") for _ in range(2)]

    assert [(e.input, e.expected) for e in twice[1].examples] == [(i, i + 1) for i in range(30)]
    assert [path.name for path in service.parts.settings.datasets.iterdir()] == [dataset]
    service.parts.store.request_cancel(query, at=1.0)
    assert client.delete(f"/v1/datasets/{dataset}").status_code == 204
    assert list(service.parts.settings.datasets.iterdir()) == []
