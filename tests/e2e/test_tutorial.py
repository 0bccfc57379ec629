"""The tutorial, as a newcomer types it: its files, its commands, a real service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.service_process import ROOT, ServiceProcess

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (?:[A-Z_]+=\S+ )?circinus (.+)$", PAGE, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files that the tutorial has a newcomer write."""
    for source in re.findall(r"^```\w+\n(# [\w.]+\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / source.split()[1]).write_text(source, encoding="utf-8")
    return tmp_path


def typed(folder: Path, port: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder, as the tutorial says."""
    environment = {
        **os.environ,
        "CIRCINUS_URL": f"http://127.0.0.1:{port}",
        "CIRCINUS_DATABASE_URL": f"sqlite:///{folder}/memory.sqlite3",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))),
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_newcomer_gets_from_a_chain_to_an_answered_request(folder: Path) -> None:
    service = ServiceProcess(
        folder,
        extra={
            "CIRCINUS_EXTRA_PIPELINES": "tickets:chain",
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))),
        },
    )
    outputs: dict[str, str] = {}
    query_id = ""
    try:
        for command in COMMANDS:
            words = re.findall(r"'[^']*'|\S+", command.replace("q-1234", query_id))
            name = words[0]
            if name == "serve":
                service.start()
                continue
            if name == "status":  # it would watch for ever
                service.wait_for_phase(query_id, "serving")
                continue
            if name == "verify":
                outputs["ask.py"] = typed(folder, service.port, "ask.py").stdout
            words = [word.strip("'") for word in words]
            done = typed(folder, service.port, "-m", "circinus", *words)
            impossible = "slo.latency_s=0.000001" in words
            assert done.returncode == (3 if impossible else 0), done.stdout + done.stderr
            outputs[f"{name} impossible" if impossible else name] = done.stdout
            if name == "submit":
                query_id = re.findall(r"q-[0-9a-f]+", done.stdout)[0]
    finally:
        service.stop()
    assert "team.matching=parts" in outputs["plan"]
    assert "infeasible" in outputs["plan impossible"]
    assert "billing" in outputs["request"]
    assert outputs["ask.py"] == "delivery\n"
    assert {"verify", "undeploy"} <= set(outputs)
