"""The pipeline of `examples/calls`, planned and served by a real service, told what it costs.

The models that it calls are those of `tests.calls.server`, which charges: what was predicted is
compared with what was billed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from circinus.api.client import Client
from circinus.api.demo.sending import example_body
from circinus.api.schemas.plans import PlanView
from tests.calls.server import ModelServer
from tests.e2e.service_process import ROOT, ServiceProcess

FOLDER = ROOT / "examples" / "calls"
RATE_PER_S = 4.0
QUERY: Mapping[str, Any] = {
    "pipeline": "answers",
    "data": {"examples": 150},
    "request_rate_per_s": RATE_PER_S,
    "slo": {
        "accuracy": 0.8,
        "latency_s": 0.12,
        "latency_statistic": "p95",
        "cost_usd_per_1000_requests": 0.5,
    },
    # the rented reader does not fit into the office
    "restrictions": {"tiers": {"reader": {"never": ["office"]}}},
    "limits": {"profiling_s": 60.0, "profiling_usd": 0.25},
}
_SETTLED = ("serving", "infeasible", "exhausted", "failed")


@contextmanager
def answering(
    folder: Path,
    models: ModelServer,
    *,
    infrastructure: Path = FOLDER / "infrastructure.yaml",
    **settings: str,
) -> Iterator[tuple[ServiceProcess, Client]]:
    """Run a service that knows the pipeline and where its models are; settings are of its own."""
    service = ServiceProcess(
        folder,
        extra={
            "CIRCINUS_INFRASTRUCTURE": str(infrastructure),
            "CIRCINUS_EXTRA_PIPELINES": "answers:pipeline",
            "PYTHONPATH": f"{ROOT}:{FOLDER}",
            "ANSWERS_URL": models.url,
            **{f"CIRCINUS_{name.upper()}": value for name, value in settings.items()},
        },
    )
    service.start()
    try:
        with Client(f"http://127.0.0.1:{service.port}") as client:
            yield service, client
    finally:
        service.stop()


def served(service: ServiceProcess, client: Client, **more: object) -> tuple[str, PlanView]:
    """Ask for the query, with other fields, and give its id and plan once it serves."""
    answer = service.ask("POST", "/v1/queries", json={**QUERY, **more})
    assert answer.status_code == 202, answer.text
    query_id = str(answer.json()["id"])
    ended = service.wait_for_phase(query_id, *_SETTLED)
    assert ended["phase"] == "serving", ended["message"]
    return query_id, client.plan(ended["plan_id"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What requests to a plan cost and took, beside what was predicted."""

    plan: PlanView
    requests: int
    usd_per_1000: float  # of the calls, as the server charged them
    right: float  # part of the answers that were right
    latencies_s: tuple[float, ...]  # of the requests

    @property
    def p95_s(self) -> float:
        return float(np.quantile(self.latencies_s, 0.95))

    def slower(self, than_s: float) -> int:
        """Return how many requests took longer."""
        return sum(latency_s > than_s for latency_s in self.latencies_s)

    @property
    def predicted_usd_per_1000(self) -> float:
        """What the plan says of its calls."""
        told = self.plan.calls.usd_per_request.value if self.plan.calls else None
        return 1000 * (told or 0.0)

    def words(self) -> str:
        """Return predicted beside observed."""
        plan = self.plan
        return (
            f"{self.requests} answers, {self.right:.3f} of them right "
            f"({plan.accuracy.value:.3f} predicted); calls billed at "
            f"${self.usd_per_1000:.4f} for 1,000 (${self.predicted_usd_per_1000:.4f} predicted); "
            f"p95 {self.p95_s:.4f} s ({plan.latency_s.value:.4f} s predicted)"
        )


def billed(
    client: Client,
    models: ModelServer,
    named: tuple[str, PlanView],
    requests: int,
    *,
    seed: int,
    rate_per_s: float = RATE_PER_S,
) -> Billed:
    """Send requests that come by chance at a rate, and give what they cost and took."""
    query_id, plan = named
    rng = np.random.default_rng(seed)
    gaps_s = rng.exponential(1 / rate_per_s, requests).tolist()
    before = models.charged_usd
    with ThreadPoolExecutor(32) as senders:
        replies, due = [], time.monotonic()
        for index, gap_s in enumerate(gaps_s):
            due += gap_s
            time.sleep(max(due - time.monotonic(), 0.0))
            body = example_body(index, requests, seed=1000 + seed)
            replies.append(senders.submit(client.request, query_id, body))
        answers = [reply.result() for reply in replies]
    return Billed(
        plan=plan,
        requests=requests,
        usd_per_1000=(models.charged_usd - before) / requests * 1000,
        right=float(np.mean([answer.score for answer in answers])),
        latencies_s=tuple(answer.latency_s for answer in answers),
    )
