"""What gathering calls into batches gains, and that a call alone pays nothing for it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from statistics import median

import pytest

from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines.clock import SystemClock
from tests.deploy.serving import desired, serving, within

_CLOCK = SystemClock()
_CLIENTS, _REQUESTS, _ALONE = 16, 20, 40  # each sends its next request when it has an answer
_WARM_UP = 3


async def _rate(orchestrator: Orchestrator, query: str) -> tuple[float, float]:
    """Return requests per second of all clients together, and the mean size of their batches."""
    sizes: list[float] = []

    async def client(requests: int) -> None:
        for _ in range(requests):
            output = (await orchestrator.request(query, 1, within(30.0))).output
            assert isinstance(output, dict)
            sizes.append(float(str(output["together"])))

    await asyncio.gather(*(client(_WARM_UP) for _ in range(_CLIENTS)))
    sizes.clear()
    began = _CLOCK.now()
    await asyncio.gather(*(client(_REQUESTS) for _ in range(_CLIENTS)))
    return _CLIENTS * _REQUESTS / (_CLOCK.now() - began), sum(sizes) / len(sizes)


async def _alone_s(orchestrator: Orchestrator, query: str) -> float:
    latencies = [
        (await orchestrator.request(query, 1, within(30.0))).latency_s for _ in range(_ALONE)
    ]
    return median(latencies)


def test_gathered_calls_beside_calls_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured() -> dict[str, float]:
        deployed = {"gathered": desired("gathering"), "alone": desired("one_by_one")}
        async with serving(tmp_path, deployed) as orchestrator:
            alone_s = {query: await _alone_s(orchestrator, query) for query in deployed}
            rate, size = await _rate(orchestrator, "gathered")
            one_by_one, _ = await _rate(orchestrator, "alone")
        return {
            "gathered_rps": rate,
            "mean_batch": size,
            "one_by_one_rps": one_by_one,
            "ratio": rate / one_by_one,
            "lone_call_ratio": alone_s["gathered"] / alone_s["alone"],
        }

    figures = asyncio.run(measured())
    with capsys.disabled():
        sys.stdout.write(f"\n{ {name: round(value, 3) for name, value in figures.items()} }\n")
    # 8 together take 28 ms instead of 168: half of that gain, whatever else the machine does
    assert figures["ratio"] > 2
