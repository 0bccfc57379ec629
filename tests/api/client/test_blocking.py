"""Every route has a method in both clients; one of them blocks, wherever it is used."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import pytest

from circinus.api.client import AsyncClient, Client
from circinus.api.client.blocking import Blocking
from circinus.api.http.app import application
from circinus.api.query_file import query_of
from circinus.api.settings import Settings
from circinus.pipelines.errors import CircinusError, InvalidInput
from tests.api.client.event_server import EventServer, telling
from tests.api.client.test_calls import VIEW
from tests.api.malformed import as_yaml, query

ROUTE = {
    "name": "r",
    "demand_per_s": 1.0,
    "latency_s": 1.0,
    "units": [
        {
            "name": "u",
            "model": "m",
            "hardware": "h",
            "framework": "f",
            "price_usd_per_hour": 1.0,
            "most_per_s": 1.0,
            "latency_s": 1.0,
        }
    ],
}
ARGUMENTS: Mapping[str, tuple[Any, ...]] = {
    "health": (),
    "ready": (),
    "metrics": (),
    "submit": (query(),),
    "query": ("q-1",),
    "page": (),
    "cancel": ("q-1",),
    "replan": ("q-1", {"latency": "0.8x"}),
    "what_if": ("q-1", {"latency": "0.8x"}),
    "plans": ("q-1",),
    "plan": ("p-1",),
    "explanation": ("p-1",),
    "deployment": ("q-1",),
    "objectives": (),
    "set_replicas": ("q-1", 3),
    "drop_replicas": ("q-1",),
    "undeploy": ("q-1",),
    "pool": ("q-1",),
    "choose_pool": (
        {
            "latencies": [{"type": "t3.xlarge", "batch": 1, "mean_ms": 1.0}],
            "qos_ms": 5.0,
            "rate_per_s": 1.0,
        },
    ),
    "choose_query_pool": ("q-1", {"rate_per_s": 2.0}),
    "set_pool": ("q-1", {"edge": {"small": 3}}),
    "drop_pool": ("q-1",),
    "routes": (),
    "route": ("r",),
    "set_route": (ROUTE,),
    "drop_route": ("r",),
    "ask_route": ("r", {"input": 1}),
    "request": ("q-1", {"input": 1}),
    "schedule": (),
    "preview": ({"leaving": ["q-1"]},),
    "problem": (),
    "upload": ("jsonl", b"{}"),
    "dataset": ("d-1",),
    "datasets": (),
    "forget": ("d-1",),
    "pipelines": (),
    "method": (),
    "infrastructure": (),
    "set_machines": ({"edge": 3},),
    "emulation": (),
    "set_emulation": ({"links": [{"between": ["a", "b"], "bandwidth_mbit_per_s": 1}]},),
    "event_page": (),
}
MADE_OF_OTHERS = {"hand_over"}


def operations() -> dict[str, re.Pattern[str]]:
    """Routes of the OpenAPI document, with what their requests look like."""
    return {
        f"{method.upper()} {path}": re.compile(
            f"{method.upper()} " + re.sub(r"\\\{\w+\\\}", "[^/:]+", re.escape(path))
        )
        for path, methods in application(Settings()).openapi()["paths"].items()
        for method in methods
    }


class Recorder:
    def __init__(self) -> None:
        self.sent: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        return httpx.Response(404, json={"title": "t", "status": 404, "detail": "d"})


def of_client(name: str, *arguments: object) -> httpx.Request:
    recorder = Recorder()
    client = Client("http://s", transport=httpx.MockTransport(recorder))
    with client, pytest.raises(CircinusError):
        getattr(client, name)(*arguments)
    return recorder.sent[-1]


def of_async_client(name: str, *arguments: object) -> httpx.Request:
    recorder = Recorder()

    async def ask() -> None:
        async with AsyncClient("http://s", transport=httpx.MockTransport(recorder)) as client:
            await getattr(client, name)(*arguments)

    with pytest.raises(CircinusError):
        asyncio.run(ask())
    return recorder.sent[-1]


@pytest.mark.parametrize("asked", [of_client, of_async_client])
def test_every_route_has_a_method_in_both_clients(asked: Callable[..., httpx.Request]) -> None:
    known, found = operations(), set()
    calls = [(name, *arguments) for name, arguments in ARGUMENTS.items()]
    for call in (*calls, ("event_page", "q-1")):
        request = asked(*call)
        said = f"{request.method} {request.url.path}"
        names = [name for name, pattern in known.items() if pattern.fullmatch(said)]
        assert len(names) == 1, said
        found |= set(names)
    assert known.keys() - found == set()


def test_every_call_was_tried_and_is_described() -> None:
    calls = {name for name, call in vars(Client).items() if isinstance(call, Blocking)}
    assert calls == ARGUMENTS.keys() | MADE_OF_OTHERS
    client = Client("http://s")
    for name in calls:
        method = getattr(client, name)
        assert method.__name__ == name
        assert inspect.getdoc(method)
        assert "self" not in inspect.signature(method).parameters


def test_both_clients_have_the_same_methods() -> None:
    kinds = (Client, AsyncClient)
    blocking, awaited = ({n for n in dir(kind) if n[0] != "_"} for kind in kinds)
    assert blocking - {"base_url"} == awaited
    for name in ("all_queries", "call", "events", "wait"):
        one, other = (inspect.signature(getattr(kind, name)) for kind in kinds)
        assert one.parameters == other.parameters


# --- Where a program blocks ----------------------------------------------------------


def answering(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=VIEW | {"id": request.url.path.rpartition("/")[2]})


def test_a_client_blocks_inside_a_running_event_loop_too() -> None:
    async def ask() -> str:
        with Client("http://s", transport=httpx.MockTransport(answering)) as client:
            return client.query("q-1").id

    assert asyncio.run(ask()) == "q-1"


def test_threads_share_a_client() -> None:
    with (
        Client("http://s", transport=httpx.MockTransport(answering)) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        names = [f"q-{i}" for i in range(64)]
        assert [query.id for query in threads.map(client.query, names)] == names


def test_a_forked_process_goes_on_with_its_own_connections() -> None:
    with telling(EventServer(query=dict(VIEW))) as server, Client(server.url) as client:
        assert client.query("q-1").id == "q-1"
        forked = get_context("fork").Process(target=client.query, args=("q-1",))
        forked.start()
        forked.join(30)
        assert forked.exitcode == 0
        assert client.query("q-1").id == "q-1"
    assert server.fetched == ["/v1/queries/q-1"] * 3


def test_what_is_told_of_a_query_may_use_the_client() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        page = {"items": [], "latest": 3}
        return httpx.Response(200, json=page if request.url.path.endswith("/events") else VIEW)

    phases = []
    with Client("http://s", transport=httpx.MockTransport(answer)) as client:
        client.wait(
            "q-1",
            lambda query: client.query(query.id) == query,
            told=lambda query: phases.append(client.query(query.id).phase),
        )
    assert phases == ["queued"]


# --- A query in any form -------------------------------------------------------------


def submitted(*given: Any, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any form
    """What arrives of a submission, after a data set."""
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if request.url.path == "/v1/queries":
            return httpx.Response(202, json=VIEW)
        told = {"id": "d-" + "0" * 32, "inputs": 1, "size_bytes": 1, "kind": "jsonl"}
        return httpx.Response(200, json=told | {"created_at": VIEW["submitted_at"]})

    with Client("http://s", transport=httpx.MockTransport(answer)) as client:
        client.submit(*given, **fields)
    body: dict[str, Any] = json.loads(sent[-1].content)
    return body


def test_every_broken_rule_of_fields_is_told() -> None:
    with pytest.raises(InvalidInput) as caught:
        submitted(pipeline="digits", data=0, accuracy=2.0, latency_s=0.1, wieght=1)
    assert {violation.field for violation in caught.value.violations} == {
        "data.examples",
        "slo.accuracy",
        "wieght",
    }


def test_a_query_may_be_given_in_fields() -> None:
    body = submitted(pipeline="digits", data=60, accuracy=0.8, latency_s=0.25, weight=2.0)
    assert body == {
        "pipeline": "digits",
        "data": {"examples": 60},
        "slo": {"accuracy": 0.8, "latency_s": 0.25},
        "weight": 2.0,
    }


def test_fields_go_before_those_of_the_query(tmp_path: Path) -> None:
    (tmp_path / "query.yaml").write_text(as_yaml(query()))
    for given in (query(), query_of(query()), tmp_path / "query.yaml"):
        assert submitted(given) == query()
        changed = submitted(given, accuracy=0.123)
        assert changed["slo"] == {**dict(query())["slo"], "accuracy": 0.123}  # type: ignore[dict-item]


def test_a_file_of_data_is_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.jsonl").write_text('{"input": 1, "expected": 2}\n')
    file = tmp_path / "query.yaml"
    file.write_text(as_yaml({**query(), "data": {"jsonl": "mine.jsonl"}}))
    theirs = {"dataset": "d-" + "0" * 32, "on_failure": "score_zero"}
    assert submitted(file)["data"] == theirs
    monkeypatch.chdir(tmp_path)
    assert submitted(query(), data="mine.jsonl")["data"] == theirs
    assert submitted(query(), data=Path("mine.jsonl"))["data"] == theirs
    known = "d-" + "f" * 32
    assert submitted(query(), data=known)["data"] == {"dataset": known}
