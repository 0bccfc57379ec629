"""No body that a client may send holds up the others, or is answered as if the service failed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from circinus.api.control.service import Service
from circinus.api.http.app import application_of
from circinus.api.http.authentication import Authentication
from circinus.api.http.data_plane import DataPlane
from circinus.api.phases import QueryPhase
from circinus.deploy.runtime.instances import DesiredDeployment
from tests.api.conftest import routed
from tests.api.fakes import FakeDeployer, add_planned, parts, plan
from tests.api.holding import Holding, holding
from tests.hostile.bodies import EVERY, Hostile
from tests.hostile.pace import assert_in_time

LOOPBACK = "http://127.0.0.1:8350"
Send = Callable[[Hostile], tuple[httpx.Response, Holding]]


def test_there_are_enough_of_them() -> None:
    assert len(EVERY) >= 200
    assert len({each.name for each in EVERY}) == len(EVERY)


@pytest.fixture(scope="module")
def send(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Send]:
    """Sends a body to deployments, and what is not theirs to the service behind them."""
    folder: Path = tmp_path_factory.mktemp("service")
    deployer = FakeDeployer()
    deployer.desired["q-1"] = DesiredDeployment(pipeline_reference="add", plan=plan())
    service = Service(parts(folder, {"dataset_inputs_limit": 1000}), deployer)
    add_planned(service.parts.store, "q-1", plan())
    service.parts.store.move("q-1", QueryPhase.SERVING, at=1.0)
    inner = application_of(service)
    plane = DataPlane(inner, deployer, service.parts.infrastructure, body_limit_bytes=2**20)
    transport = httpx.ASGITransport(
        Authentication(routed(plane, inner), None), raise_app_exceptions=False
    )

    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=transport, base_url=LOOPBACK)
        for hostile in EVERY:  # whatever is made when it is first asked for
            if hostile.name.startswith("a list to"):
                runner.run(_watched(client, hostile))
        gc.collect()
        gc.freeze()

        def sent(hostile: Hostile) -> tuple[httpx.Response, Holding]:
            return runner.run(_watched(client, hostile))

        yield sent
        runner.run(client.aclose())
    gc.unfreeze()
    service.parts.store.close()


async def _watched(client: httpx.AsyncClient, hostile: Hostile) -> tuple[httpx.Response, Holding]:
    body = hostile.make()
    head = {"content-type": hostile.media}
    request = client.build_request(hostile.method, hostile.path, content=body, headers=head)
    gc.collect()
    async with holding() as seen:
        answer = await client.send(request)
    return answer, seen


@pytest.mark.parametrize("hostile", EVERY, ids=lambda hostile: hostile.name)
def test_it_is_refused_in_words_and_holds_up_nobody(hostile: Hostile, send: Send) -> None:
    def once() -> tuple[float, float]:
        answer, seen = send(hostile)
        assert_told(answer)
        return seen.worst_s, seen.spent_s

    assert_in_time(hostile.name, once)


def assert_told(answer: httpx.Response) -> None:
    assert 400 <= answer.status_code < 500, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["detail"]
    if answer.status_code in {400, 422}:
        assert problem["errors"]
        assert all(
            violation["field"] and violation["rule"] and violation["value"]
            for violation in problem["errors"]
        )
    assert len(answer.content) < 200_000
