"""Circinus as pip installs it, beside a project that has folders of the same names as ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

import circinus

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(
    path.name for path in Path(circinus.__file__).parent.iterdir() if path.is_symlink()
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Of a copy: a build leaves files behind.
    source = tmp_path_factory.mktemp("source") / "circinus"
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in names:
        if not name.startswith("tests/") and (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(source)], check=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own with the wheel; the libraries are those of the tests."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True)
    return python


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project: folders with our names, and a pipeline of its own in one of them."""
    folder = tmp_path_factory.mktemp("project")
    for name in FOLDERS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("MINE = True\n")
    shutil.copy(ROOT / "tests" / "e2e" / "slow_sum.py", folder / "pipelines" / "sums.py")
    lines = [f"import {name}\nassert {name}.MINE\n" for name in FOLDERS]
    lines += ["import circinus\n", "from circinus.planner.search.loop import search\n"]
    lines += ["from pipelines.sums import pipeline\n", "print(pipeline.name, circinus.__file__)\n"]
    (folder / "main.py").write_text("".join(lines))
    slo = {"accuracy": 0.8, "latency_s": 1.0}
    query = {"pipeline": "pipelines.sums:pipeline", "slo": slo, "data": {"examples": 8}}
    (folder / "sums.yaml").write_text(json.dumps(query))
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "XDG_DATA_HOME": str(tmp_path), "CIRCINUS_DATABASE": f"sqlite:///{tmp_path}/x"}


def test_a_wheel_holds_circinus_and_nothing_beside_it(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"circinus"}
    for needed in ("api/store/migrations/script.py.mako", "py.typed", "deploy/workers/server.py"):
        assert f"circinus/{needed}" in names
    ui = ROOT / "api" / "http" / "ui"
    shown = [*(ui / "static").iterdir(), *(ui / "templates").iterdir()]
    assert {f"circinus/{path.relative_to(ROOT)}" for path in shown} <= set(names)
    assert not [name for name in names if "/tests/" in name]


def test_a_script_beside_folders_of_our_names_imports_circinus(
    python: Path, project: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [python, "main.py"], cwd=project, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    name, _, file = done.stdout.strip().partition(" ")
    assert name == "slow-sum"
    assert Path(file).is_relative_to(python.parents[1])


def test_doctor_runs_beside_folders_of_our_names(
    python: Path, project: Path, environment: dict[str, str]
) -> None:
    for command in ([python.with_name("circinus")], [python, "-m", "circinus.api.cli"]):
        done = subprocess.run(
            [*command, "doctor"], cwd=project, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "digits" in done.stdout


SHELL = """\
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
import circinus
upper = RunnableLambda(lambda text: text.upper())
knob = ConfigurableField(id="case")
case = RunnablePassthrough().configurable_alternatives(knob, default_key="same", upper=upper)
chain = RunnableLambda(lambda text: text.strip()) | case
data = [(f" user {n} ", f"USER {n}") for n in range(40)]
result = circinus.plan(chain, data, accuracy=0.85, latency_s=0.5, score=lambda a, b: a == b)
result
result.best.accuracy.value
result.whatif(latency="0.5x").words
result.as_runnable().invoke(" you ")
"""


def test_a_chain_typed_into_a_shell_is_planned(
    python: Path, project: Path, environment: dict[str, str]
) -> None:
    assert len(SHELL.splitlines()) <= 15
    done = subprocess.run(
        [python, "-i"],
        input=SHELL,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    first, *_, accuracy, words, output = done.stdout.splitlines()
    assert first.startswith("feasible: ")
    assert accuracy == "1.0"
    assert "the cheapest plan" in words
    assert output == "'YOU'"


def test_a_plan_and_a_worker_of_the_users_own_pipelines_folder_run(
    python: Path, project: Path, environment: dict[str, str]
) -> None:
    told = subprocess.run(
        [python, "-m", "circinus.api.cli", "validate", "sums.yaml"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    served = ["--pipeline", "pipelines.sums:pipeline", "--allow-import", "--operators", "double"]
    served += ["--configuration", json.dumps({"double": {"effort": 1}, "shift": {"by": 1}})]
    where = ["--tier", "cloud", "--bind", f"unix:{project / 'w'}"]
    worker = subprocess.Popen(
        [python, "-m", "circinus.deploy.workers.server", *served, *where],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stdout is not None
        line = json.loads(worker.stdout.readline())
        assert line["pid"] == worker.pid
        assert line["address"]
    finally:
        worker.terminate()
        worker.communicate(timeout=30)
    assert worker.returncode == 0
