import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.io.trace import load_trace
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.studies.data import TRACES, trace_folder
from circinus.studies.report.steps import RESULT, steps
from tests.api.cli.commands import invoke
from tests.studies.traces import saved_trace


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    saved_trace(tmp_path / "traces" / "chain")
    return tmp_path / "traces"


def words(traces: Path, out: Path, *more: str) -> list[str]:
    return ["study", "all", "--traces", str(traces), "--out", str(out), "--quick", *more]


def tables(out: Path) -> dict[str, str]:
    """Return what studies wrote, without the clock and the version."""
    return {
        str(file.relative_to(out)): _without_clocks(file.read_text())
        for file in sorted(out.rglob("*.csv"))
    }


def _without_clocks(text: str) -> str:
    head, *lines = (line.split(",") for line in text.splitlines())
    keep = [i for i, name in enumerate(head) if not re.search(r"proposal_seconds|version", name)]
    return "\n".join(",".join(line[i] for i in keep) for line in (head, *lines))


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    result = invoke(*words(tmp_path, tmp_path / "out"))
    assert result.exit_code == 2
    assert "--traces must hold traces, as `make traces` makes them" in result.output


def test_a_study_that_there_is_not_is_refused(traces: Path, tmp_path: Path) -> None:
    result = invoke(*words(traces, tmp_path / "out", "--only", "planing"))
    assert result.exit_code == 2
    assert "--only must be among goodput, cost, ablation" in result.output


def test_a_study_of_full_alone_is_refused_in_quick(traces: Path, tmp_path: Path) -> None:
    result = invoke(*words(traces, tmp_path / "out", "--only", "planning,budgets"))
    assert result.exit_code == 2
    assert "--only must be of --quick, too, got 'budgets'" in result.output


def test_without_a_folder_of_traces_those_shipped_are_taken_by_name(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = invoke("study", "all", "--out", str(out), "--only", "parts", "--workers", "1")
    assert result.exit_code == 0, result.output
    rows = (out / "parts-tracking" / "planning.csv").read_text().splitlines()
    assert len(rows) > 6
    assert "circinus study planning --slo medium" in (out / "report.html").read_text()
    assert "--trace tracking" in (out / "report.html").read_text()


def test_a_folder_goes_before_a_trace_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert trace_folder("tracking") == TRACES["tracking"]
    (tmp_path / "tracking").mkdir()
    assert trace_folder("tracking") == Path("tracking")
    assert trace_folder("mine") == Path("mine")


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_that_is_shipped_is_whole(name: str) -> None:
    trace = load_trace(TRACES[name])
    assert trace.score.shape[0] == ConfigurationSpace(trace.graph).size
    assert not np.isnan(trace.score).any()


@pytest.mark.parametrize("quick", [True, False])
def test_every_step_is_a_command_that_there_is(traces: Path, *, quick: bool) -> None:
    chosen = steps([traces / "chain", traces / "other"], quick=quick)
    assert len({step.name for step in chosen}) == len(chosen)
    options = {step.words[0]: set[str]() for step in chosen}
    for step in chosen:
        options[step.words[0]] |= {word for word in step.words if word.startswith("--")}
    for study, names in options.items():
        shown = invoke("study", study, "--help")
        assert shown.exit_code == 0
        assert [name for name in names if name not in shown.output] == [], study


def test_a_study_that_fails_is_named_and_others_are_shown(tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    saved_trace(traces / "tracking")
    (traces / "digits").mkdir()
    (traces / "digits" / "trace.npz").write_bytes(b"nothing")
    result = invoke(*words(traces, out, "--only", "planning", "--workers", "1"))
    assert result.exit_code == 1
    assert "planning-digits: see errors.txt" in result.output
    assert "trace" in (out / "planning-digits" / "errors.txt").read_text()
    shown = (out / "report.html").read_text()
    every = len(steps([traces / "digits", traces / "tracking"], quick=True))
    assert shown.count("<h2>") == every
    assert shown.count("Not there yet, or it failed.") == every - 1


def test_a_result_of_other_options_or_traces_or_none_is_not_shown(
    traces: Path, tmp_path: Path
) -> None:
    (step,) = (s for s in steps([traces / "chain"], quick=True) if s.name == "planning-chain")
    folder = tmp_path / "planning-chain"
    folder.mkdir()
    assert step.result(folder) is None
    for text in ("", "{}", json.dumps({"of": ["other"], "results": {}})):
        (folder / RESULT).write_text(text)
        assert step.result(folder) is None


def test_a_folder_in_which_studies_run_is_refused(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = invoke(*words(traces, out, "--only", "planning"))
    assert result.exit_code == 2
    assert "--out must be in use by no other run" in result.output


@pytest.mark.slow
def test_studies_that_are_killed_give_the_same_tables(traces: Path, tmp_path: Path) -> None:
    chosen = ["--only", "goodput,cost"]
    assert invoke(*words(traces, tmp_path / "whole", *chosen)).exit_code == 0
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "circinus", *words(traces, out, *chosen)]
    for seconds in (4.0, 8.0):
        _killed_after(seconds, command)
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert tables(out) == tables(tmp_path / "whole")
    shown = (out / "report.html").read_text()
    assert "<svg" in shown
    assert not re.search(r"""(src|href)=["']http""", shown)  # it needs no network
    (result,) = {file.name for file in out.rglob(RESULT)}
    assert json.loads((out / "cost-chain" / result).read_bytes())["results"]["cells"]
    before = {file: file.stat().st_mtime_ns for file in out.rglob(RESULT)}
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert {file: file.stat().st_mtime_ns for file in out.rglob(RESULT)} == before
    # A part of the studies leaves the others on the page.
    assert invoke(*words(traces, out, "--only", "planning")).exit_code == 0
    both = (out / "report.html").read_text()
    assert both.count("<svg") > shown.count("<svg")
    missing = "Not there yet, or it failed."
    assert both.count(missing) == shown.count(missing) - 1


@pytest.mark.slow
def test_ctrl_c_ends_the_studies_and_their_processes(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    command = [sys.executable, "-m", "circinus", *words(traces, out, "--workers", "1")]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60.0
    while not list(out.glob("*/output.json")):  # a step runs
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30.0) != 0
    deadline = time.monotonic() + 10.0
    while _is_left(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _is_left(group: int) -> bool:
    """Return whether a process group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _killed_after(seconds: float, command: Sequence[str]) -> None:
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
