"""Requests of drawn sizes to a service, at drawn times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import numpy as np

from tests.e2e.service_process import ServiceProcess

INFRASTRUCTURE = """
name: lab
tiers:
  - {name: device, machines: 1, dedicated: true, speed_factor: 0.01, emulated: true}
  - name: cloud
    emulated: true
    types:
      - {name: slow, machines: 8, price_usd_per_hour: 0.5, speed_factor: 0.25}
      - {name: fast, machines: 4, price_usd_per_hour: 3.0, speed_factor: 1.0}
links:
  - {between: [device, cloud], bandwidth_mbit_per_s: 1000}
"""
DUE_S = 0.42
"""A small request is in time on both types, most large ones of 12 on the fast one alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """What requests got."""

    statuses: Sequence[int]
    in_time: int
    seconds: float  # from the first to the last arrival

    @property
    def goodput_per_s(self) -> float:
        return self.in_time / self.seconds


def sent(
    service: ServiceProcess, query_id: str, sizes: Sequence[int], rate: float, seed: int
) -> Got:
    """Send requests with Poisson arrivals, and wait for their answers."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, len(sizes))
    return asyncio.run(_sent(service, f"/v1/queries/{query_id}/requests", sizes, gaps.tolist()))


async def _sent(
    service: ServiceProcess, path: str, sizes: Sequence[int], gaps: Sequence[float]
) -> Got:
    answers: list[tuple[int, float]] = []
    limits = httpx.Limits(max_connections=None)
    url = f"http://127.0.0.1:{service.port}"
    async with httpx.AsyncClient(
        base_url=url, limits=limits, timeout=60, trust_env=False
    ) as client:

        async def one(size: int) -> None:
            began = time.perf_counter()
            answer = await client.post(path, json={"input": {"size": size}})
            answers.append((answer.status_code, time.perf_counter() - began))

        began = at = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for size, gap in zip(sizes, gaps, strict=True):
                at += gap
                await asyncio.sleep(max(0.0, at - time.perf_counter()))
                tasks.create_task(one(size))
    in_time = sum(status == 200 and took <= DUE_S for status, took in answers)
    return Got(statuses=[s for s, _ in answers], in_time=in_time, seconds=at - began)
