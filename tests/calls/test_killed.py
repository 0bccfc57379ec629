"""However often planning is killed, the dollars charged stay below what planning may spend."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from circinus.api.store.calls import SqlLedger
from circinus.api.store.engine import connect
from tests.calls.chatting import CHATTING, MOST_INPUT, MOST_OUTPUT, PRICES, models
from tests.calls.server import ModelServer, serving_models
from tests.e2e.service_process import ServiceProcess, serving

SEEDS = int(os.environ.get("CIRCINUS_TEST_SEEDS", "1"))
WIDTH = 16
KILLS = 3
LIMIT_USD = 0.6
LARGEST_USD = max(
    (MOST_INPUT * p.input_usd_per_million + MOST_OUTPUT * p.output_usd_per_million) / 1e6
    for p in PRICES.values()
)
TIERS = f"""
name: with-models
tiers:
  - {{name: device, machines: 1, price_usd_per_hour: 0.0, dedicated: true}}
  - name: models
    endpoints:
      - name: small
        price: {{input_usd_per_million: 20, output_usd_per_million: 80}}
        most_input_tokens: {MOST_INPUT}
        most_output_tokens: {MOST_OUTPUT}
        timeout_s: 0.5
      - name: large
        price: {{input_usd_per_million: 50, output_usd_per_million: 200}}
        most_input_tokens: {MOST_INPUT}
        most_output_tokens: {MOST_OUTPUT}
        timeout_s: 0.5
links:
  - {{between: [device, models], bandwidth_mbit_per_s: 100, delay_s: 0.001}}
"""


def planning_worker(service: ServiceProcess) -> psutil.Process:
    """Return the process that plans."""
    while True:
        for process in psutil.Process(service.process.pid).children(recursive=True):  # type: ignore[union-attr]  # it runs
            try:
                if "circinus.api.control.planning_worker" in process.cmdline():
                    return process
            except psutil.Error:
                continue
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_dollars_charged_stay_below_the_limit_though_planning_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # 30 % of the calls fail or are slow: 15 % end with an error, 15 % take 20 times as long.
    how = models(failing=0.15, slow=0.15, median_s=0.1, spread=0.3)
    with serving_models(how, seed=seed) as server:
        monkeypatch.setenv("CHAT_URL", server.url)
        settings = {"calling_workers": str(WIDTH), "crash_limit": "100"}
        with serving(tmp_path, TIERS, CHATTING, **settings) as service:
            query_id = service.submit(
                pipeline="chatting",
                data={"examples": 200},
                slo={"accuracy": 0.9, "latency_s": 20.0},
                limits={"profiling_usd": LIMIT_USD, "profiling_s": 3600, "response_s": 600},
                seed=seed,
            )
            _killed_while_it_calls(service, server)
            phase = service.wait_for_phase(
                query_id, "waiting", "serving", "exhausted", "infeasible", "failed"
            )
        engine = connect(service.database_url)
        try:
            spent = SqlLedger(engine, query_id).spent()["reader"]
        finally:
            engine.dispose()
    assert service.database_url.startswith("sqlite")
    assert server.charged_usd <= LIMIT_USD
    assert server.charged_usd <= spent.usd <= LIMIT_USD + 1e-9
    # What was under way when planning was killed stays in the bill, and nothing else does.
    assert 0 < spent.open_usd <= KILLS * WIDTH * LARGEST_USD
    assert "limit profiling_usd reached" in str(phase), phase


def _killed_while_it_calls(service: ServiceProcess, server: ModelServer) -> None:
    for _ in range(KILLS):
        before, deadline = len(server.calls), time.monotonic() + 180
        while len(server.calls) < before + 10:
            assert time.monotonic() < deadline, "nothing was called any more"
            time.sleep(0.005)
        planning_worker(service).kill()
