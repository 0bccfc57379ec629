"""The demo as a user runs it, by the published method.

`make demo` runs it by the default method, and fails where a step of it does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from circinus.deploy.methods import PUBLISHED, parts_of

ROOT = Path(__file__).parents[2]


def start(*options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "circinus.api.cli", "demo", *options],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Started in the background, a shell lets its children ignore it, and so would the demo.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def require_worked(report: dict[str, Any], shown: str) -> None:
    """All steps went well; a busy machine may have missed an objective, which is told as such."""
    missed = [problem for problem in report["problems"] if "the objective" in problem]
    assert report["problems"] == missed, shown
    assert report["worked"] == (not missed)
    assert sum(query["observed"]["requests"] for query in report["queries"]) >= 120
    assert len(report["queries"]) == 3
    tiers = {tier for query in report["queries"] for tier in query["placement"].values()}
    assert tiers == {"device", "edge", "cloud"}
    assert all(query["cost_usd_per_hour"] > 0 for query in report["queries"])


def require_published(report: dict[str, Any], shown: str) -> None:
    """Fail unless the published method planned, scheduled and dispatched, and the demo says so."""
    method = report["method"]
    assert (method["name"], method["scheduling"], method["dispatch"]) == (
        "published",
        "greedy",
        "kairos",
    )
    for query in report["queries"]:
        assert query["planning"] == parts_of(PUBLISHED.planning)
    assert "planned by published: cmbo, t_test, stratified order" in shown
    assert "scheduled by greedy, dispatched by kairos" in shown


@pytest.mark.slow
@pytest.mark.timeout(900)  # each search takes all of its 30 s
def test_the_demo_shows_who_makes_way_and_stays_up_until_interrupted(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 > {opened}\n")
    browser.chmod(0o700)
    demo = start("--json", "--keep", "--open", "--method", "published", BROWSER=f"{browser} %s")
    assert demo.stderr is not None
    shown = ""
    for line in demo.stderr:
        shown += line
        if "The service stays up" in line:
            break
    (address,) = set(re.findall(r"http://127\.0\.0\.1:\d+/", shown))
    assert opened.read_text().strip() == address
    assert httpx.get(f"{address}readyz", trust_env=False).status_code == 200
    demo.send_signal(signal.SIGINT)
    output, rest = demo.communicate(timeout=60)
    report = json.loads(output)
    require_worked(report, shown)
    assert demo.returncode == (0 if report["worked"] else 1), rest
    require_published(report, shown)
    for heading in ("Plans", "Requests", "Predicted and observed", "Binding: latency", "waits:"):
        assert heading in shown
    link, machines = report["link"], report["machines"]
    assert link["why"].startswith("latency is ")
    assert "device" in link["after"]["placement"].values()
    assert link["before"]["id"] != link["after"]["id"]
    assert machines["made_way"]
    assert machines["waiting"]
    assert machines["all_back"]
    assert "\x1b" not in shown
    # Progress is a line each, however much there is to say.
    rest_of_it = [line for line in shown.splitlines() if " s spent" not in line]
    assert max(map(len, rest_of_it)) <= 100, max(rest_of_it, key=len)
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
    """Return the processes of a demo's service that still run."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        environ = process.info["environ"] or {}
        if "circinus-demo-" in environ.get("CIRCINUS_DATABASE_URL", ""):
            found.append(" ".join(process.info["cmdline"] or []))
    return found
