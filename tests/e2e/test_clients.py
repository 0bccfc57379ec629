"""Both clients against a real service: submitted in three lines, followed, waited for, asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import circinus
from circinus.api.phases import QueryPhase
from circinus.api.schemas.events import EventKind
from tests.e2e.echo import EXTRA
from tests.e2e.service_process import ON_ONE_TIER, ServiceProcess, serving


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with serving(tmp_path_factory.mktemp("clients"), ON_ONE_TIER, EXTRA, token="t") as found:
        yield found


def url(service: ServiceProcess) -> str:
    return f"http://127.0.0.1:{service.port}"


@pytest.mark.slow
def test_a_query_is_submitted_followed_and_asked_in_a_few_lines(service: ServiceProcess) -> None:
    with circinus.Client(url(service), token="t") as client:
        query = client.submit(pipeline="echo", data=20, accuracy=0.5, latency_s=1.0)
        seen: list[QueryPhase] = []
        served = client.wait(query.id, timeout_s=120, told=lambda q: seen.append(q.phase))
        assert served.phase is QueryPhase.SERVING
        assert seen[-1] is QueryPhase.SERVING
        assert client.request(query.id, {"input": "a"}).plan_id == served.plan_id
        assert client.query(query.id) == client.query(query.id)
        told = []
        for event in client.events(query.id):
            told.append(event)
            if event.data.get("phase") == "serving":
                break
        serials = [event.id for event in told]
        assert serials == sorted(set(serials))
        assert {EventKind.PHASE, EventKind.MEASURED} <= {event.kind for event in told}
        assert client.undeploy(query.id).phase is QueryPhase.RETIRED


@pytest.mark.slow
def test_an_asynchronous_program_does_the_same(service: ServiceProcess, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"input": "a", "expected": "a"}\n' * 20)

    async def run() -> None:
        async with circinus.AsyncClient(url(service), token="t") as client:
            latest = (await client.event_page(limit=1)).latest
            fields = {"pipeline": "echo", "slo": {"accuracy": 0.5, "latency_s": 1.0}}
            query = await client.submit(fields, data=tmp_path / "mine.jsonl")
            served = await client.wait(query.id, timeout_s=120)
            assert served.phase is QueryPhase.SERVING, served
            async for event in client.events(after=latest):
                if event.query_id == query.id and event.data.get("phase") == "serving":
                    break
            assert query.id in [found.id async for found in client.all_queries()]
            await client.undeploy(query.id)

    asyncio.run(run())
