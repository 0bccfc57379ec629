"""A retrieval chain of somebody's own, planned by the command line against models that charge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import yaml

from circinus import configured, plan
from tests.calls.server import ModelServer, serving_models, three_models
from tests.e2e.service_process import ROOT

RAG = Path(__file__).with_name("rag.py")
ACCURACY = 0.8
CAP_USD = 0.1
SLO = (
    *("--set", f"slo.accuracy={ACCURACY}", "--set", "slo.latency_s=2"),
    *("--set", f"limits.profiling_usd={CAP_USD}"),
)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving_models(seed=5) as models:
        yield models


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rag.py").write_text(RAG.read_text())
    endpoints = [
        {
            "name": name,
            "price": {
                "input_usd_per_million": model.price.input_usd_per_million,
                "cached_usd_per_million": model.price.cached_usd_per_million,
                "output_usd_per_million": model.price.output_usd_per_million,
            },
            "most_input_tokens": 200,
            "most_output_tokens": 20,
        }
        for name, model in three_models().items()
        if name != "reranker"
    ]
    for one in endpoints:
        one["price"] = {k: v for k, v in one["price"].items() if v is not None}  # type: ignore[attr-defined]  # a dict
    infrastructure = {
        "name": "lab",
        "tiers": [
            {"name": "office", "machines": 4, "price_usd_per_hour": 0.2},
            {"name": "api", "endpoints": endpoints},
        ],
        "links": [{"between": ["office", "api"], "bandwidth_mbit_per_s": 100}],
    }
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(infrastructure))
    return tmp_path


def circinus(
    folder: Path, server: ModelServer, *arguments: str
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": "none",
        "CIRCINUS_DATABASE_URL": f"sqlite:///{folder / 'circinus.sqlite3'}",
    }
    return subprocess.run(
        [sys.executable, "-m", "circinus", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_module_of_the_chain_names_circinus_nowhere() -> None:
    assert "circinus" not in RAG.read_text().lower()


def test_models_at_an_address_of_one_s_own_are_not_priced_by_their_name(
    folder: Path, server: ModelServer
) -> None:
    text = (folder / "rag.py").read_text().replace("reader-small", "gpt-4o-mini")
    (folder / "rag.py").write_text(text)
    result = circinus(folder, server, "plan", "rag:chain", *SLO)

    assert result.returncode == 2
    told = " ".join(result.stderr.split())
    assert "infrastructure.endpoints must have what the pipeline calls" in told
    assert "{name: gpt-4o-mini, price: {input_usd_per_million: ?" in told
    assert server.calls == []


def test_a_chain_is_checked_for_nothing(folder: Path, server: ModelServer) -> None:
    result = circinus(
        folder, server, "validate", "rag:chain", *SLO, "--infrastructure", "lab.yaml", "--json"
    )

    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["configurations"] == 3 * 2 * 3
    assert "no example was run: ChatOpenAI would be paid for" in found["remarks"]
    assert server.calls == []


@pytest.mark.slow
def test_a_chain_is_planned_by_the_command_line_and_paid_as_it_was_charged(
    folder: Path, server: ModelServer, at: None
) -> None:
    result = circinus(
        *(folder, server, "plan", "rag:chain", *SLO, "--infrastructure", "lab.yaml"),
        *("--json", "--cold", "--executor-workers", "2"),
    )

    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["outcome"] == "feasible"
    assert found["plans"]
    assert 0 < server.charged_usd <= CAP_USD
    billed = sum(each["usd"] for each in found["bill"]["paid"]["calls"])
    assert billed == pytest.approx(server.charged_usd)
    for one in found["plans"]:
        assert one["placement"]["ChatOpenAI"] == "api"
        assert {one["placement"][name] for name in ("ByWord", "together")} == {"office"}
        assert one["configuration"]["ByWord"] == {"k": "five"}  # fewer find 3 of 5 facts
        score, usd = _alone(server, one["configuration"])
        # An input on which a call failed for good would be none of the plan's: nothing fails here
        assert one["accuracy"]["low"] <= score <= one["accuracy"]["high"]
        assert score >= ACCURACY
        assert one["calls"]["usd_per_request"]["value"] == pytest.approx(usd, rel=0.02)


@pytest.mark.slow
def test_a_program_plans_it_by_name_and_pays_as_it_was_charged(
    folder: Path, server: ModelServer, at: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CIRCINUS_DATABASE_URL", f"sqlite:///{folder / 'circinus.sqlite3'}")
    planned = plan(
        *("rag:chain", 50),
        accuracy=ACCURACY,
        latency_s=2.0,
        infrastructure="lab.yaml",
        profiling_usd=CAP_USD,
        executor="in-process",
        cold=True,
        progress=False,
    )

    assert planned.best is not None
    (paid,) = planned.bill.paid.calls  # of the one operator that calls
    assert paid.calls == len(server.calls)
    assert paid.usd == pytest.approx(server.charged_usd)
    tokens = sum(call.used.tokens for call in server.calls)
    assert paid.input_tokens + paid.output_tokens == tokens


@pytest.fixture
def at(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let chains of this process call the server."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def _alone(server: ModelServer, configuration: dict[str, Any]) -> tuple[float, float]:
    """Return what the chain itself scores and costs a request, configured as planned."""
    rag = run_path(str(RAG))
    chain, before = configured(rag["chain"], configuration), server.charged_usd
    scores = [
        rag["metric"](chain.invoke(question), answer) for question, answer in rag["examples"]
    ]
    return sum(scores) / len(scores), (server.charged_usd - before) / len(scores)
