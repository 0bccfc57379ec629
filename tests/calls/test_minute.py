"""Limits of a minute hold for planning and serving together, as the models' server sees it."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from circinus.api.client import Client
from circinus.api.demo.sending import example_body
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.model.endpoints import RateLimits
from tests.calls.answering import FOLDER, QUERY, answering, served
from tests.calls.server import serving_models, three_models

LIMITS = RateLimits(requests_per_minute=240, tokens_per_minute=80_000, concurrent=24)
LIMITED = "reader-medium"
PLANNED_FOR_PER_S = 0.5
SENT_PER_S = 6.0  # more than the limit of four a second
FOR_S = float(os.environ.get("CIRCINUS_TEST_SERVING_S", "65"))  # a window, and some of the next
OURS = {"reader": {"model": {"only": [LIMITED]}}}


def limited(folder: Path) -> Path:
    """Return the infrastructure of the example with limits on one of its endpoints."""
    document = yaml.safe_load((FOLDER / "infrastructure.yaml").read_text())
    for tier in document["tiers"]:
        for endpoint in tier.get("endpoints", ()):
            if endpoint["name"] == LIMITED:
                endpoint["limits"] = {
                    "requests_per_minute": LIMITS.requests_per_minute,
                    "tokens_per_minute": LIMITS.tokens_per_minute,
                    "concurrent": LIMITS.concurrent,
                }
    path = folder / "limited.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def sent(client: Client, query_id: str, seconds: float) -> tuple[int, int]:
    """Send requests at a rate for so long; give how many were answered and how many were not."""

    def one(index: int) -> bool:
        try:
            client.request(query_id, example_body(index % 100, 100, seed=7))
        except CircinusError:
            return False
        return True

    with ThreadPoolExecutor(48) as senders:
        tasks: list[Future[bool]] = []
        began = time.monotonic()
        while (at := time.monotonic() - began) < seconds:
            tasks.append(senders.submit(one, len(tasks)))
            time.sleep(max(len(tasks) / SENT_PER_S - at, 0.0))
        answered = sum(task.result() for task in tasks)
    return answered, len(tasks) - answered


@pytest.mark.slow
def test_planning_and_serving_together_keep_within_limits_of_a_minute(tmp_path: Path) -> None:
    models = three_models()
    models[LIMITED] = replace(models[LIMITED], limits=LIMITS)
    with (
        serving_models(models) as server,
        answering(tmp_path, server, infrastructure=limited(tmp_path)) as (service, client),
    ):
        asked = {
            "request_rate_per_s": PLANNED_FOR_PER_S,
            "data": {"examples": 40},
            "restrictions": {"knobs": OURS},
            "slo": {**QUERY["slo"], "cost_usd_per_1000_requests": 2.0},
        }
        query_id, _ = served(service, client, **asked)
        before = len(server.calls)
        # the same again on other examples, planned while the first one serves
        another = {**QUERY, **asked, "data": {"examples": 60}, "seed": 5}
        assert service.ask("POST", "/v1/queries", json=another).status_code == 202
        answered, refused = sent(client, query_id, FOR_S)
        made = len(server.calls) - before
        requests, tokens = server.most_in_a_window(LIMITED)
    print(  # noqa: T201 - shown by `pytest -s`
        f"\n{requests} calls and {tokens} tokens in the fullest minute, {made} calls in "
        f"{FOR_S:g} s, {server.refused} refused by the models; {answered} requests answered, "
        f"{refused} refused by the service"
    )
    assert requests <= (LIMITS.requests_per_minute or 0)
    assert tokens <= (LIMITS.tokens_per_minute or 0)
    assert server.refused == 0
    # Not by calling next to nothing.
    assert made >= 0.75 * FOR_S / 60 * (LIMITS.requests_per_minute or 0)
