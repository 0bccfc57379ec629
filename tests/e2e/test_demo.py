"""The demo as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from circinus.deploy.methods import PUBLISHED, parts_of

ROOT = Path(__file__).parents[2]


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "circinus.api.cli", "demo", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Started in the background, a shell lets its children ignore it, and so would the demo.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.slow
def test_the_demo_plans_deploys_and_serves_and_leaves_nothing() -> None:
    demo = start("--json")
    output, shown = demo.communicate(timeout=400)
    assert demo.returncode == 0, shown
    report = json.loads(output)
    assert report["worked"]
    assert report["method"]["name"] == "default"
    assert sum(query["observed"]["requests"] for query in report["queries"]) >= 200
    assert len({str(query["objectives"]) for query in report["queries"]}) >= 2
    for heading in ("Plans", "Schedule", "Requests", "Predicted and observed", "Binding: latency"):
        assert heading in shown
    assert "Closest measured plan" in shown
    assert "\x1b" not in shown
    assert all(len(line) <= 100 for line in shown.splitlines()), max(shown.splitlines(), key=len)
    assert leftovers() == []


@pytest.mark.slow
def test_the_demo_runs_with_the_published_method_and_says_so() -> None:
    demo = start("--json", "--method", "published")
    output, shown = demo.communicate(timeout=400)
    assert demo.returncode == 0, shown
    report = json.loads(output)
    method = report["method"]
    assert (method["name"], method["scheduling"], method["dispatch"]) == (
        "published",
        "greedy",
        "kairos",
    )
    assert report["worked"]
    assert report["queries"]
    for query in report["queries"]:
        assert query["planning"] == parts_of(PUBLISHED.planning)
    assert "planned by published: cmbo, t_test, stratified order" in shown
    assert "scheduled by greedy, dispatched by kairos" in shown
    assert leftovers() == []


@pytest.mark.slow
def test_an_interrupted_demo_stops_what_it_started() -> None:
    demo = start()
    assert demo.stdout is not None
    for line in demo.stdout:
        if "planning" in line:
            break
    demo.send_signal(signal.SIGINT)
    _, told = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert "Traceback" not in told
    assert leftovers() == []


def leftovers() -> list[str]:
    """Give the processes of a demo's service that still run."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        environ = process.info["environ"] or {}
        if "circinus-demo-" in environ.get("CIRCINUS_DATABASE_URL", ""):
            found.append(" ".join(process.info["cmdline"] or []))
    return found
