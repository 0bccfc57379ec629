"""Who asks for examples that take minutes and gigabytes to make holds up nobody but itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from tests.e2e.service_process import ON_ONE_TIER, ServiceProcess, serving

TIMEOUT_S = 8.0
PROMPT_S = 6.0
"""On a machine that tests other things, too; who waits for a heavy one takes `TIMEOUT_S`."""
MOST_GROWTH = 200 * 2**20


@pytest.mark.slow
def test_requests_with_heavy_examples_end_in_time_and_hold_up_nobody(tmp_path: Path) -> None:
    with serving(tmp_path, ON_ONE_TIER, "tests.e2e.heavy_examples:pipeline") as service:
        query_id = service.submit(pipeline="heavy")
        service.wait_for_phase(query_id, "serving")
        path = f"/v1/queries/{query_id}/requests"
        light = service.ask("POST", path, json={"example": {"index": 1, "count": 60}})
        assert light.status_code == 200, light.text
        assert light.json()["planned_on"] is True

        held, slowest_s = asyncio.run(_meanwhile(service, path))
        # A report beside the bounds.
        print(f"\ngrew by {held / 1e6:.0f} MB, light requests {slowest_s:.2f} s at most")  # noqa: T201 - shown by `pytest -s`

        assert held < MOST_GROWTH
        plan_id = service.query(query_id)["plan_id"]
        assert service.ask("GET", f"/v1/plans/{plan_id}/explanation").status_code == 200
        again = service.ask("POST", path, json={"example": {"index": 2, "count": 60, "seed": 1}})
        assert again.json()["planned_on"] is False


async def _meanwhile(service: ServiceProcess, path: str) -> tuple[int, float]:
    """Send heavy requests and light ones at once.

    Return by how many bytes both processes grew, and the seconds of the slowest light one.
    """
    slowest_s = 0.0
    own = service.own_processes()
    before = sum(process.memory_info().rss for process in own)
    address = f"http://127.0.0.1:{service.port}"
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=60) as client:

        async def taken(body: Mapping[str, object], *, status: int, within_s: float) -> None:
            began = time.monotonic()
            answer = await client.post(path, json=body)
            assert answer.status_code == status, answer.text
            taken_s = time.monotonic() - began
            assert taken_s < within_s
            if status == 503:
                assert int(answer.headers["retry-after"]) >= 1
            else:
                nonlocal slowest_s
                slowest_s = max(slowest_s, taken_s)

        async with asyncio.TaskGroup() as group:
            for seed in (1, 2):
                heavy = {"index": 9_999, "count": 10_000, "seed": seed}
                body = {"example": heavy, "timeout_s": TIMEOUT_S}
                group.create_task(taken(body, status=503, within_s=TIMEOUT_S + PROMPT_S))
            await asyncio.sleep(1.0)
            for number in range(10):
                await taken({"input": {"value": number}}, status=200, within_s=PROMPT_S)
                light = {"example": {"index": number, "count": 60}}
                await taken(light, status=200, within_s=PROMPT_S)
                assert (await client.get("/v1/queries")).status_code == 200
    return sum(process.memory_info().rss for process in own) - before, slowest_s
