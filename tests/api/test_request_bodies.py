"""No body of a request, however odd, is answered as if the service had failed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.http.authentication import Authentication
from circinus.api.http.data_plane import DataPlane
from circinus.api.phases import QueryPhase
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.pipelines.model.payload import Payload, decode, encode
from tests.api.conftest import routed
from tests.api.fakes import FakeDeployer, add_planned, parts, plan

LOOPBACK = "http://127.0.0.1:8350"


class Echoing(FakeDeployer):
    """Returns what it got, having carried it as workers get it."""

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        done = await super().request(query_id, 1, terms)
        return RequestResult(
            encoded=encode(input),
            latency_s=done.latency_s,
            operator_s=done.operator_s,
            tier_s=done.tier_s,
            path_operator_s=done.path_operator_s,
            waiting_s=0.0,
            transfer_s=0.0,
            overhead_s=0.0,
            retries=0,
        )


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    deployer = Echoing()
    deployer.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=plan())
    service = Service(parts(tmp_path, {}), deployer)
    add_planned(service.parts.store, "q-1", plan())
    service.parts.store.move("q-1", QueryPhase.SERVING, at=1.0)
    inner = application_of(service)
    plane = DataPlane(inner, deployer, service.parts.infrastructure, body_limit_bytes=2**22)
    yield TestClient(
        Authentication(routed(plane, inner), None),
        base_url=LOOPBACK,
        raise_server_exceptions=False,
    )
    service.parts.store.close()


odd_text = st.text(st.characters(codec=None, categories=None), max_size=6)  # surrogates, too
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**400)
dtypes = st.sampled_from(
    ["<f4", "|u1", "<U3", "|S2", "O", "V8", "<i4,<i4", "<M8[s]", "c16", "?", "", "\ud800"]
)
shapes = st.lists(st.integers(-2, 5) | st.sampled_from([2**40, 2**63, True, 1.5]), max_size=4)
arrays = st.fixed_dictionaries(
    {
        "dtype": dtypes | numbers,
        "shape": shapes | odd_text,
        "base64": st.binary(max_size=16).map(lambda data: base64.b64encode(data).decode())
        | odd_text,
    }
)
trees = st.recursive(
    st.none() | st.booleans() | numbers | odd_text,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            odd_text | st.sampled_from(["$array", "$bytes", "$dict"]), inner, max_size=3
        )
        | st.builds(lambda a: {"$array": a}, arrays | inner)
        | st.builds(lambda b: {"$bytes": b}, inner)
        | st.builds(
            lambda p: {"$dict": p}, st.lists(st.tuples(odd_text, inner), max_size=2) | inner
        )
    ),
    max_leaves=6,
)
bodies = (
    st.builds(lambda tree: {"input": tree}, trees)
    | st.fixed_dictionaries({"input": trees}, optional={"timeout_s": trees, "late": trees})
    | st.builds(lambda tree: {"example": tree}, trees)
    | trees
)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(body=bodies)
def test_no_body_is_answered_as_a_failure(client: TestClient, body: object) -> None:
    response = client.post(
        "/v1/queries/q-1/requests",
        content=json.dumps(body),
        headers={"content-type": "application/json"},
    )

    assert response.status_code == 200 or 400 <= response.status_code < 500, response.text
    if response.status_code == 422:
        errors = response.json()["errors"]
        assert all(error["rule"] and error["field"] is not None for error in errors)


def test_a_large_answer_that_is_json_is_passed_on_unread(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def noted(data: bytes) -> Payload:
        read.append(len(data))
        return decode(data)

    monkeypatch.setattr("circinus.deploy.runtime.walk.decode", noted)
    answers = []
    for sent in ({"a": ["\u00e9" * 99, 0.5, None] * 7_000}, {"a": ["\u00e9"]}):
        body = {"input": sent}
        answer = client.post("/v1/queries/q-1/requests", json=body).json()
        assert answer["output"] == sent
        answers.append([*answer])
    assert answers[0] == answers[1]
    (only,) = read
    assert only < 2**20
