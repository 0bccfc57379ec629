"""`circinus calibrate`: what it refuses before it measures, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict
from tests.api.cli.commands import invoke

pytestmark = pytest.mark.slow

TWO_TIERS = """
name: two
tiers:
  - {name: slow, speed_factor: 0.5, emulated: true}
  - {name: cloud}
links:
  - {between: [slow, cloud], bandwidth_mbit_per_s: 100}
"""


FEW = ("--configurations", "1", "--inputs", "1", "--repetitions", "2", "--pause-s", "0.01")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CIRCINUS_WORKER_LOGS", str(tmp_path / "logs"))
    (tmp_path / "two.yaml").write_text(TWO_TIERS)
    return tmp_path


def calibrate(*arguments: str) -> Result:
    given = ["calibrate", "two.yaml", "--pipeline", "tests.api.fakes:PIPELINE", *arguments]
    return invoke(*given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--share", "0"], "share must be in (0, 1], got 0.0."),
        (["--pause-s", "nan"], "pause_s must be finite and >= 0, got nan."),
        (["--worker", "cloud"], "--worker must be TIER=ADDRESS, got 'cloud'."),
        (["--worker", "moon=127.0.0.1:9"], "tier must be among slow, cloud"),
        (["--out", "missing/two.yaml"], "--out must be in a folder that exists"),
        (["--out", "."], "--out must not be a folder"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_measured(
    arguments: list[str], message: str
) -> None:
    done = calibrate(*arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr


def test_a_pipeline_without_examples_is_refused() -> None:
    given = ["calibrate", "two.yaml", "--pipeline", "tests.deploy.profiled_pipelines:chain"]
    done = invoke(*given)
    assert done.exit_code == 2, done.output
    assert "pipeline must bring examples, got 'chain'." in done.stderr


def test_factors_are_written_into_a_file_that_can_be_used(folder: Path) -> None:
    done = calibrate(*FEW, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["file"] == "two.calibrated.yaml"
    document = yaml.safe_load((folder / told["file"]).read_text(encoding="utf-8"))
    assert document == told["infrastructure"]
    slow, cloud = infrastructure_from_dict(document).tiers
    assert slow.speed_factor == 0.5
    assert slow.calibration is not None
    assert cloud.calibration is not None
    for name, speed in cloud.calibration.speeds.items():
        assert speed.repetitions == 2
        assert slow.speed_of(name) == pytest.approx(cloud.speed_of(name) / 2)


def test_once_keeps_a_file_of_the_same_infrastructure_and_no_other(folder: Path) -> None:
    file = folder / "two.calibrated.yaml"
    written = []
    for text in (TWO_TIERS, TWO_TIERS, TWO_TIERS.replace("100", "50")):
        (folder / "two.yaml").write_text(text)
        done = calibrate(*FEW, "--once", "--json")
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert told["infrastructure"] == yaml.safe_load(file.read_text(encoding="utf-8"))
        written.append(file.stat().st_mtime_ns)
    first, again, other = written
    assert first == again < other
