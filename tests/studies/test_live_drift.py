"""`circinus study live-drift`: what is not of the running service."""

from __future__ import annotations

from pathlib import Path

import pytest

from circinus.studies.planning.live_drift import DriftAnswer, LiveDrift, picture
from circinus.studies.report.charts import svg
from tests.api.cli.commands import invoke


def _answer(at_s: float, plan: str | None, latency_s: float | None) -> DriftAnswer:
    score = None if latency_s is None else 1.0
    return DriftAnswer(run=0, drift="link", at_s=at_s, plan=plan, latency_s=latency_s, score=score)


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--rate", "0", "rate must be in (0, 100]"),
        ("--rate", "1e9", "rate must be in (0, 100]"),
        ("--runs", "0", "runs"),
        ("--method", "guess", "method must be among"),
    ],
)
def test_a_wrong_option_is_bad_input(tmp_path: Path, option: str, value: str, rule: str) -> None:
    result = invoke("study", "live-drift", "--out", str(tmp_path / "out"), option, value)
    assert result.exit_code == 2
    assert rule in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_run_in_which_nothing_answers_after_the_drift_is_drawn() -> None:
    row = LiveDrift(
        run=0,
        drift="link",
        at_s=1.0,
        why=None,
        noticed_s=None,
        replaced_s=None,
        latency_before_s=0.1,
        latency_drifted_s=None,
        latency_after_s=None,
        latency_slo_s=0.3,
        accuracy_before=1.0,
        accuracy_drifted=None,
        accuracy_after=None,
        accuracy_slo=0.5,
        answered=0,
        refused=1,
        phase="infeasible",
        message="no plan",
    )
    answers = [_answer(0.5, "p-1", 0.1), _answer(1.5, None, None)]
    drawn = svg(picture([row], answers, 0))
    assert "plan 1" in drawn
    assert "plan 2" not in drawn
