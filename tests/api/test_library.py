"""`circinus.plan`: planning from a program, also what no fresh process could import."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import Runnable, RunnableLambda

import circinus
from circinus import Dataset, Example, InvalidInput, PlanningLimits, Query, Reading, Slo
from circinus.pipelines.presets import PRESETS
from circinus.planner.search.result import PlanningOutcome
from tests.e2e.service_process import ROOT

QUERY = Query(
    pipeline="own", slo=Slo(accuracy=0.5, latency_s=1.0), limits=PlanningLimits(profiling_s=5.0)
)
DATA = Dataset(name="own", examples=[Example(input=i, expected=i + 1) for i in range(12)])


def _reading() -> Reading:
    return Reading(name="own", score=lambda output, expected: float(output == expected))


def test_a_chain_made_here_is_planned_in_a_process_of_its_own() -> None:
    def add(number: int) -> int:
        if os.getpid() == here:
            raise RuntimeError("in the process that plans")
        return number + 1

    here = os.getpid()
    pipeline = circinus.pipeline_from_runnable(RunnableLambda(add, name="add"), _reading())

    result = circinus.plan(QUERY, PRESETS["one-tier"], pipeline, DATA)

    assert result.outcome is PlanningOutcome.FEASIBLE
    assert result.plans[0].accuracy.value == 1.0


def test_a_chain_whose_step_cannot_be_sent_is_refused_by_name() -> None:
    gather: Runnable[Any, Any] = RunnableLambda(lambda x: {x}, name="gather")
    chain = gather | RunnableLambda(max, name="largest")
    pipeline = circinus.pipeline_from_runnable(chain, _reading())

    with pytest.raises(InvalidInput, match="output of operator gather must be made of"):
        circinus.plan(QUERY, PRESETS["one-tier"], pipeline, DATA)


def test_a_check_whose_process_ends_is_told() -> None:
    def leave(number: int) -> int:
        os._exit(3)

    pipeline = circinus.pipeline_from_runnable(RunnableLambda(leave, name="leave"), _reading())

    result = circinus.plan(QUERY, PRESETS["one-tier"], pipeline, DATA)

    assert result.remarks[0] == "not checked: its process ended with exit code 3"
    assert result.outcome is PlanningOutcome.FAILED
    assert "died" in result.failures[0].cause


@pytest.mark.slow
def test_a_script_that_does_not_ask_whether_it_is_main_plans_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
from circinus import PlanningLimits, Query, Slo, plan
from circinus.pipelines.presets import PRESETS
from tests.e2e.troublesome import healthy

print("planning")
query = Query(
    pipeline="healthy",
    slo=Slo(accuracy=0.5, latency_s=1.0),
    limits=PlanningLimits(profiling_s=5.0),
)
where = "tests.e2e.troublesome:healthy"
print(plan(query, PRESETS["one-tier"], healthy, healthy.examples(10, 0), reference=where).outcome)
""",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=60
    )

    assert done.stdout.split() == ["planning", "feasible"], done.stderr
